"""The routes of the scoring service: /score, /explain, /model, /health, /ready, /metrics, /reload, /rollback; pages.

The pages, / to try a row and /docs to read and try the interface, say nothing of the model by themselves: their scripts
ask for it as any program does, with the key that the user gives where keys are demanded.
"""

import asyncio
import contextlib
import datetime as dt
import functools
import json
import logging
import math
from collections.abc import AsyncIterator, Callable, Hashable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fastapi import FastAPI, Query
from pydantic_core import to_json
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from esad.errors import RequestError
from esad.report.style import COLOURS
from esad.serve import bodies, documents
from esad.serve.batching import Batcher, RowScores
from esad.serve.bodies import RequestRows
from esad.serve.documents import describe_answers
from esad.serve.fair_queue import FairPlaces, Gate
from esad.serve.keys import Keys
from esad.serve.metrics import MEDIA_TYPE, Metrics
from esad.serve.model import ModelFile, ServedModel
from esad.web.answers import make_application
from esad.web.guard import PAGE_POLICY, Guard, Limits
from esad.web.pages import PageFiles, load_templates, read_files, send_file

ACCESS_LOG = "esad.serve.access"
"""The logger that tells of every answer at level INFO, as a line of JSON."""

T = TypeVar("T")
_ACCESS = logging.getLogger(ACCESS_LOG)
_N_THREADS = 2  # that read bodies
_INLINE_BYTES = 2**16  # JSON up to this is read at once, others in a thread, in turns
_REQUEST_BYTES = 2**18  # what reading a body costs beside its bytes, in bytes
_MAX_NAME = 200


@dataclass(frozen=True)
class ServiceSettings:
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
    accept_new_columns : bool
        Whether a new model file may take other columns than the one that serves.
    require_signature : bool
        Whether model files count only with a signature by a trusted key.
    limits : Limits
        Of bytes and requests.
    """

    keys: Keys | None = None
    names: tuple[str, ...] = ()
    max_rows: int = 10_000
    max_explained: int = 100
    seconds: float = 30.0
    watch_seconds: float | None = 2.0
    accept_new_columns: bool = False
    require_signature: bool = False
    limits: Limits = field(default_factory=lambda: Limits(body_bytes=16 * 2**20, requests=512))


class Service:
    """A model file served over HTTP.

    Parameters
    ----------
    path : pathlib.Path
        The model file.
    settings : ServiceSettings

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

    def __init__(self, path: Path, settings: ServiceSettings | None = None) -> None:
        self._settings = settings or ServiceSettings()
        self.metrics = Metrics()
        self.model_file = ModelFile(
            path,
            self.metrics,
            accept_new_columns=self._settings.accept_new_columns,
            require_signature=self._settings.require_signature,
        )
        max_seconds = 0.8 * self._settings.seconds  # an answer after the time limit would be wasted work
        self._batcher = Batcher(self.metrics, max_seconds=max_seconds)
        self._reading = Gate(_N_THREADS, max_seconds=max_seconds)
        self._explaining = Gate(1, max_seconds=max_seconds)
        self._shares = FairPlaces(self._settings.limits.requests)
        self._bodies = bodies.BodyReader()
        self._readers = ThreadPoolExecutor(_N_THREADS, thread_name_prefix="esad-read")
        self._explainers = ThreadPoolExecutor(1, thread_name_prefix="esad-explain")
        self._loaders = ThreadPoolExecutor(1, thread_name_prefix="esad-load")
        self._tasks: set[asyncio.Task[Any]] = set()
        app = make_application("esad serve", openapi_url=None, lifespan=self._lifespan, default_response_class=_Json)
        self._add_routes(app)
        self.metrics.routes |= {route.path for route in app.routes if isinstance(route, Route)}
        self._app = app
        self.guard = Guard(
            self._dispatch, names=self._settings.names, limits=self._settings.limits, answered=self._count_answer
        )

    # ------------------------------------------------------------------ routes

    async def _dispatch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer /score directly, since FastAPI's layers take longer than scoring; pass on everything else."""
        app: ASGIApp = self._app
        try:
            if scope["type"] == "http" and scope["path"] == "/score" and scope["method"] == "POST":
                scope["app"] = app  # as Starlette's own routes have it
                app = await self._score(Request(scope, receive))
            await app(scope, receive, send)
        finally:
            if scope["type"] == "http" and scope["state"].get("has_place"):
                self._shares.give_back(scope["state"]["key"])

    async def _score(self, request: Request) -> Response:
        """Score rows or pictures: the higher, the more anomalous."""
        async with self._take_rows(request, "score", self._settings.max_rows) as rows:
            scored = await self._batcher.score(rows, caller=_identify_caller(request))
        self.metrics.scored_rows.inc(rows.n_rows)
        return _Json(_score_document(rows, scored))

    def _add_routes(self, app: FastAPI) -> None:
        refusals = (400, 403, 408, 413, 415, 422, 429)
        app.post("/score", responses=describe_answers(documents.Scores, *refusals))(self._score)

        @app.post("/explain", responses=describe_answers(documents.Explained, *refusals))
        async def explain(request: Request, top: Annotated[int, Query(ge=1, le=1000)] = 5) -> Response:
            """Say which columns or pixels make the scores, the largest shares first."""
            async with (
                self._take_rows(request, "explain", self._settings.max_explained) as rows,
                self._explaining.enter(_identify_caller(request), cost=rows.n_rows),
            ):
                found = await self._run_in(self._explainers, lambda: _reason_document(rows, top))
            self.metrics.explained_rows.inc(rows.n_rows)
            return _Json(found)

        @app.get("/model", responses=describe_answers(documents.Description, 429))
        async def model(request: Request) -> Response:
            """Say what the model is: its columns or the size of its pictures, its threshold, what it learned from."""
            self._admit(request, None)
            return _Json(self.model_file.current.description())

        @app.get("/health", responses=describe_answers(documents.Health))
        async def health() -> Response:
            """Tell that the service answers, with which model, and what is wrong with a newer one; needs no key."""
            served = self.model_file.current
            takes = served.detector.inputs_.kind
            found = {"status": "ok", "model": served.identity(), "takes": takes, "problem": self.model_file.problem}
            return _Json(found)

        @app.get("/ready", responses=describe_answers(documents.Ready))
        async def ready() -> Response:
            """Tell whether a request would be answered now: 503 while too many wait or it stops; needs no key."""
            if self._batcher.is_full or self._reading.is_full:
                raise RequestError(503, "Too much is waiting.", {"retry-after": "1"})
            return _Json({"status": "ready"})

        @app.get("/metrics", responses=describe_answers(None, 403, 429), response_class=_Text)
        async def metrics(request: Request) -> Response:
            """Counters for Prometheus."""
            self._admit(request, "metrics")
            return _Text(self.metrics.text())

        @app.post("/reload", responses=describe_answers(documents.Reloaded, *refusals))
        async def reload(request: Request) -> Response:
            """Read the model file again; one that cannot be used is refused, and the model stays. Needs a key."""
            self._admit_owner(request)
            if (outcome := await self._run_in(self._loaders, self.model_file.reload)) == "failed":
                raise RequestError(422, f"The model stays as it was. {self.model_file.problem}")
            return _Json({"outcome": outcome, "model": self.model_file.current.identity()})

        @app.post("/rollback", responses=describe_answers(documents.Reloaded, 403, 409, 429))
        async def rollback(request: Request) -> Response:
            """Serve the model that served before, until the file changes or is read again. Needs a key."""
            self._admit_owner(request)
            await self._run_in(self._loaders, self.model_file.roll_back)
            return _Json({"outcome": "rolled back", "model": self.model_file.current.identity()})

        for path, file in (("/", "index.html"), ("/docs", "docs.html")):
            app.get(path, include_in_schema=False)(functools.partial(_send_page, file))
        app.get("/pages/{file}", include_in_schema=False)(_send_page)

        @app.get("/openapi.json", include_in_schema=False)
        async def openapi(request: Request) -> Response:
            self._admit(request, None)
            return _Json(
                documents.make_openapi(self._app, self.model_file.current, with_keys=self._settings.keys is not None)
            )

    # ------------------------------------------------------------------ the model

    def hang_up(self) -> None:
        """Begin a reload; for SIGHUP."""
        task = asyncio.get_running_loop().create_task(self._run_in(self._loaders, self.model_file.reload))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    @contextlib.asynccontextmanager
    async def _lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        watcher = asyncio.get_running_loop().create_task(self._watch())
        try:
            yield
        finally:
            watcher.cancel()
            self.close()

    def close(self) -> None:
        """End its threads and processes; serving does so at its end."""
        self._batcher.close()
        self._bodies.close()
        for pool in (self._readers, self._explainers, self._loaders):
            pool.shutdown(wait=False, cancel_futures=True)

    async def _watch(self) -> None:
        """Reload the model file at intervals if it has changed."""
        while self._settings.watch_seconds is not None:
            await asyncio.sleep(self._settings.watch_seconds)
            if self.model_file.has_changed():
                await self._run_in(self._loaders, lambda: self.model_file.reload(by_watch=True))

    # ------------------------------------------------------------------ requests

    def _admit(self, request: Request, scope: str | None) -> None:
        """Refuse who has no key for this, before anything of the body is read."""
        keys = self._settings.keys
        if keys is None:
            return
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        given = secret.strip() if scheme.casefold() == "bearer" else request.headers.get("x-api-key", "")
        if (key := keys.find(given)) is None:
            asked = "This needs an API key. Send it as: Authorization: Bearer KEY"
            message = "There is no such API key here." if given else asked
            raise RequestError(401, message, {"www-authenticate": "Bearer"})
        request.state.key = key.name
        if scope is not None and scope not in key.scopes:
            raise RequestError(403, f"This needs a key for {scope!r}. Yours is for {', '.join(sorted(key.scopes))}.")
        if seconds := key.wait_seconds():
            message = f"This key may ask {key.rate:g} times a second. Try again in a moment."
            raise RequestError(429, message, {"retry-after": str(math.ceil(seconds))})
        if not self._shares.take(key.name):
            message = "Too many requests of this key at once. Try again in a moment."
            raise RequestError(503, message, {"retry-after": "1"})
        request.state.has_place = True

    def _admit_owner(self, request: Request) -> None:
        if self._settings.keys is None:
            raise RequestError(403, "Without API keys the model cannot be replaced from here. Send SIGHUP instead.")
        self._admit(request, "reload")

    def _count_answer(self, scope: Scope, status: int, seconds: float) -> None:
        """Count an answer, and write it into the log of accesses."""
        self.metrics.count_answer(scope["path"], status, seconds)
        if _ACCESS.isEnabledFor(logging.INFO):
            state = scope["state"]
            line = {
                "time": dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds"),
                "id": state["request_id"],
                "key": state.get("key"),
                "method": scope["method"],
                "path": scope["path"][:_MAX_NAME],
                "status": status,
                "rows": state.get("n_rows"),
                "ms": round(1000 * seconds, 1),
            }
            _ACCESS.info("%s", json.dumps(line))

    @contextlib.asynccontextmanager
    async def _take_rows(self, request: Request, scope: str, max_rows: int) -> AsyncIterator[RequestRows]:
        """Give the block the rows of a request in the form of the current model, within the time limit."""
        self._admit(request, scope)
        served = self.model_file.current
        media_type, options = _parse_media_type(request)
        taken = bodies.media_types(served.detector.inputs_.kind)
        if media_type not in taken or options.get("charset", "utf-8") not in ("utf-8", "utf8", "us-ascii"):
            raise RequestError(415, f"This model takes bodies of the types {', '.join(taken)}.")
        read: Callable[[], RequestRows]
        if media_type == bodies.MULTIPART:
            uploads = await _read_uploads(request, max_rows)
            n_bytes = sum(len(content) for _, content in uploads)
            read = functools.partial(self._bodies.read_uploads, uploads, served, max_rows=max_rows)
        else:
            body = await _read_body(request)
            n_bytes = len(body)
            read = functools.partial(self._bodies.read, media_type, body, served, max_rows=max_rows)
        try:
            async with asyncio.timeout(self._settings.seconds):
                if media_type == bodies.JSON and n_bytes <= _INLINE_BYTES:
                    rows = read()
                else:
                    async with self._reading.enter(_identify_caller(request), cost=n_bytes + _REQUEST_BYTES):
                        rows = await self._run_in(self._readers, read)
                request.state.n_rows = rows.n_rows
                yield rows
        except TimeoutError:
            message = f"This took longer than {self._settings.seconds:g} s. Send less at a time, or try again later."
            raise RequestError(503, message, {"retry-after": "5"}) from None

    async def _run_in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(pool, work)


class _Json(JSONResponse):
    """Plain values as JSON."""

    def render(self, content: Any) -> bytes:
        return to_json(content)


class _Text(Response):
    media_type = MEDIA_TYPE


@functools.cache
def _read_page_files() -> PageFiles:
    """The pages and what they need."""
    templates = load_templates("esad.serve", "pages")
    pages = {name: (templates.get_template(name).render(), "text/html") for name in ("index.html", "docs.html")}
    return {**read_files("esad.serve", "pages", colours=COLOURS), **pages}


async def _send_page(file: str) -> Response:
    answer = send_file(_read_page_files(), file)
    answer.headers["content-security-policy"] = PAGE_POLICY
    return answer


def _identify_caller(request: Request) -> Hashable:
    """Return who takes turns: the API key where there are keys, otherwise the connection."""
    caller: Hashable = request.scope["state"].get("key") or request.scope["client"]
    return caller


def _parse_media_type(request: Request) -> tuple[str, dict[str, str]]:
    """Type of the body in lower case, and its options."""
    first, *rest = request.headers.get("content-type", "").split(";")
    options = (part.partition("=") for part in rest)
    return first.strip().casefold(), {
        name.strip().casefold(): value.strip().strip('"').casefold() for name, _, value in options
    }


async def _read_body(request: Request) -> bytes:
    """The whole body, from its messages."""
    parts = []
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _read_uploads(request: Request, max_rows: int) -> list[tuple[str, bytes]]:
    """Files of a form with their names."""
    try:
        async with request.form(max_files=max_rows, max_fields=16) as form:
            files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
            if len(files) < len(form.multi_items()):
                raise RequestError(422, "The form may hold files only.")
            names = (_make_printable(file.filename or "") or f"file {number}" for number, file in enumerate(files))
            return [(name, await file.read()) for name, file in zip(names, files, strict=True)]
    except HTTPException as error:
        raise RequestError(413 if "Too many" in error.detail else 400, f"The form is refused: {error.detail}") from None


def _make_printable(name: str) -> str:
    """Return a name that is safe in a log, an answer or a terminal."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:_MAX_NAME])


def _name_rows(rows: RequestRows) -> Iterable[dict[str, Any]]:
    """Number and, where there is one, id of every row."""
    if rows.ids is None:
        return ({"row": number} for number in range(rows.n_rows))
    return ({"row": number, "id": name} for number, name in enumerate(rows.ids))


def _score_document(rows: RequestRows, scored: RowScores) -> dict[str, Any]:
    served: ServedModel = rows.served
    threshold = served.detector.threshold_
    all_scores, p_values = scored
    scores, flagged = all_scores.tolist(), (all_scores > threshold).tolist()
    found = [
        head | {"score": score, "anomaly": alarm}
        for head, score, alarm in zip(_name_rows(rows), scores, flagged, strict=True)
    ]
    if p_values is not None:
        for row, p_value in zip(found, p_values.tolist(), strict=True):
            row["p_value"] = p_value
    counts = {"n_rows": len(scores), "n_flagged": sum(flagged)}
    return {"model": served.identity(), "threshold": threshold, **counts, "rows": found}


def _reason_document(rows: RequestRows, top: int) -> dict[str, Any]:
    from esad.explain.reasons import Reasons

    detector = rows.served.detector
    threshold, found = detector.threshold_, detector.explain(rows.X)
    answers = [
        head
        | {"score": float(score), "anomaly": bool(score > threshold)}
        | (found.to_json(number, top=top) if isinstance(found, Reasons) else found.to_json(number))
        for number, (head, score) in enumerate(zip(_name_rows(rows), found.score, strict=True))
    ]
    return {"model": rows.served.identity(), "threshold": threshold, "rows": answers}
