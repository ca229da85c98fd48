"""`esad serve`: scores over HTTP."""

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError, OutputError

_WHO, _LIMITS = "Who may ask", "Limits"


@command(
    "esad serve payments.esad",
    "esad serve payments.esad --port 9000 --api-keys keys.txt",
    "esad serve payments.esad --host 0.0.0.0 --host-name scores.example --api-keys keys.txt",
)
def serve(
    model: options.Model,
    host: options.Host = "127.0.0.1",
    port: options.Port = 8000,
    api_keys: Path | None = option(
        None,
        "--api-keys FILE",
        "File with one API key a line, its name, scopes and rate behind it if need be; the variable "
        "ESAD_API_KEYS holds them otherwise.",
        _WHO,
    ),
    rate_limit: float | None = option(
        None, "--rate-limit N", "Requests per second of every API key that has no rate of its own.", _LIMITS
    ),
    host_name: list[str] | None = option(
        None, "--host-name NAME", "Host name that clients use, beside localhost and addresses; may be repeated.", _WHO
    ),
    max_rows: int = option(10_000, "--max-rows N", "Rows or pictures of one request.", _LIMITS, min=1),
    max_body: int = option(16, "--max-body MIB", "Size of one request in MiB.", _LIMITS, min=1, max=1024),
    timeout: float = option(30.0, "--timeout SECONDS", "Time that an answer may take.", _LIMITS),
    watch: bool = option(
        True,
        "--watch/--no-watch",
        "Serve a new model file as soon as it takes the place of the old one; SIGHUP asks for it at any time.",
    ),
    accept_new_columns: bool = option(
        False, "--accept-new-columns", "Serve a new model file also if it takes other columns than the one before."
    ),
    require_signature: bool = option(
        False, "--require-signature", "Serve only model files that are signed by a trusted key; see esad trust."
    ),
    access_log: str | None = option(
        None,
        "--access-log FILE",
        "Append a line of JSON for every answer: request, key, status, rows, milliseconds. - is the terminal.",
    ),
    as_json: options.Json = False,
) -> None:
    """Serve scores over HTTP until stopped by Ctrl-C or SIGTERM.

    Routes: /score and /explain take JSON, CSV, Parquet or pictures; /model, /health, /ready, /metrics (Prometheus),
    /reload, /rollback, /openapi.json. Pages: / to try a row, /docs to read and try the interface. See docs/serve.md.
    """
    if rate_limit is not None and not 0 < rate_limit < float("inf"):
        raise InputError(f"--rate-limit must be a positive number. Got {rate_limit:g}.")
    if not 0 < timeout <= 3600:
        raise InputError(f"--timeout must be a number of seconds up to 3600. Got {timeout:g}.")
    from esad.core.machine import require
    from esad.detectors.model_file import refuse_data

    require("fastapi", extra="web")
    from esad.serve.app import Service, ServiceSettings
    from esad.serve.keys import Keys
    from esad.web import server
    from esad.web.guard import Limits

    refuse_data(model)
    keys = Keys.read(api_keys, os.environ, rate=rate_limit)
    if rate_limit is not None and keys is None:
        raise InputError("--rate-limit is for each API key, and there are none. Give some with --api-keys.")
    n_bytes = max_body * 2**20
    settings = ServiceSettings(
        keys=keys,
        names=tuple(host_name or ()),
        max_rows=max_rows,
        seconds=timeout,
        watch_seconds=2.0 if watch else None,
        accept_new_columns=accept_new_columns,
        require_signature=require_signature,
        limits=Limits(body_bytes=n_bytes, held_bytes=max(16 * n_bytes, 256 * 2**20), requests=512),
    )
    service = Service(model, settings)
    with server.bind(host, port) as listener, _log_accesses(access_log):
        if keys is None and not server.is_local(listener):
            output.warn("anybody who can reach this machine may ask: there are no API keys. Give some with --api-keys.")
        served = service.model_file.current

        def ready() -> None:
            if as_json:
                output.print_json({"url": server.url_of(listener), "model": served.identity()})
                sys.stdout.flush()
                return
            output.say(f"Serving {model} ({served.method}, version {served.version}) at {server.url_of(listener)}")
            output.say("Open the address in a browser to try a row. Ctrl-C stops it.")

        server.run(service.guard, listener, ready=ready, hang_up=service.hang_up, stop_seconds=timeout)
    if not as_json:
        output.say("Stopped.")
    _leave()


@contextlib.contextmanager
def _log_accesses(path: str | None) -> Iterator[None]:
    """Write the log of accesses to a file, or to the terminal beside what is said there."""
    if path is None:
        yield
        return
    from esad.serve.app import ACCESS_LOG

    try:
        handler = logging.StreamHandler() if path == "-" else logging.FileHandler(path, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"Cannot write the access log {path!r}: {error.strerror}.") from error
    handler.setFormatter(logging.Formatter("%(message)s"))
    log = logging.getLogger(ACCESS_LOG)
    log.propagate = False
    log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


def _leave() -> None:
    """End the process now, even if a thread still computes an answer that nobody waits for."""
    workers = [thread for thread in threading.enumerate() if thread.name.startswith("esad-")]
    for thread in workers:
        thread.join(0.5 / len(workers))
    if any(thread.is_alive() for thread in workers):
        sys.stdout.flush()
        os._exit(0)
