"""A web server for this machine: one listening socket, an orderly stop, and time limits for slow clients."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from esad.errors import InputError
from esad.web.answers import error_document, json_response
from esad.web.guard import API_POLICY, Guard, headers_of

LOCALHOST = "127.0.0.1"
_BACKLOG = 1024
_MAX_CONNECTIONS = 1000
_HEADER_SECONDS = 10.0  # until the head of a request has arrived
_MAX_HEAD_BYTES = 2**16
_KEEP_ALIVE_SECONDS = 30
_OBJECTS = 50_000  # made between two looks for garbage
_QUIET_SECONDS = 0.3  # without a new request, before connections that are kept open are closed


def bind(host: str = LOCALHOST, port: int = 0) -> socket.socket:
    """Listen at an address, or say why that cannot be.

    Parameters
    ----------
    host : str
        Name or address of an interface of this machine.
    port : int
        0 takes any free one.

    Examples
    --------
    >>> listener = bind()
    >>> bind(port=listener.getsockname()[1])
    Traceback (most recent call last):
        ...
    esad.errors.InputError: Cannot serve at 127.0.0.1, port ...: another program is using it. Choose another port, ...
    >>> listener.close()
    """
    if not 0 <= port <= 65535:
        raise InputError(f"A port is a number from 0 (any free one) to 65535. Got {port}.")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        raise InputError(f"Cannot serve at {host!r}: no such address. Try {LOCALHOST} or 0.0.0.0.") from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(f"Cannot serve at {host}, port {port}: {_reason(error)}") from error
    return listener


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "another program is using it. Choose another port, or 0 for any free one."
    if error.errno == errno.EACCES:
        return "ports below 1024 are kept for the system. Choose another port."
    if error.errno == errno.EADDRNOTAVAIL:
        return "this machine has no such address."
    return f"{os.strerror(error.errno or 0)}."


def url_of(listener: socket.socket) -> str:
    """The address to type into a browser or a client."""
    host, port = listener.getsockname()[:2]
    shown = {"0.0.0.0": LOCALHOST, "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{shown}:{port}"


def is_local(listener: socket.socket) -> bool:
    """Whether only programs of this machine can reach it."""
    host = str(listener.getsockname()[0])
    return host.startswith("127.") or host == "::1"


def run(
    guard: Guard,
    listener: socket.socket,
    *,
    ready: Callable[[], None] | None = None,
    hang_up: Callable[[], None] | None = None,
    stop_seconds: float = 30.0,
) -> None:
    """Serve until told to stop by SIGTERM or Ctrl-C.

    At the stop, requests under way are answered, new connections refused, and what comes on connections that are open
    is answered with 503, so that nobody's request is cut off. A second Ctrl-C does not wait.

    Parameters
    ----------
    guard : Guard
        The application.
    listener : socket
        As `bind` gives it; closed at the end.
    ready : callable, optional
        Called when the first request can be answered.
    hang_up : callable, optional
        Called in the loop's thread on SIGHUP, unless that comes from a terminal being closed: that is a stop.
    stop_seconds : float
        How long requests under way may take after the stop.
    """
    with contextlib.closing(listener), _collect_rarely():
        _Server(guard, ready=ready, hang_up=hang_up, stop_seconds=stop_seconds).run(sockets=[listener])


@contextlib.contextmanager
def _collect_rarely() -> Iterator[None]:
    """Run the garbage collector rarely: request bodies become many objects, and none of them needs it."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextlib.contextmanager
def in_background(guard: Guard, listener: socket.socket | None = None) -> Iterator[str]:
    """Serve from a thread of this process while the block runs, which is given the address.

    Examples
    --------
    >>> import httpx
    >>> from esad.web.answers import make_application
    >>> with in_background(Guard(make_application("example"))) as url:
    ...     httpx.get(f"{url}/nothing").json()
    {'error': {'status': 404, 'code': 'not_found', 'message': "There is no '/nothing' here."}}
    """
    listener = listener or bind()
    started = threading.Event()
    server = _Server(guard, ready=started.set)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
    thread.start()
    try:
        while not started.wait(0.05):
            if not thread.is_alive():
                raise RuntimeError("The server did not start.")
        yield url_of(listener)
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


class _Server(uvicorn.Server):
    """uvicorn with an orderly stop: open requests are answered first, within a time limit."""

    def __init__(
        self,
        guard: Guard,
        *,
        ready: Callable[[], None] | None = None,
        hang_up: Callable[[], None] | None = None,
        stop_seconds: float = 30.0,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                guard,
                http=_Connection,
                ws="none",
                loop="asyncio",
                lifespan="on",
                log_config=None,
                log_level="critical",  # the application logs for itself
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=_BACKLOG,
                timeout_keep_alive=_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=max(1, round(stop_seconds)),
            )
        )
        self._guard, self._ready, self._hang_up = guard, ready, hang_up
        self._stop_seconds = stop_seconds

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        if self.started and self._ready is not None:
            self._ready()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, answer what comes on those there are, then close them."""
        self._guard.stopping = True
        began = self._guard.last_request = time.monotonic()
        for listener in sockets or []:
            _refuse_queued(listener)
        for server in self.servers:
            server.close()
        while not self.force_exit and time.monotonic() - began < self._stop_seconds:
            await asyncio.sleep(0.02)
            if not self._guard.n_active and time.monotonic() - self._guard.last_request > _QUIET_SECONDS:
                break
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take the signals for the time of serving, in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]]
        handlers = {signal.SIGINT: self.handle_exit, signal.SIGTERM: self.handle_exit}
        if self._hang_up is not None and hasattr(signal, "SIGHUP"):
            handlers[signal.SIGHUP] = self._on_hangup
        before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
        self._loop = asyncio.get_running_loop()
        self._had_terminal = _has_terminal()
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_hangup(self, number: int, frame: FrameType | None) -> None:
        """SIGHUP: from somebody who wants a reload, or because the terminal was closed, which is a stop."""
        assert self._hang_up is not None
        if self._had_terminal and not _has_terminal():
            self.should_exit = True
        else:
            self._loop.call_soon_threadsafe(self._hang_up)


def _refuse_queued(listener: socket.socket) -> None:
    """Refuse the connections that wait at a socket about to close; the system would cut them off without a word."""
    refusal = _make_refusal(503, "This server is stopping. Try again later.")
    with contextlib.suppress(OSError):  # nobody left
        while True:
            with listener.accept()[0] as connection, contextlib.suppress(OSError):  # gone already
                connection.setblocking(False)
                connection.sendall(refusal)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(_MAX_HEAD_BYTES)  # what is not read would reset the connection


def _has_terminal() -> bool:
    """Whether the process has a terminal that is still open."""
    try:
        return os.isatty(0)
    except OSError:
        return False


class _Connection(HttpToolsProtocol):
    """One connection, watched from outside: by what asyncio tells a protocol, and by what the guard tells of requests.

    uvicorn has no option for the time that the head of a request may take, nor for its size.
    """

    def __init__(self, config: Any, server_state: Any, app_state: dict[str, Any], **rest: Any) -> None:
        super().__init__(config, server_state, app_state | {"connection": self}, **rest)
        self._timer: asyncio.TimerHandle | None = None
        self._n_requests = 0  # under way
        self._n_head = 0  # bytes received since the last request that are not yet a request
        self._is_whole = False  # the request has come to its end
        self._is_over = False  # the other side sends no more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start to wait for a request, and refuse the connection if there are too many."""
        super().connection_made(_OneWrite(transport, self.loop))
        if len(self.connections) > _MAX_CONNECTIONS:
            self._refuse(503, "Too many connections. Try again in a moment.")
        else:
            self._wait(_HEADER_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Take received bytes; refuse a request head that is too long or takes too long."""
        if not self._n_requests:
            if self._n_head > _MAX_HEAD_BYTES:
                self._refuse(431, f"The head of a request may have {_MAX_HEAD_BYTES:,} bytes.")
                return
            if not self._n_head:
                self._wait(_HEADER_SECONDS)
            self._n_head += len(data)
        super().data_received(data)

    def eof_received(self) -> bool:  # type: ignore[override]  # uvicorn closes at once
        """Answer what was asked whole before the other side stopped sending; a request begins a turn after its head."""
        self._is_over = True
        self.loop.call_soon(self._close_unless_asked)
        return True

    def _close_unless_asked(self) -> None:
        if self._n_requests and self._is_whole:
            return
        if self._n_head and not self._n_requests:
            self._refuse(400, "The request was cut off.")
        self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer of the connection."""
        self._wait(None)
        super().connection_lost(exc)

    def request_began(self) -> None:
        """Note that the head of a request is complete; called by the guard."""
        self._n_requests += 1
        self._n_head = 0
        self._wait(None)

    def body_arrived(self) -> None:
        """Note that the body of a request is complete; called by the guard."""
        self._is_whole = True

    def request_ended(self) -> None:
        """Note that a request is answered; called by the guard."""
        self._n_requests -= 1
        self._is_whole = False
        self._wait(_KEEP_ALIVE_SECONDS)
        if self._is_over:
            self.transport.close()

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP."""
        self._refuse(400, msg)

    def _wait(self, seconds: float | None) -> None:
        """Set the time limit for the next request; None for no limit."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        if self.transport.get_write_buffer_size():  # the other side does not take its answer
            self.transport.abort()
        elif self._n_head or not self.transport.is_closing():
            self._refuse(408, f"The request did not arrive within {_HEADER_SECONDS:g} s.")

    def _refuse(self, status: int, message: str) -> None:
        """Answer without the application and close."""
        if not self.transport.is_closing():
            if not self._n_requests:
                self.transport.write(_make_refusal(status, message))
            self.transport.close()


class _OneWrite(asyncio.Transport):
    """A transport that joins what is written in one turn of the event loop, such as head and body, into one send.

    Every system call lets another thread have the interpreter, which may keep it for milliseconds.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        for name in ("abort", "get_extra_info", "is_closing", "pause_reading", "resume_reading", "set_protocol"):
            setattr(self, name, getattr(transport, name))

    def write(self, data: Any) -> None:
        """Keep it until the end of this turn."""
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    def close(self) -> None:
        """Send what is there, and close."""
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes are not sent yet."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._parts))

    def _flush(self) -> None:
        parts, self._parts = self._parts, []
        if parts:
            self._transport.write(b"".join(parts))


def _make_refusal(status: int, message: str) -> bytes:
    """An answer to what never reaches the application."""
    answer = json_response(error_document(status, message))
    headers = [*answer.raw_headers, *headers_of(API_POLICY), (b"connection", b"close")]
    headers += [(b"retry-after", b"1")] if status == HTTPStatus.SERVICE_UNAVAILABLE else []
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode(), *(b": ".join(header) for header in headers)]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])
