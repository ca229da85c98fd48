"""The web application: the page, its style and scripts, which need no session, and what it asks for in `routes`."""

from collections.abc import Callable, Iterable
from importlib import resources
from typing import Annotated, Final

from fastapi import FastAPI, Query, Request
from fastapi.responses import HTMLResponse, Response

from esad.core.extras import require
from esad.errors import RequestError
from esad.report.style import COLOURS
from esad.review.access import Access
from esad.review.desk import Desk
from esad.review.queue import FILTERS
from esad.review.routes import Room, router
from esad.web.answers import application
from esad.web.guard import PAGE_POLICY, Guard, Limits

__all__ = ["guarded", "review_app"]

MAX_BODY: Final = 16 << 20  # bytes, of labels to import


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
    room = app.state.room = Room(desk, access, cookie)
    app.include_router(router)

    @app.get("/")
    def page(request: Request, token: Annotated[str, Query(max_length=200)] = "") -> Response:
        session = access.use(token) if token else None
        reviewer = room.reviewer(request) if session is None else access.reviewer(session)
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

    return app
