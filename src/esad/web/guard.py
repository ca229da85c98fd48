"""The outermost layer of a web application: who may ask, how much, and what every answer carries.

Refused here, before anything of the application runs: names of this machine that an attacker's page could point here
(DNS rebinding), requests that another site's page sends, compressed bodies, bodies that are too large or too slow,
more requests than can be held, and everything new once the server is told to stop.
"""

import asyncio
import contextlib
import ipaddress
import itertools
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from esad.errors import RequestError
from esad.web.answers import MAX_SHOWN, describe_error

_NOTHING = "default-src 'none'; base-uri 'none'; frame-ancestors 'none'"
API_POLICY = f"{_NOTHING}; form-action 'none'"
PAGE_POLICY = (
    f"{_NOTHING}; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'"
)
_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_MAX_KNOWN_HOSTS = 16  # Host headers that were found right before
_DISCARD_SECONDS = 2.0  # to read the rest of a refused body, so that the client sees the answer and not a reset


def headers_of(policy: str) -> tuple[tuple[bytes, bytes], ...]:
    """Return the headers of every answer, with the content security policy."""
    return (
        (b"content-security-policy", policy.encode("ascii")),
        (b"x-content-type-options", b"nosniff"),
        (b"x-frame-options", b"DENY"),
        (b"referrer-policy", b"no-referrer"),
        (b"cross-origin-opener-policy", b"same-origin"),
        (b"cross-origin-resource-policy", b"same-origin"),
        (b"cache-control", b"no-store"),
    )


@dataclass(frozen=True)
class Limits:
    """How much may be asked.

    Parameters
    ----------
    body_bytes : int
        Of one request.
    held_bytes : int
        Of all requests at one time.
    requests : int
        At one time.
    body_seconds : float
        Until a request has arrived.
    """

    body_bytes: int = 32 * 2**20
    held_bytes: int = 256 * 2**20
    requests: int = 256
    body_seconds: float = 30.0


class Guard:
    """An ASGI application around another one.

    Parameters
    ----------
    app : ASGI application
    names : iterable of str
        Host names, beside localhost and addresses in digits, under which the server may be asked.
    policy : str
        Content security policy of answers that do not bring their own.
    limits : Limits
    answered : callable, optional
        Told scope, status and seconds of every answer; `scope["state"]["request_id"]` names it, as its header
        X-Request-ID does.

    Attributes
    ----------
    stopping : bool
        Set it to refuse new requests; those under way are answered.
    n_active : int
        Requests under way.
    last_request : float
        When the latest began, by `time.monotonic`.

    Examples
    --------
    >>> import httpx
    >>> from esad.web.answers import make_application
    >>> from esad.web.server import in_background
    >>> with in_background(Guard(make_application("example"))) as url:
    ...     httpx.get(url, headers={"host": "evil.example"}).status_code
    421
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        names: Iterable[str] = (),
        policy: str = API_POLICY,
        limits: Limits | None = None,
        answered: Callable[[Scope, int, float], None] | None = None,
    ) -> None:
        self.app = app
        self.limits = limits or Limits()
        self.stopping = False
        self.n_active = 0
        self.last_request = 0.0
        self._names = {"localhost", *(name.casefold() for name in names)}
        self._headers = headers_of(policy)
        self._known_hosts: set[bytes] = set()
        self._n_held = 0
        self._answered = answered
        self._process, self._numbers = secrets.token_hex(4), itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or run the application's start and end."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        state = scope.setdefault("state", {})
        connection = state.get("connection")  # of `esad.web.server`
        if connection is not None:
            connection.request_began()
        try:
            await self._answer(scope, state, receive, send, connection)
        finally:
            if connection is not None:
                connection.request_ended()

    async def _answer(self, scope: Scope, state: dict[str, Any], receive: Receive, send: Send, connection: Any) -> None:
        status = 0
        headers: dict[bytes, bytes] = dict(scope["headers"])
        state["request_id"] = request_id = self._request_id(headers)
        body = _Body(self, receive, headers, lambda: None if connection is None else connection.body_arrived())

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                own = [*message.get("headers", ()), (b"x-request-id", request_id.encode("ascii"))]
                brought = {name for name, _ in own}
                own += [header for header in self._headers if header[0] not in brought]
                if self.stopping or not body.complete:
                    own.append((b"connection", b"close"))
                message = {**message, "headers": own}
            await send(message)

        began = self.last_request = time.monotonic()
        self.n_active += 1
        try:
            self._check(scope, headers)
            await self.app(scope, body.receive, send_with_headers)
        except Exception as error:
            if not status:
                if not body.complete and b"expect" not in headers:
                    await body.discard()
                await describe_error(error, where=f"{scope['method']} {scope['path'][:MAX_SHOWN]}")(
                    scope, receive, send_with_headers
                )
        finally:
            self.n_active -= 1
            self._n_held -= body.n_bytes
            if status and self._answered is not None:
                self._answered(scope, status, time.monotonic() - began)

    def _request_id(self, headers: Mapping[bytes, bytes]) -> str:
        """Return the request id that the client sent, or a new unique one."""
        given = headers.get(b"x-request-id", b"")
        if _REQUEST_ID.fullmatch(given):
            return given.decode("ascii")
        return f"{self._process}-{next(self._numbers)}"

    def _check(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        """Refuse a request by its headers, before the body is read."""
        if self.stopping:
            raise RequestError(503, "This server is stopping. Try again later.", {"retry-after": "1"})
        host = headers.get(b"host", b"")
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # a proxy may have looked at the other one
            raise RequestError(400, "A request has one Host header.")
        if host not in self._known_hosts and not self._is_ours(host.decode("latin-1")):
            raise RequestError(
                421,
                f"This server does not go by the name {_quote(host)}. Allow the name when you start it, or use "
                "localhost.",
            )
        if len(self._known_hosts) < _MAX_KNOWN_HOSTS:
            self._known_hosts.add(host)
        origin = headers.get(b"origin")
        if origin is not None and scope["method"] not in _SAFE_METHODS and _netloc(origin) != host.lower():
            raise RequestError(403, f"A page of {_quote(origin)} may not ask here.")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise RequestError(415, "Compressed bodies are refused. Send the content as it is.")
        if b"content-length" in headers and b"transfer-encoding" in headers:  # a proxy may see another end of the body
            raise RequestError(400, "A request may state its length or come in chunks, not both.")
        if self.n_active > self.limits.requests:
            raise RequestError(503, "Too many requests at once. Try again in a moment.", {"retry-after": "1"})
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:19]) > self.limits.body_bytes:
            raise self.too_large_error()

    def _is_ours(self, host: str) -> bool:
        """Whether a Host header is an IP address, which cannot be rebound by DNS, or one of the allowed names."""
        with contextlib.suppress(ValueError):
            parts = urlsplit(f"//{host}")
            name = (parts.hostname or "").rstrip(".")
            if parts.netloc != host or "@" in host or (parts.port is None and host.endswith(":")):
                return False
            if name in self._names:
                return True
            ipaddress.ip_address(name)
            return True
        return False

    def hold(self, n_bytes: int) -> None:
        """Count bytes of a body that is being read."""
        self._n_held += n_bytes
        if self._n_held > self.limits.held_bytes:
            raise RequestError(503, "Too much is being sent at once. Try again in a moment.", {"retry-after": "1"})

    def too_large_error(self) -> RequestError:
        """Return the error for a body that is too large."""
        limit = f"{self.limits.body_bytes / 2**20:g} MiB"
        return RequestError(413, f"The body of a request may have {limit}. Send less at a time.")


class _Body:
    """The body of one request, counted as it arrives."""

    def __init__(
        self, guard: Guard, receive: Receive, headers: Mapping[bytes, bytes], on_complete: Callable[[], None]
    ) -> None:
        self._guard, self._receive, self._on_complete = guard, receive, on_complete
        self._deadline: float | None = None
        self.n_bytes = 0
        self.complete = headers.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in headers
        if self.complete:
            on_complete()

    async def receive(self) -> Message:
        """The next part; too much or too late is refused."""
        if self.complete:
            return await self._receive()
        if self._deadline is None:
            self._deadline = asyncio.get_running_loop().time() + self._guard.limits.body_seconds
        try:
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            seconds = self._guard.limits.body_seconds
            raise RequestError(408, f"The request did not arrive within {seconds:g} s.") from None
        self._count(message)
        if self.n_bytes > self._guard.limits.body_bytes:
            raise self._guard.too_large_error()
        return message

    def _count(self, message: Message) -> None:
        n_bytes = len(message.get("body", b""))
        self.n_bytes += n_bytes
        self.complete = not message.get("more_body", False)
        if self.complete:
            self._on_complete()
        self._guard.hold(n_bytes)

    async def discard(self) -> None:
        """Read on for a moment without keeping anything."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DISCARD_SECONDS):
                while not self.complete:
                    self.complete = not (await self._receive()).get("more_body", False)


def _netloc(origin: bytes) -> bytes:
    """Host and port of an origin; nothing for "null" and what is malformed."""
    try:
        return urlsplit(origin.lower()).netloc
    except ValueError:
        return b""


def _quote(header: bytes) -> str:
    return repr(header[:MAX_SHOWN].decode("latin-1"))
