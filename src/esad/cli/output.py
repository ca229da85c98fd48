"""Where words, tables, JSON and progress go, and how the library's parameters are named as options."""

import ast
import io
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.core.atomic import check_writable, refuse_same_file
from esad.core.text import count_text, hint, list_text, percent, size_text
from esad.errors import OutputError
from esad.train.callbacks import TrainingBar

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

    from esad.io.checks import OnProgress, Remark

__all__ = [
    "Interrupted",
    "TrainingBar",
    "answer",
    "bar",
    "check_model_out",
    "checkpoint_path",
    "count_text",
    "fail",
    "hint",
    "in_options",
    "list_text",
    "note",
    "one_line",
    "percent",
    "print_json",
    "printable",
    "remark",
    "say",
    "show_pairs",
    "show_table",
    "size_text",
    "stages",
    "tell_interrupted",
    "time_left",
    "warn",
]

_FIRST_LINE, _LAST_LINE = 10.0, 60.0  # seconds before the first line about progress, and at most between two of them
_MAX_ROWS = 30  # of a table that says what its rows are
_WIDE = 240  # columns when nobody's terminal limits them: tables in files are not cut
_OPTIONS = {  # parameters of the library that are options here, some by another name
    **{
        name: f"--{name.replace('_', '-')}"
        for name in (
            *("alpha", "anomaly_value", "calibration_ratio", "cases", "contamination", "cross_calibration"),
            *("date_format", "decimal", "device", "encoding", "fdr", "id_column", "ignore", "kind_column"),
            *("label_column", "labels_csv", "n", "normal_class", "normal_value", "out", "pollution_ratio", "resize"),
            *("sheet", "skip_broken", "test_out", "test_size", "text", "truth_column", "unlabelled_value", "with_data"),
        )
    },
    "from_labels": "--threshold-from-labels",
    "n_labels": "--labels",
    "n_members": "--members",
    "seen_kinds": "--seen-kind",
}
_NO_MODELS = (  # a slip must not replace another file, nor a model pass for one
    *(".csv", ".tsv", ".parquet", ".pq", ".gz", ".json", ".npz", ".xlsx", ".html", ".txt"),
    *(".pkl", ".pickle", ".joblib", ".pt", ".pth", ".pt2", ".onnx", ".safetensors", ".h5", ".zip"),
)


class Interrupted(Exception):  # noqa: N818  not an error: the user asked for it
    """Ctrl-C, with what the user should know now."""


# ---------------------------------------------------------------------- words


def printable(value: object) -> str:
    """Text that can neither break the line nor steer the terminal, whatever a data file holds."""
    text = str(value)
    return text if text.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def one_line(text: str) -> str:
    """A message of several lines as one."""
    return " ".join(printable(line.strip()) for line in text.splitlines() if line.strip())


def in_options(text: str) -> str:
    """What the library says of its parameters, said of the options of the same names.

    Examples
    --------
    >>> in_options("Pass `label_column='my label', anomaly_value='1'` or `ignore=['a', 'b']`.")
    "Pass --label-column 'my label' --anomaly-value 1 or --ignore a --ignore b."
    >>> in_options("`y` must hold -1, 0 or +1; `labels_csv` is for pictures.")
    '`y` must hold -1, 0 or +1; --labels-csv is for pictures.'
    """
    return re.sub(r"`(\w+)((?:=[^`]+)?)`", lambda found: _as_options(found[0], found[1], found[2]), text)


def _as_options(whole: str, name: str, values: str) -> str:
    """Keyword arguments as they are typed in a shell; what is no option stays as it is."""
    if name not in _OPTIONS or not values:
        return _OPTIONS.get(name, whole)
    try:
        call = ast.parse(f"f({name}{values})", mode="eval").body
        assert isinstance(call, ast.Call)
        given = {str(keyword.arg): ast.literal_eval(keyword.value) for keyword in call.keywords}
    except (SyntaxError, ValueError):
        return whole
    typed = [
        (_OPTIONS[key], one) for key, value in given.items() for one in (value if isinstance(value, list) else [value])
    ]
    return " ".join(f"{option} {shlex.quote(str(value))}" for option, value in typed)


# ---------------------------------------------------------------------- checks


def check_model_out(out: Path, inputs: Sequence[Path]) -> None:
    """Find out before a training whether its model and checkpoint can be written, under a name of no other kind."""
    from esad.io.pictures import SUFFIXES as PICTURES

    is_new_name = out.suffix.lower() != ".esad" and not out.exists()  # older models may be called otherwise
    if is_new_name or out.suffix.lower() in (*_NO_MODELS, *PICTURES):
        raise OutputError(f"Cannot write the model to {str(out)!r}: that is no name for a model. Let it end in .esad.")
    refuse_same_file(out, inputs)
    check_writable(out)
    check_writable(checkpoint_path(out))


def checkpoint_path(out: Path) -> Path:
    """Where the state of an unfinished training lies."""
    return out.with_name(f"{out.name}.checkpoint")


# ---------------------------------------------------------------------- output


def _console(*, stderr: bool = False) -> "Console":
    from rich.console import Console

    on_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    return Console(stderr=stderr, markup=False, highlight=False, emoji=False, width=None if on_terminal else _WIDE)


def say(text: str = "", *, style: str | None = None) -> None:
    """One line of result."""
    _console().print(printable(text), style=style, soft_wrap=True)


def _tell(word: str, text: str, style: str) -> None:
    from rich.text import Text

    console = _console(stderr=True)
    console.print(Text.assemble((f"{word}: ", style), one_line(in_options(text))), soft_wrap=True)


def note(text: str) -> None:
    """Something worth knowing, beside the result."""
    _tell("note", text, "cyan")


def warn(text: str) -> None:
    """Something that may be a mistake."""
    _tell("warning", text, "yellow")


def remark(found: "Remark") -> None:
    """What the library noticed about the data."""
    (warn if found.kind == "warning" else note)(found.text)


def fail(text: str) -> None:
    """Why the command did not do what was asked."""
    _tell("error", text, "bold red")


def tell_interrupted(text: str) -> None:
    """The command was stopped on purpose."""
    _tell("interrupted", text, "yellow")


def answer(as_json: bool, document: Any, show: Callable[[], None]) -> None:
    """What a command has found: as one JSON document, or shown to people."""
    if as_json:
        print_json(document)
    else:
        show()


def print_json(document: Any) -> None:
    """The one JSON document on stdout."""
    escaped = (sys.stdout.encoding or "").lower() not in ("utf-8", "utf8")
    sys.stdout.write(json.dumps(document, indent=2, allow_nan=False, ensure_ascii=escaped) + "\n")


def show_table(
    title: str | None,
    heads: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[str] = (),
    noun: str | None = None,
    rest: str = "; all of them: --json",
) -> None:
    """A table; the columns named in `right` hold numbers. Where rows have a noun, only the first 30 are shown."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if title is not None:
        say(title, style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    numbers = set(right)
    for head in heads:
        table.add_column(head, justify="right" if head in numbers else "left", overflow="fold")
    listed_rows = list(rows)
    n_more = len(listed_rows) - _MAX_ROWS if noun is not None else 0
    for row in listed_rows[:_MAX_ROWS] if n_more > 0 else listed_rows:
        table.add_row(*(cell if isinstance(cell, Text) else Text(printable(cell)) for cell in row))
    _console().print(table)
    if n_more > 0:
        say(f"... and {count_text(n_more, f'more {noun}')}{rest}")


def show_pairs(pairs: Iterable[tuple[str, object]]) -> None:
    """Names and values, one pair a line."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, Text(printable(value)))
    _console().print(grid)


# ---------------------------------------------------------------------- progress


@contextmanager
def bar(
    *, rows: bool = False, bursts: bool = False, shown: bool = True, get_time: Callable[[], float] = time.monotonic
) -> Iterator["Progress"]:
    """A progress bar that leaves no trace; where stderr is not a terminal, a line now and then if it takes long.

    With `bursts`, the time left is reckoned from the whole run: what is done comes in lots, minutes apart. A task then
    has the fields `before`, what was done before the run, and `limit`, seconds that it may take or None.
    """
    from rich import progress
    from rich.console import Console
    from rich.text import Text

    class TimeLeft(progress.ProgressColumn):
        def render(self, task: progress.Task) -> Text:
            left = time_left(
                task.elapsed or 0.0,
                n_done=task.completed - task.fields["before"],
                n_left=task.remaining or 0.0,
                limit=task.fields["limit"],
            )
            return Text("-:--:--" if left is None else str(timedelta(seconds=round(left))), style="progress.remaining")

    class Lines(progress.Progress):
        """Says on stderr how far the last task is: after ten seconds, then ever more rarely, but once a minute."""

        def __init__(self) -> None:
            super().__init__(console=Console(stderr=True, file=io.StringIO()), get_time=get_time)
            self._next, self._begun = get_time() + _FIRST_LINE, dict[progress.TaskID, tuple[float, float]]()
            self._since = get_time()

        def update(self, task_id: progress.TaskID, **changes: Any) -> None:
            super().update(task_id, **changes)
            self._tell(task_id, anew="total" in changes)

        def advance(self, task_id: progress.TaskID, advance: float = 1) -> None:
            super().advance(task_id, advance)
            self._tell(task_id)

        def _tell(self, task_id: progress.TaskID, anew: bool = False) -> None:
            now, task = get_time(), self._tasks[task_id]
            if anew or task_id not in self._begun:
                self._begun[task_id] = now, task.completed
            if now < self._next:
                return
            begun, before = self._begun[task_id]
            left = time_left(
                now - begun,
                n_done=task.completed - before,
                n_left=task.remaining or 0.0,
                limit=task.fields.get("limit"),
            )
            done = f"{task.percentage:.0f} %" if task.total else f"{task.completed:,.0f} rows" if rows else "under way"
            text = "" if left is None or not task.total else f", about {timedelta(seconds=round(left))} left"
            _console(stderr=True).print(f"{task.description}: {done}{text}", soft_wrap=True)
            self._next = now + min(max(_FIRST_LINE, (now - self._since) / 2), _LAST_LINE)

    if shown and not sys.stderr.isatty():
        yield Lines()
        return
    parts: list[Any] = [progress.TextColumn("{task.description}"), progress.BarColumn()]
    parts.append(progress.TaskProgressColumn())
    if rows:
        parts.append(progress.TextColumn("{task.completed:,} rows"))
    parts += [progress.TimeElapsedColumn(), TimeLeft() if bursts else progress.TimeRemainingColumn()]
    made = progress.Progress(*parts, console=Console(stderr=True), transient=True, get_time=get_time)
    with made if shown else nullcontext():  # one that is never started draws nothing
        yield made


def time_left(elapsed: float, *, n_done: float, n_left: float, limit: float | None) -> float | None:
    """Seconds left at the pace so far, at most what a limit leaves; None while there is nothing to go by.

    Examples
    --------
    >>> time_left(60.0, n_done=10, n_left=30, limit=None)
    180.0
    >>> time_left(60.0, n_done=10, n_left=30, limit=90.0)
    30.0
    """
    pace = [elapsed * n_left / n_done] if n_done > 0 else []
    return min([*pace, *([] if limit is None else [max(limit - elapsed, 0.0)])], default=None)


@contextmanager
def stages(*, rows: bool = False, shown: bool = True) -> Iterator["OnProgress"]:
    """A bar for work in stages, each with a size of its own."""
    with bar(rows=rows, shown=shown) as progress:
        tasks: dict[str, Any] = {}

        def advance(stage: str, n_more: int, n_in_all: int | None) -> None:
            if stage not in tasks:
                for task in tasks.values():
                    progress.remove_task(task)
                tasks.clear()
                tasks[stage] = progress.add_task(stage, total=n_in_all)
            for task in progress.tasks:  # the last one, whose size may be an estimate that grows better
                task.total = n_in_all
            progress.advance(tasks[stage], n_more)

        yield advance
