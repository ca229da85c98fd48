"""The web application: the page, and the requests that it makes. All but the style and the scripts needs a session."""

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Annotated, Final

from fastapi import Depends, FastAPI, Path, Query, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from esad.errors import RequestError
from esad.extras import require
from esad.report.style import COLOURS
from esad.review.access import Access
from esad.review.book import MAX_NAME
from esad.review.desk import Desk
from esad.review.queue import FILTERS
from esad.review.store import MAX_NOTE, MAX_REQUEST
from esad.web.answers import application, json_response
from esad.web.guard import PAGE_POLICY, Guard, Limits

__all__ = ["Invitation", "Note", "Undo", "Verdict", "guarded", "review_app"]

MAX_BODY: Final = 16 << 20  # bytes, of labels to import
MAX_ASKED: Final = 20  # items of one request
_SAME_SITE: Final = ("same-origin", "none")  # "none": typed or opened from elsewhere than a page

Row = Annotated[int, Path(ge=0, le=2**31)]


class Verdict(BaseModel):
    """A key press."""

    request: str = Field(min_length=1, max_length=MAX_REQUEST)
    row: int = Field(ge=0, le=2**31)
    verdict: str = Field(max_length=20)


class Note(BaseModel):
    """What a reviewer writes about a row."""

    request: str = Field(min_length=1, max_length=MAX_REQUEST)
    row: int = Field(ge=0, le=2**31)
    note: str = Field(max_length=MAX_NOTE)


class Undo(BaseModel):
    """Take the last verdict back."""

    request: str = Field(min_length=1, max_length=MAX_REQUEST)


class Invitation(BaseModel):
    """Who shall have a link."""

    name: str = Field(min_length=1, max_length=MAX_NAME)


def guarded(app: FastAPI, *, names: Iterable[str] = ()) -> Guard:
    """The application behind the checks of Host, Origin and sizes, with the page's content security policy."""
    return Guard(app, names=names, policy=PAGE_POLICY, limits=Limits(body_bytes=MAX_BODY))


def review_app(
    desk: Desk, access: Access, *, cookie: str = "esad-review", on_enter: Callable[[str], None] = lambda name: None
) -> FastAPI:
    """The application of one review.

    Parameters
    ----------
    desk : Desk
    access : Access
    cookie : str
        Name of the session's cookie; cookies do not tell ports apart, so two reviews at once need two names.
    on_enter : callable
        Called with the reviewer's name when a link was used.
    """
    app = application("esad review", openapi_url=None)
    require("jinja2", extra="web")
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(loader=PackageLoader("esad.review"), autoescape=True, undefined=StrictUndefined)
    files = resources.files("esad.review") / "static"
    style = COLOURS + (files / "review.css").read_text(encoding="utf-8")
    scripts = {file.name: file.read_text(encoding="utf-8") for file in files.iterdir() if file.name.endswith(".js")}

    def who(request: Request) -> str:
        reviewer = access.reviewer(request.cookies.get(cookie, ""))
        if reviewer is None:
            raise RequestError(401, "This page needs the link that the command line shows.")
        if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
            raise RequestError(403, "Another site's page may not ask here.")
        return reviewer

    Reviewer = Annotated[str, Depends(who)]  # noqa: N806  a type

    @app.get("/")
    def page(request: Request, token: Annotated[str, Query(max_length=200)] = "") -> Response:
        session = access.use(token) if token else None
        reviewer = access.reviewer(session or request.cookies.get(cookie, ""))
        if reviewer is None:
            return HTMLResponse(pages.get_template("refused.html").render(used=bool(token)), 403)
        words = {"title": desk.material.title, "noun": desk.material.noun, "reviewer": reviewer, "filters": FILTERS}
        words["scripts"] = sorted(scripts)
        answer = HTMLResponse(pages.get_template("page.html").render(words))
        if session is not None:
            answer.set_cookie(cookie, session, httponly=True, samesite="strict", path="/")
            on_enter(reviewer)
        return answer

    @app.get("/style.css")
    def styled() -> Response:
        return Response(style, media_type="text/css")

    @app.get("/static/{name}")
    def scripted(name: str) -> Response:
        if name not in scripts:
            raise RequestError(404, f"There is no script {name!r} here.")
        return Response(scripts[name], media_type="text/javascript")

    @app.get("/api/state")
    def state(reviewer: Reviewer) -> Response:
        return json_response(desk.state(reviewer))

    @app.get("/api/next")
    def following(
        reviewer: Reviewer,
        n: Annotated[int, Query(ge=1, le=MAX_ASKED)] = 5,
        have: Annotated[str, Query(max_length=1000, pattern=r"^(\d{1,10}(,\d{1,10})*)?$")] = "",
    ) -> Response:
        return json_response({"items": desk.next_items(reviewer, n, _numbers(have))})

    @app.get("/api/items")
    def items(
        reviewer: Reviewer, rows: Annotated[str, Query(max_length=1000, pattern=r"^\d{1,10}(,\d{1,10})*$")]
    ) -> Response:
        return json_response({"items": desk.items(_numbers(rows)[:MAX_ASKED], reviewer)})

    @app.get("/api/list")
    def listed(
        reviewer: Reviewer,
        name: Annotated[str, Query(max_length=20)] = "next",
        q: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        return json_response(desk.listed(name, reviewer, q.strip()))

    @app.post("/api/judgements")
    def judge(reviewer: Reviewer, said: Verdict) -> Response:
        desk.judge(said.request, said.row, reviewer, said.verdict)
        return json_response({"saved": said.request})

    @app.post("/api/notes")
    def annotate(reviewer: Reviewer, said: Note) -> Response:
        desk.store.annotate(said.request, said.row, reviewer, said.note)
        return json_response({"saved": said.request})

    @app.post("/api/undo")
    def undo(reviewer: Reviewer, said: Undo) -> Response:
        return json_response({"saved": said.request, "row": desk.undo(said.request, reviewer)})

    @app.get("/labels.csv")
    def export(reviewer: Reviewer) -> Response:
        headers = {"content-disposition": 'attachment; filename="labels.csv"'}
        return Response(desk.export_labels(), headers=headers, media_type="text/csv; charset=utf-8")

    @app.post("/api/labels")
    async def imported(reviewer: Reviewer, request: Request) -> Response:
        if request.headers.get("content-type", "").partition(";")[0] != "text/csv":
            raise RequestError(415, "Labels are imported as text/csv.")
        try:
            text = (await request.body()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise RequestError(422, "The labels are not UTF-8 text.") from error
        return json_response({"n_new": desk.import_labels(text, reviewer)})

    @app.post("/api/invitations")
    def invite(reviewer: Reviewer, asked: Invitation) -> Response:
        return json_response({"path": f"/?token={access.new_link(asked.name.strip())}"})

    @app.post("/api/refit")
    def refit(reviewer: Reviewer) -> Response:
        desk.start_refit()
        return json_response(desk.refit_state())

    @app.get("/api/comparison")
    def comparison(reviewer: Reviewer) -> Response:
        return json_response(desk.comparison())

    @app.post("/api/refit/roll-back")
    def roll_back(reviewer: Reviewer) -> Response:
        desk.roll_back()
        return json_response(desk.refit_state())

    @app.post("/api/refit/{wish}")
    def decided(
        reviewer: Reviewer,
        wish: Annotated[str, Path(pattern="^(keep|drop)$")],
        number: Annotated[int | None, Query(ge=1)] = None,
    ) -> Response:
        {"keep": desk.keep, "drop": desk.stop_refit}[wish](number)
        return json_response(desk.refit_state())

    @app.get("/pictures/{generation}/{row}/{kind}.png")
    def picture(
        reviewer: Reviewer, generation: int, row: Row, kind: Annotated[str, Path(pattern="^(given|expected|heat)$")]
    ) -> Response:
        return Response(
            desk.drawing(row, kind), headers={"cache-control": "private, max-age=3600"}, media_type="image/png"
        )

    return app


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []
