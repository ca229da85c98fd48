"""The web application of a review: the page, and a function for each request that it makes."""

from collections.abc import Callable, Iterable
from typing import Annotated, Final
from urllib.parse import unquote

from fastapi import APIRouter, Depends, FastAPI, Path, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from esad.errors import OutputError, RequestError
from esad.report.style import COLOURS
from esad.review.access import LONGEST_SECONDS, Access
from esad.review.judgements import MAX_NAME, MAX_NOTE, is_same_name
from esad.review.queue import FILTERS
from esad.review.session import ReviewSession
from esad.review.store import MAX_REQUEST
from esad.web.answers import error_response, json_response, make_application
from esad.web.guard import PAGE_POLICY, Guard, Limits
from esad.web.pages import load_templates, read_files, send_file

MAX_BODY: Final = 16 << 20  # bytes, of labels to import
MAX_ASKED: Final = 20  # items of one request
_POLLED: Final = ("/api/state", "/api/labels")  # sent by an open page even if nobody uses it
_SAME_SITE: Final = ("same-origin", "none")  # "none": the address was typed or opened from outside a page

_router = APIRouter()


def guard_app(app: FastAPI, *, names: Iterable[str] = ()) -> Guard:
    """The application behind the checks of Host, Origin and sizes, with the page's content security policy."""
    return Guard(app, names=names, policy=PAGE_POLICY, limits=Limits(body_bytes=MAX_BODY))


def review_app(
    session: ReviewSession,
    access: Access,
    *,
    cookie: str = "esad-review",
    on_enter: Callable[[str], None] = lambda name: None,
) -> FastAPI:
    """The application of one review.

    Parameters
    ----------
    session : ReviewSession
    access : Access
    cookie : str
        Name of the login's cookie; cookies do not tell ports apart, so two reviews at once need two names.
    on_enter : callable
        Called with the reviewer's name when a link was used.
    """
    app = make_application("esad review", openapi_url=None)
    pages = load_templates("esad.review", "templates")
    files = read_files("esad.review", "static", colours=COLOURS)
    scripts = sorted(name for name in files if name.endswith(".js"))
    app.state.session, app.state.access, app.state.cookie = session, access, cookie
    app.include_router(_router)
    app.add_exception_handler(OutputError, _refuse_storage)

    @app.get("/")
    def page(request: Request, token: Annotated[str, Query(max_length=200)] = "") -> Response:
        login = access.use_link(token) if token else None
        reviewer = _find_reviewer(request) if login is None else access.reviewer_of(login)
        if reviewer is None:
            return HTMLResponse(pages.get_template("refused.html").render(used=bool(token)), 403)
        words = {"title": session.dataset.title, "noun": session.dataset.noun, "reviewer": reviewer}
        words["review"] = session.store.name
        answer = HTMLResponse(pages.get_template("page.html").render(words, filters=FILTERS, scripts=scripts))
        if login is not None:
            seconds = int(LONGEST_SECONDS)  # `access` ends it earlier where nothing is done
            answer.set_cookie(cookie, login, max_age=seconds, httponly=True, samesite="strict", path="/")
            on_enter(reviewer)
        return answer

    @app.get("/static/{name}")
    async def send_static(name: str) -> Response:
        return send_file(files, name)

    return app


async def _refuse_storage(request: Request, error: Exception) -> Response:
    """Answer a request whose data could not be written, such as on a full disk, so that it can be sent again."""
    return error_response(507, str(error))


# ---------------------------------------------------------------------- what every request needs


def _find_reviewer(request: Request) -> str | None:
    """Return the reviewer to whom the cookie of a request belongs."""
    state = request.app.state
    is_asked_by_itself = request.method == "GET" and request.url.path in _POLLED
    login = request.cookies.get(state.cookie, "")
    found: str | None = state.access.reviewer_of(login, renew=not is_asked_by_itself)
    return found


async def _get_session(request: Request) -> ReviewSession:
    session: ReviewSession = request.app.state.session
    return session


async def _get_access(request: Request) -> Access:
    access: Access = request.app.state.access
    return access


def _check_reviewer(request: Request) -> str:
    reviewer = _find_reviewer(request)
    if reviewer is None:
        raise RequestError(401, "This page needs the link that the command line shows.")
    if (owner := unquote(request.headers.get("x-reviewer", reviewer))) != reviewer:
        message = f"This is the page of {owner!r}, and {reviewer!r} has logged in with its browser since."
        raise RequestError(401, message)
    review = request.app.state.session.store.name  # another review may have begun at this port
    if request.headers.get("x-review", review) not in (review, review.partition("-")[0]):
        raise RequestError(409, "This page is of other data, or of other labels, than the review that is here now.")
    if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        raise RequestError(403, "Another site's page may not ask here.")
    return reviewer


Session = Annotated[ReviewSession, Depends(_get_session)]
Logins = Annotated[Access, Depends(_get_access)]
Reviewer = Annotated[str, Depends(_check_reviewer)]


class _Said(BaseModel):
    """Anything that is entered, once."""

    request: str = Field(min_length=1, max_length=MAX_REQUEST)


class _Undo(_Said):
    """Take a verdict back: that of a request, or the last one."""

    of: str | None = Field(None, max_length=MAX_REQUEST)


class _Verdict(_Said):
    """A key press."""

    row: int = Field(ge=0, le=2**31)
    verdict: str = Field(max_length=20)


class _Note(_Said):
    """What a reviewer writes about a row."""

    row: int = Field(ge=0, le=2**31)
    note: str = Field(max_length=MAX_NOTE)


class _Invitation(BaseModel):
    """The reviewer who is to get a link."""

    name: str = Field(min_length=1, max_length=MAX_NAME)


def _parse_numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []


# ---------------------------------------------------------------------- what is shown


@_router.get("/api/state")
def _get_state(session: Session, reviewer: Reviewer) -> Response:
    return json_response(session.state(reviewer))


@_router.get("/api/next")
def _get_next_items(
    session: Session,
    reviewer: Reviewer,
    n: Annotated[int, Query(ge=1, le=MAX_ASKED)] = 5,
    have: Annotated[str, Query(max_length=1000, pattern=r"^(\d{1,10}(,\d{1,10})*)?$")] = "",
) -> Response:
    return json_response({"items": session.next_items(reviewer, n, _parse_numbers(have))})


@_router.get("/api/items")
def _get_items(
    session: Session,
    reviewer: Reviewer,
    rows: Annotated[str, Query(max_length=1000, pattern=r"^\d{1,10}(,\d{1,10})*$")],
) -> Response:
    return json_response({"items": session.items(_parse_numbers(rows)[:MAX_ASKED], reviewer)})


@_router.get("/api/list")
def _get_list(
    session: Session,
    reviewer: Reviewer,
    name: Annotated[str, Query(max_length=20)] = "next",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    return json_response(session.list_rows(name, reviewer, q.strip()))


@_router.get("/pictures/{generation}/{row}/{kind}.png")
def _get_picture(
    session: Session,
    reviewer: Reviewer,
    generation: int,
    row: Annotated[int, Path(ge=0, le=2**31)],
    kind: Annotated[str, Path(pattern="^(given|expected|heat)$")],
) -> Response:
    headers = {"cache-control": "private, max-age=3600"}
    return Response(session.draw(row, kind), headers=headers, media_type="image/png")


# ---------------------------------------------------------------------- what is said


@_router.post("/api/judgements")
def _judge(session: Session, reviewer: Reviewer, said: _Verdict) -> Response:
    before = session.judge(said.request, said.row, reviewer, said.verdict)
    return json_response({"saved": said.request, "before": {"verdict": before.verdict, "by": before.imported_by}})


@_router.post("/api/notes")
def _annotate(session: Session, reviewer: Reviewer, said: _Note) -> Response:
    session.store.annotate(said.request, said.row, reviewer, said.note)
    return json_response({"saved": said.request})


@_router.post("/api/undo")
def _undo(session: Session, reviewer: Reviewer, said: _Undo) -> Response:
    undone = session.undo(said.request, reviewer, of=said.of)
    about = {"row": None} if undone is None else {"row": undone.row, "verdict": undone.entry, "by": undone.imported_by}
    return json_response({"saved": said.request} | about)


@_router.get("/labels.csv")
def _export_labels(session: Session, reviewer: Reviewer) -> Response:
    headers = {"content-disposition": 'attachment; filename="labels.csv"'}
    return Response(session.export_labels(), headers=headers, media_type="text/csv; charset=utf-8")


@_router.post("/api/labels")
async def _import_labels(session: Session, reviewer: Reviewer, request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0] != "text/csv":
        raise RequestError(415, "Labels are imported as text/csv.")
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(422, "The labels are not UTF-8 text.") from error
    return json_response((await run_in_threadpool(session.import_labels, text, reviewer))._asdict())


@_router.get("/api/labels")
def _get_import_progress(session: Session, reviewer: Reviewer) -> Response:
    n_done, n_lines = session.import_progress or (0, 0)
    return json_response({"n_done": n_done, "n_lines": n_lines})


@_router.post("/api/invitations")
def _invite(session: Session, access: Logins, reviewer: Reviewer, asked: _Invitation) -> Response:
    name, owner = asked.name.strip(), access.owner
    known = sorted({*session.store.judgements.reviewers(), *access.reviewers(), owner or ""})
    if taken := next((one for one in known if is_same_name(one, name)), None):
        if reviewer not in (taken, owner):
            others = taken if owner in (None, taken) else f"{taken} or {owner}, who started the review,"
            raise RequestError(403, f"There is a reviewer {taken!r}. Only {others} can make a link for that name.")
        name = taken
    return json_response({"path": f"/?token={access.new_link(name, is_new=taken is None)}"})


@_router.post("/api/log-out")
def _log_out(access: Logins, reviewer: Reviewer, request: Request) -> Response:
    cookie = request.app.state.cookie
    access.log_out(request.cookies.get(cookie, ""))
    answer = json_response({"reviewer": reviewer})
    answer.delete_cookie(cookie, path="/")
    return answer


# ---------------------------------------------------------------------- another model


@_router.post("/api/refit")
def _start_refit(session: Session, reviewer: Reviewer, forget: bool = False) -> Response:
    session.start_refit(forget=forget)
    return json_response(session.refit_state())


@_router.get("/api/comparison")
def _get_comparison(session: Session, reviewer: Reviewer) -> Response:
    return json_response(session.comparison())


@_router.post("/api/refit/roll-back")
def _roll_back(session: Session, reviewer: Reviewer) -> Response:
    session.roll_back()
    return json_response(session.refit_state())


@_router.post("/api/refit/{wish}")
def _decide_refit(
    session: Session,
    reviewer: Reviewer,
    wish: Annotated[str, Path(pattern="^(keep|drop)$")],
    number: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    {"keep": session.keep, "drop": session.stop_refit}[wish](number)
    return json_response(session.refit_state())
