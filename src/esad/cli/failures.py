"""Turns failures into one line on stderr and an exit code; only a defect of esad shows a traceback.

Ctrl-C, a request to end and the loss of one of several processes are failures too.
"""

import io
import logging
import os
import re
import signal
import sys
import traceback
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stderr, redirect_stdout, suppress
from difflib import get_close_matches
from pathlib import Path
from types import FrameType
from typing import Any

import typer

from esad.cli import output
from esad.core.atomic import DISK_FULL, stamp_of
from esad.errors import EsadError, LabelWarning, TrainingError

# The base of typer's usage errors; typer moved it between packages, BadParameter stayed where it is.
_USAGE_ERROR: type[Any] = typer.BadParameter.__mro__[1]

WAIT_FOR_IMPORTS = 0.05  # seconds, over and over


class _Ended(KeyboardInterrupt):
    """A signal to end, handled like Ctrl-C, so that no half-written file stays."""


class Results:
    """The files that a command is to write; after an interruption it can tell which of them were written."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._before = {path: stamp_of(path) for path in paths}

    def find_written(self) -> list[str]:
        """Return the files that were created or changed since the command began."""
        return [str(path) for path, before in self._before.items() if stamp_of(path) not in (None, before)]

    def describe(self) -> str:
        """Say in words which files were written and which were not."""
        written = self.find_written()
        if not written:
            return "no result was written."
        missing = [str(path) for path in self._before if str(path) not in written]
        rest = f", {output.list_text(missing)} not" if missing else ""
        return f"{output.list_text(written)} had been written{rest}."


class OneOfSeveral(Exception):  # noqa: N818  carries what went wrong as its cause
    """A failure in one of several processes that train together; only one of them prints it."""

    def __init__(self, *, speaks: bool) -> None:
        super().__init__()
        self.speaks = speaks


def is_alone() -> bool:
    """Whether no launcher has started several processes."""
    return int(os.environ.get("WORLD_SIZE", "1")) == 1


@contextmanager
def join_processes() -> Iterator[None]:
    """Join the other processes that a launcher has started, if any; a failure in several of them is printed once."""
    if is_alone():
        yield
        return
    from esad.core.processes import join

    with join() as processes:
        try:
            with processes.explain_lost_processes():
                yield
        except (EsadError, OSError, output.Interrupted) as error:
            raise OneOfSeveral(speaks=processes.is_first_to_fail()) from error


def is_first() -> bool:
    """Whether this process was started alone, or is the first of several."""
    return os.environ.get("RANK", "0") == "0"


@contextmanager
def silent_unless_first() -> Iterator[None]:
    """Hide all output of the block unless this process is the first of several."""
    if is_first():
        yield
        return
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        yield


def report_failure(error: BaseException) -> int:
    """Print in one line what went wrong and return the exit code; an error that is a bug of esad is raised again."""
    if isinstance(error, OneOfSeveral) and error.__cause__ is not None:
        speaks, error = error.speaks, error.__cause__
    else:
        speaks = is_alone() or _is_first_to_fail()
    with nullcontext() if speaks else redirect_stderr(io.StringIO()):
        return _print_failure(error)


def _is_first_to_fail() -> bool:
    """Whether this process was the first to fail of several that are not joined yet."""
    from esad.core.processes import find_processes

    return find_processes().is_first_to_fail()


def _print_failure(error: BaseException) -> int:
    if isinstance(error, output.Interrupted | KeyboardInterrupt):
        output.tell_interrupted(str(error) or "no result was written.")
        return 143 if isinstance(error.__cause__, _Ended) or isinstance(error, _Ended) else 130
    if isinstance(error, EsadError):
        output.fail(str(error))
        return 1 if isinstance(error, TrainingError) else 2
    if isinstance(error, _USAGE_ERROR):
        output.fail(_describe_usage_error(error))
        return 2
    if isinstance(error, BrokenPipeError):  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError):
        reason = os.strerror(error.errno) if error.errno else str(error)
        advice = " Free some space and try again." if error.errno in DISK_FULL else ""
        output.fail(f"{error.filename or 'The system'}: {reason}.{advice}")
        return 1
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "allocate" in str(error)):  # torch's
        output.fail("There is not enough memory for this. Give fewer rows or columns.")
        return 1
    raise error


def _describe_usage_error(error: Any) -> str:
    """Say what was typed wrong, which option is nearest, and where to find help."""
    possible: list[str] = getattr(error, "possibilities", None) or []  # which typer would list
    message = str(error.message if possible else error.format_message()).strip()
    message = message if message.endswith(("?", ".")) else f"{message}."
    typed = getattr(error, "option_name", None) or ""
    near = [option for option in possible if typed.startswith(option)] or get_close_matches(typed, possible, n=1)
    if near:
        message += f" Did you mean {near[0]}?"
    if (unknown := re.fullmatch("No such command '(.*)'.", message)) and error.ctx is not None:
        message += output.hint(unknown[1], getattr(error.ctx.command, "commands", {}))
    path = error.ctx.command_path if error.ctx is not None else "esad"
    return f"{message} See: {path} --help"


@contextmanager
def raise_on_signals() -> Iterator[None]:
    """Turn requests to end (Ctrl-C, SIGTERM, a closed terminal) into exceptions, so that temporary files are removed.

    One that comes while another package is imported waits: an exception in compiled code can abort the process.
    """
    asked: list[type[KeyboardInterrupt]] = []

    def end(number: int, frame: FrameType | None) -> None:
        asked.append(KeyboardInterrupt if number == signal.SIGINT else _Ended)
        look_again(number, frame)

    def look_again(number: int, frame: FrameType | None) -> None:
        if not hasattr(signal, "setitimer") or not _is_importing():
            raise asked[-1]
        if signal.SIGALRM not in before:
            before[signal.SIGALRM] = signal.signal(signal.SIGALRM, look_again)
        signal.setitimer(signal.ITIMER_REAL, WAIT_FOR_IMPORTS)

    before: dict[int, Any] = {}
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        try:
            # a signal that is ignored, as under nohup, stays ignored
            if number is not None and signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                before[number] = signal.signal(number, end)
        except ValueError:  # not the main thread: somebody else handles signals
            break
    try:
        yield
    finally:
        if hasattr(signal, "SIGALRM") and signal.SIGALRM in before:
            signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def _is_importing() -> bool:
    """Whether another package is being imported just now: interrupting compiled code while it starts can crash."""
    others = [module for name, module in tuple(sys.modules.items()) if not name.startswith("esad")]
    return any(getattr(getattr(module, "__spec__", None), "_initializing", False) for module in others)


@contextmanager
def show_warnings_as_lines() -> Iterator[None]:
    """Show each warning once, as one line without file names; the library's log lines become notes."""
    shown = set()

    def show(message: Warning | str, *args: Any, **kwargs: Any) -> None:
        text = str(message)
        if text not in shown:
            shown.add(text)
            output.warn(text)

    logger, handler = logging.getLogger("esad"), _LogLines()
    logger.addHandler(handler)
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
                warnings.simplefilter("default", UserWarning)
                # labels are words and blanks here, and commands speak of them as such
                warnings.simplefilter("ignore", LabelWarning)
            warnings.showwarning = show
            yield
    finally:
        logger.removeHandler(handler)


class _LogLines(logging.Handler):
    """The library's log as notes on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        tell = output.warn if record.levelno >= logging.ERROR else output.note
        with suppress(OSError):  # whoever would read it is gone
            tell(record.getMessage())
            if record.exc_info:  # a defect of ours
                traceback.print_exception(*record.exc_info)
