"""A small web server that can be told to misbehave."""

import contextlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Site:
    """Serves `files`, {path: content}, on this machine.

    `cuts` says of the coming answers after how many bytes the connection breaks; `statuses` which error each is;
    `redirects` leads from a path to another address. `asked` keeps paths and wanted ranges.
    """

    def __init__(self):
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.statuses: list[int] = []
        self.cuts: list[int] = []
        self.has_ranges = True
        self.shift = 0  # how far beside the asked place a range begins
        self.delay = 0.0
        self.asked: list[tuple[str, str | None]] = []

    def __enter__(self):
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                with contextlib.suppress(ConnectionError):  # the other side has hung up
                    site.answer(self)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{path}"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, wanted = handler.path.lstrip("/"), handler.headers.get("Range")
        self.asked.append((path, wanted))
        time.sleep(self.delay)
        if self.statuses:
            return handler.send_error(self.statuses.pop(0))
        if path in self.redirects:
            handler.send_response(302)
            handler.send_header("Location", self.redirects[path])
            return handler.end_headers()
        if path not in self.files:
            return handler.send_error(404)
        content, start = self.files[path], 0
        if wanted and self.has_ranges:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            if start >= len(content):
                return handler.send_error(416)
            start += self.shift
        handler.send_response(206 if wanted and self.has_ranges else 200)
        if wanted and self.has_ranges:
            handler.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        handler.send_header("Content-Length", str(len(content) - start))
        handler.end_headers()
        rest = content[start:]
        handler.wfile.write(rest[: self.cuts.pop(0)] if self.cuts else rest)
        handler.close_connection = True
