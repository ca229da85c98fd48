"""What the page asks for, a function for each request; all of it needs a session."""

from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from esad.errors import RequestError
from esad.review.access import Access
from esad.review.book import MAX_NAME
from esad.review.desk import Desk
from esad.review.store import MAX_NOTE, MAX_REQUEST
from esad.web.answers import json_response

__all__ = ["Invitation", "Note", "Room", "Undo", "Verdict", "router"]

MAX_ASKED: Final = 20  # items of one request
_SAME_SITE: Final = ("same-origin", "none")  # "none": typed or opened from elsewhere than a page

router = APIRouter()


@dataclass(frozen=True)
class Room:
    """One review as the routes see it; the application holds it as `app.state.room`.

    Attributes
    ----------
    desk : Desk
    access : Access
    cookie : str
        Name of the session's cookie.
    """

    desk: Desk
    access: Access
    cookie: str

    def reviewer(self, request: Request) -> str | None:
        """Who asks, by the session's cookie."""
        return self.access.reviewer(request.cookies.get(self.cookie, ""))


async def _room(request: Request) -> Room:
    room: Room = request.app.state.room
    return room


async def _desk(room: Annotated[Room, Depends(_room)]) -> Desk:
    return room.desk


def _reviewer(request: Request, room: Annotated[Room, Depends(_room)]) -> str:
    reviewer = room.reviewer(request)
    if reviewer is None:
        raise RequestError(401, "This page needs the link that the command line shows.")
    if request.headers.get("sec-fetch-site", "none") not in _SAME_SITE:
        raise RequestError(403, "Another site's page may not ask here.")
    return reviewer


AtDesk = Annotated[Desk, Depends(_desk)]
Reviewer = Annotated[str, Depends(_reviewer)]
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


# ---------------------------------------------------------------------- what is shown


@router.get("/api/state")
def _state(desk: AtDesk, reviewer: Reviewer) -> Response:
    return json_response(desk.state(reviewer))


@router.get("/api/next")
def _following(
    desk: AtDesk,
    reviewer: Reviewer,
    n: Annotated[int, Query(ge=1, le=MAX_ASKED)] = 5,
    have: Annotated[str, Query(max_length=1000, pattern=r"^(\d{1,10}(,\d{1,10})*)?$")] = "",
) -> Response:
    return json_response({"items": desk.next_items(reviewer, n, _numbers(have))})


@router.get("/api/items")
def _items(
    desk: AtDesk, reviewer: Reviewer, rows: Annotated[str, Query(max_length=1000, pattern=r"^\d{1,10}(,\d{1,10})*$")]
) -> Response:
    return json_response({"items": desk.items(_numbers(rows)[:MAX_ASKED], reviewer)})


@router.get("/api/list")
def _listed(
    desk: AtDesk,
    reviewer: Reviewer,
    name: Annotated[str, Query(max_length=20)] = "next",
    q: Annotated[str, Query(max_length=200)] = "",
) -> Response:
    return json_response(desk.listed(name, reviewer, q.strip()))


@router.get("/pictures/{generation}/{row}/{kind}.png")
def _picture(
    desk: AtDesk,
    reviewer: Reviewer,
    generation: int,
    row: Row,
    kind: Annotated[str, Path(pattern="^(given|expected|heat)$")],
) -> Response:
    headers = {"cache-control": "private, max-age=3600"}
    return Response(desk.drawing(row, kind), headers=headers, media_type="image/png")


# ---------------------------------------------------------------------- what is said


@router.post("/api/judgements")
def _judge(desk: AtDesk, reviewer: Reviewer, said: Verdict) -> Response:
    desk.judge(said.request, said.row, reviewer, said.verdict)
    return json_response({"saved": said.request})


@router.post("/api/notes")
def _annotate(desk: AtDesk, reviewer: Reviewer, said: Note) -> Response:
    desk.store.annotate(said.request, said.row, reviewer, said.note)
    return json_response({"saved": said.request})


@router.post("/api/undo")
def _undo(desk: AtDesk, reviewer: Reviewer, said: Undo) -> Response:
    return json_response({"saved": said.request, "row": desk.undo(said.request, reviewer)})


@router.get("/labels.csv")
def _export(desk: AtDesk, reviewer: Reviewer) -> Response:
    headers = {"content-disposition": 'attachment; filename="labels.csv"'}
    return Response(desk.export_labels(), headers=headers, media_type="text/csv; charset=utf-8")


@router.post("/api/labels")
async def _import(desk: AtDesk, reviewer: Reviewer, request: Request) -> Response:
    if request.headers.get("content-type", "").partition(";")[0] != "text/csv":
        raise RequestError(415, "Labels are imported as text/csv.")
    try:
        text = (await request.body()).decode("utf-8")
    except UnicodeDecodeError as error:
        raise RequestError(422, "The labels are not UTF-8 text.") from error
    return json_response({"n_new": desk.import_labels(text, reviewer)})


@router.post("/api/invitations")
def _invite(room: Annotated[Room, Depends(_room)], reviewer: Reviewer, asked: Invitation) -> Response:
    return json_response({"path": f"/?token={room.access.new_link(asked.name.strip())}"})


# ---------------------------------------------------------------------- another model


@router.post("/api/refit")
def _refit(desk: AtDesk, reviewer: Reviewer) -> Response:
    desk.start_refit()
    return json_response(desk.refit_state())


@router.get("/api/comparison")
def _comparison(desk: AtDesk, reviewer: Reviewer) -> Response:
    return json_response(desk.comparison())


@router.post("/api/refit/roll-back")
def _roll_back(desk: AtDesk, reviewer: Reviewer) -> Response:
    desk.roll_back()
    return json_response(desk.refit_state())


@router.post("/api/refit/{wish}")
def _decided(
    desk: AtDesk,
    reviewer: Reviewer,
    wish: Annotated[str, Path(pattern="^(keep|drop)$")],
    number: Annotated[int | None, Query(ge=1)] = None,
) -> Response:
    {"keep": desk.keep, "drop": desk.stop_refit}[wish](number)
    return json_response(desk.refit_state())


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")] if text else []
