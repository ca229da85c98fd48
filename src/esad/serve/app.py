"""The routes of the scoring service: /score, /explain, /health, /metrics, /reload, /openapi.json."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query
from pydantic_core import to_json
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from esad.errors import RequestError
from esad.serve import bodies, documents
from esad.serve.batching import Batcher, Scored
from esad.serve.keys import Keys
from esad.serve.metrics import MEDIA_TYPE, Metrics
from esad.serve.model import Models, Outcome, Served
from esad.serve.rows import Rows
from esad.web.answers import application
from esad.web.guard import Guard, Limits

__all__ = ["Service", "Settings"]

T = TypeVar("T")
_INLINE_BYTES = 2**16  # bodies up to this are read at once, others in a thread
_MAX_EXPLAINING = 8  # requests for reasons that may wait
_MAX_NAME = 200


@dataclass(frozen=True)
class Settings:
    """What the service allows.

    Parameters
    ----------
    keys : Keys, optional
        Without any, everybody who can reach the port may ask.
    names : tuple of str
        Host names that the service goes by, beside localhost and addresses.
    max_rows, max_explained : int
        Rows or pictures of one request.
    seconds : float
        That a request may take once it has arrived.
    watch_seconds : float or None
        How often to look for a new model file; None: only when told to.
    limits : Limits
        Of bytes and requests.
    """

    keys: Keys | None = None
    names: tuple[str, ...] = ()
    max_rows: int = 10_000
    max_explained: int = 100
    seconds: float = 30.0
    watch_seconds: float | None = 2.0
    limits: Limits = field(default_factory=lambda: Limits(body_bytes=16 * 2**20))


class Service:
    """A model file served over HTTP.

    Parameters
    ----------
    path : pathlib.Path
        The model file.
    settings : Settings

    Attributes
    ----------
    guard : Guard
        The application, for `esad.web.server.run`.

    Examples
    --------
    >>> import tempfile, httpx, numpy as np
    >>> from esad import IsolationForest
    >>> from esad.web.server import in_background
    >>> X = np.random.default_rng(0).normal(size=(200, 2))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     IsolationForest(random_state=0).fit(X).save(f"{folder}/model.esad")
    ...     with in_background(Service(Path(folder) / "model.esad").guard) as url:
    ...         answer = httpx.post(f"{url}/score", json={"rows": [[0.1, 0.2], [9.0, 9.0]]}).json()
    >>> [row["anomaly"] for row in answer["rows"]]
    [False, True]
    """

    def __init__(self, path: Path, settings: Settings | None = None) -> None:
        self._settings = settings or Settings()
        self.metrics = Metrics()
        self.models = Models(path, self.metrics)
        self._batcher = Batcher(self.metrics)
        self._readers = ThreadPoolExecutor(1, thread_name_prefix="esad-read")
        self._explainers = ThreadPoolExecutor(1, thread_name_prefix="esad-explain")
        self._loaders = ThreadPoolExecutor(1, thread_name_prefix="esad-load")
        self._n_explaining = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        app = application("esad serve", openapi_url=None, lifespan=self._lifespan)
        self._add_routes(app)
        self._app = app
        self.guard = Guard(
            app,
            names=self._settings.names,
            limits=self._settings.limits,
            answered=lambda scope, status, seconds: self.metrics.answered(scope["path"], status, seconds),
        )

    # ------------------------------------------------------------------ routes

    def _add_routes(self, app: FastAPI) -> None:
        refusals = documents.problems(400, 403, 408, 413, 415, 422)

        @app.post("/score", responses={200: {"model": documents.Scores}, **refusals}, response_class=_Json)
        async def score(request: Request) -> Response:
            """Score rows or pictures: the higher, the more anomalous."""
            self._admit(request)
            rows = await self._rows(request, self._settings.max_rows)
            scored = await self._timely(self._batcher.score(rows))
            self.metrics.rows.labels("/score").inc(rows.n_rows)
            return _Json(_scores(rows, scored))

        @app.post("/explain", responses={200: {"model": documents.Explained}, **refusals}, response_class=_Json)
        async def explain(request: Request, top: Annotated[int, Query(ge=1, le=1000)] = 5) -> Response:
            """Say which columns or pixels make the scores, the largest shares first."""
            self._admit(request)
            rows = await self._rows(request, self._settings.max_explained)
            found = await self._timely(self._explained(rows, top))
            self.metrics.rows.labels("/explain").inc(rows.n_rows)
            return _Json(found)

        @app.get("/health", responses={200: {"model": documents.Health}, **documents.problems()}, response_class=_Json)
        async def health() -> Response:
            """Tell that the service answers, with which model, and what is wrong with a newer one; needs no key."""
            served = self.models.current
            takes = served.detector.inputs_.kind
            found = {"status": "ok", "model": served.identity(), "takes": takes, "problem": self.models.problem}
            return _Json(found)

        @app.get("/metrics", responses=documents.problems(), response_class=_Text)
        async def metrics(request: Request) -> Response:
            """Counters for Prometheus."""
            self._admit(request)
            return _Text(self.metrics.text())

        @app.post("/reload", responses={200: {"model": documents.Reloaded}, **refusals}, response_class=_Json)
        async def reload(request: Request) -> Response:
            """Read the model file again; a damaged one is refused, and the model stays. Only for services with keys."""
            if self._settings.keys is None:
                raise RequestError(403, "Without API keys the model cannot be replaced from here. Send SIGHUP instead.")
            self._admit(request)
            if (outcome := await self.reload()) == "failed":
                raise RequestError(422, f"The model stays as it was. {self.models.problem}")
            return _Json({"outcome": outcome, "model": self.models.current.identity()})

        @app.get("/openapi.json", include_in_schema=False)
        async def openapi(request: Request) -> Response:
            self._admit(request)
            return _Json(documents.openapi(self._app, self.models.current, with_keys=self._settings.keys is not None))

    # ------------------------------------------------------------------ the model

    async def reload(self) -> Outcome:
        """Read the model file again, beside the requests under way."""
        return await asyncio.get_running_loop().run_in_executor(self._loaders, self.models.reload)

    def hang_up(self) -> None:
        """Begin a reload; for SIGHUP."""
        task = asyncio.get_running_loop().create_task(self.reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        watcher = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            self._batcher.close()
            for pool in (self._readers, self._explainers, self._loaders):
                pool.shutdown(wait=False, cancel_futures=True)

    async def _watch(self) -> None:
        """Look for a new file now and then."""
        while self._settings.watch_seconds is not None:
            await asyncio.sleep(self._settings.watch_seconds)
            if self.models.changed():
                await self.reload()

    # ------------------------------------------------------------------ requests

    def _admit(self, request: Request) -> None:
        """Refuse who has no key, before anything of the body is read."""
        keys = self._settings.keys
        if keys is None:
            return
        scheme, _, key = request.headers.get("authorization", "").partition(" ")
        if not keys.admit(key.strip() if scheme.casefold() == "bearer" else request.headers.get("x-api-key", "")):
            message = "This needs an API key. Send it as: Authorization: Bearer KEY"
            raise RequestError(401, message, {"www-authenticate": "Bearer"})

    async def _rows(self, request: Request, max_rows: int) -> Rows:
        """What the request asks about, in the form of the model that serves now."""
        served = self.models.current
        media_type, options = _media_type(request)
        taken = bodies.media_types(served.detector.inputs_.kind)
        if media_type not in taken or options.get("charset", "utf-8") not in ("utf-8", "utf8", "us-ascii"):
            raise RequestError(415, f"This model takes bodies of the types {', '.join(taken)}.")
        if media_type == bodies.MULTIPART:
            uploads = await _uploads(request, max_rows)
            return await self._timely(
                self._in(self._readers, lambda: bodies.read_uploads(uploads, served, max_rows=max_rows))
            )
        body = await request.body()
        if media_type == bodies.JSON and len(body) <= _INLINE_BYTES:
            return bodies.read(media_type, body, served, max_rows=max_rows)
        return await self._timely(
            self._in(self._readers, lambda: bodies.read(media_type, body, served, max_rows=max_rows))
        )

    async def _explained(self, rows: Rows, top: int) -> dict[str, Any]:
        if self._n_explaining >= _MAX_EXPLAINING:
            raise RequestError(503, "Too many wait for reasons. Try again in a moment.", {"retry-after": "5"})
        self._n_explaining += 1
        try:
            return await self._in(self._explainers, lambda: _reasons(rows, top))
        finally:
            self._n_explaining -= 1

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)

    async def _timely(self, work: Awaitable[T]) -> T:
        """Wait for work, but not for ever."""
        try:
            async with asyncio.timeout(self._settings.seconds):
                return await work
        except TimeoutError:
            message = f"This took longer than {self._settings.seconds:g} s. Send less at a time, or try again later."
            raise RequestError(503, message, {"retry-after": "5"}) from None


class _Json(JSONResponse):
    """Plain values as JSON."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


class _Text(Response):
    media_type = MEDIA_TYPE


def _media_type(request: Request) -> tuple[str, dict[str, str]]:
    """Type of the body in lower case, and its options."""
    first, *rest = request.headers.get("content-type", "").split(";")
    options = (part.partition("=") for part in rest)
    return first.strip().casefold(), {
        name.strip().casefold(): value.strip().strip('"').casefold() for name, _, value in options
    }


async def _uploads(request: Request, max_rows: int) -> list[tuple[str, bytes]]:
    """Files of a form with their names."""
    try:
        async with request.form(max_files=max_rows, max_fields=16) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            if len(files) < len(form.multi_items()):
                raise RequestError(422, "The form may hold files only.")
            names = (_printable(file.filename or "") or f"file {number}" for number, file in enumerate(files))
            return [(name, await file.read()) for name, file in zip(names, files, strict=True)]
    except HTTPException as error:
        raise RequestError(413 if "Too many" in error.detail else 400, f"The form is refused: {error.detail}") from None


def _printable(name: str) -> str:
    """A name that can do no harm in a log, an answer or a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_MAX_NAME])


def _heads(rows: Rows) -> Iterable[dict[str, Any]]:
    """Number and, where there is one, id of every row."""
    if rows.ids is None:
        return ({"row": number} for number in range(rows.n_rows))
    return ({"row": number, "id": name} for number, name in enumerate(rows.ids))


def _scores(rows: Rows, scored: Scored) -> dict[str, Any]:
    served: Served = rows.served
    threshold = served.detector.threshold_
    scores, flagged = scored.scores.tolist(), (scored.scores > threshold).tolist()
    found = [
        head | {"score": score, "anomaly": alarm}
        for head, score, alarm in zip(_heads(rows), scores, flagged, strict=True)
    ]
    if scored.p_values is not None:
        for row, p_value in zip(found, scored.p_values.tolist(), strict=True):
            row["p_value"] = p_value
    counts = {"n_rows": len(scores), "n_flagged": sum(flagged)}
    return {"model": served.identity(), "threshold": threshold, **counts, "rows": found}


def _reasons(rows: Rows, top: int) -> dict[str, Any]:
    from esad.explain.reasons import Reasons

    detector = rows.served.detector
    threshold, found = detector.threshold_, detector.explain(rows.X)
    answers = [
        head
        | {"score": float(score), "anomaly": bool(score > threshold)}
        | (found.to_json(number, top=top) if isinstance(found, Reasons) else found.to_json(number))
        for number, (head, score) in enumerate(zip(_heads(rows), found.score, strict=True))
    ]
    return {"model": rows.served.identity(), "threshold": threshold, "rows": answers}
