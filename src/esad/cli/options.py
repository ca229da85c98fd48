"""Makes functions commands, and defines the options that several commands share."""

import functools
import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad import registry
from esad.cli import failures, output
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.io.dialect import Reading

EPILOGUE = "Example:"


@dataclass(frozen=True)
class OptionGroup:
    """Marks a parameter that stands for several options: `make` turns their values into one argument."""

    make: Callable[..., Any]


def write_epilogue(*examples: str) -> str:
    """Write the examples that stand below a command's help."""
    return "\n\n".join([EPILOGUE, *(f"  {example}" for example in examples)])


def command(
    *examples: str, files: Callable[[Path], Mapping[str, Path]] | None = None, for_several: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Make a function a command, with examples of its use.

    Ctrl-C is kept away from typer, which would exit without a word: what was written by then is told. `files` names the
    files of a command whose --out is a folder. Unless `for_several`, it is refused where several processes run: they
    would do the same work several times over, and write to the same place.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        parameters, groups = _expand_groups(function)

        @functools.wraps(function)
        def run_command(**given: Any) -> None:
            for name, (make, names) in groups.items():
                given[name] = make(**{own: given.pop(own) for own in names})
            paths = [given[name] for name in ("out", "test_out") if given.get(name) is not None]
            results = failures.Results(paths if files is None else files(*paths).values())
            try:
                if not (for_several or failures.is_alone()):
                    raise InputError(f"torchrun is for esad fit. Run esad {function.__name__} by itself.")
                _check_folder()
                function(**given)
            except KeyboardInterrupt as interrupt:
                raise output.Interrupted(results.describe()) from interrupt

        vars(run_command).update(__signature__=inspect.Signature(parameters), epilog=write_epilogue(*examples))
        run_command.__annotations__ = {each.name: each.annotation for each in parameters}
        return run_command

    return decorate


def _check_folder() -> None:
    """Refuse to work in a folder that no longer exists: torch would end the process without a clear message."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise InputError("The folder that you are in was deleted. Change to another one.") from None


def _expand_groups(
    function: Callable[..., None],
) -> tuple[list[inspect.Parameter], dict[str, tuple[Callable[..., Any], list[str]]]]:
    """Return all options of a command, groups replaced by their options, and how each group is made from its own."""
    parameters, groups = [], {}
    for name, parameter in inspect.signature(function).parameters.items():
        found = [mark for mark in getattr(parameter.annotation, "__metadata__", ()) if isinstance(mark, OptionGroup)]
        own = list(inspect.signature(found[0].make).parameters.values()) if found else [parameter]
        parameters += [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own]
        if found:
            groups[name] = found[0].make, [each.name for each in own]
    return parameters, groups


# ---------------------------------------------------------------------- options


def option(default: Any, names: str, help: str, panel: str | None = None, **rest: Any) -> Any:
    """An option of one command; a default of `...` means that it must be given.

    `names` holds its names and what stands for its value, if it is no switch; `panel` is where the help shows it.
    """
    return _declare([default], names, help, panel, **rest)


def shared_option(names: str, help: str, panel: str | None = None, **rest: Any) -> Any:
    """Return an option for a type annotation that several commands use, each with its own default."""
    return _declare([], names, help, panel, **rest)


def _declare(default: list[Any], names: str, help: str, panel: str | None, **rest: Any) -> Any:
    flags = [word for word in names.split() if word.startswith("-")]
    value = names.removeprefix(" ".join(flags)).strip() or None
    return typer.Option(*default, *flags, metavar=value, help=help, rich_help_panel=panel, **rest)


DATA, RUNNING, TRAINING = "Data", "Running", "Training"
ADDRESS, _WRITTEN = "Address", "How files are written"


def complete_method(incomplete: str) -> list[str]:
    """Names of methods for the shell."""
    return [name for name in registry.method_names() if name.startswith(incomplete)]


def complete_data_set(incomplete: str) -> list[str]:
    """Names of data sets for the shell."""
    return [name for name in registry.data_set_names() if name.startswith(incomplete)]


def seconds_of(budget: str) -> float:
    """Seconds in 90s, 25m or 2h.

    Examples
    --------
    >>> seconds_of("25m")
    1500.0
    """
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([smh])", budget.strip())
    if found is None:
        raise InputError(f"--budget must be a time such as 90s, 25m or 2h. Got {budget!r}.")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


def _check_seed(seed: int) -> int:
    if not 0 <= seed < 2**32:
        raise typer.BadParameter(f"{seed} is not between 0 and 4294967295.")
    return seed


def parse_size(text: str) -> Any:
    """Parse --resize into what `TrainingData.from_file` takes."""
    word = text.strip().lower()
    if word in ("auto", "none"):
        return None if word == "none" else word
    found = re.fullmatch(r"([1-9]\d{0,4})(?:x([1-9]\d{0,4}))?", word)
    if found is None:
        raise typer.BadParameter(f"{text!r} is no size. Give auto, none, a number of pixels, or such as 128x96.")
    return int(found[1]) if found[2] is None else (int(found[1]), int(found[2]))


Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV, Parquet or Excel file, or a folder of pictures.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by esad fit.")]
Json = Annotated[bool, shared_option("--json", "Print one JSON document and nothing else.")]
LabelColumn = Annotated[
    str | None,
    shared_option(
        "--label-column -l NAME",
        "Column that holds the few labels: anomaly, normal, or blank for unlabelled; or -1, +1, 0.",
        DATA,
    ),
]
IdColumn = Annotated[
    str | None,
    shared_option(
        "--id-column -i NAME", "Column that names the rows: never learned from, carried into the scores.", DATA
    ),
]
AnomalyValue = Annotated[
    str | None, shared_option("--anomaly-value VALUE", "Value that marks an anomaly, such as 1, fraud or yes.", DATA)
]
NormalValue = Annotated[
    str | None, shared_option("--normal-value VALUE", "Value that marks a row known to be normal.", DATA)
]
UnlabelledValue = Annotated[
    str | None,
    shared_option("--unlabelled-value VALUE", "Value of rows that nobody has looked at, beside blanks.", DATA),
]
CasesFile = Annotated[
    Path | None,
    shared_option(
        "--cases FILE",
        "Labelled rows or pictures to hold the alarms against, such as the training file; for models that were "
        "not trained with --keep-cases.",
        DATA,
    ),
]
LabelsCsv = Annotated[
    Path | None,
    shared_option(
        "--labels-csv FILE",
        "For a folder of pictures: CSV with the columns file and label, instead of sub-folders.",
        DATA,
    ),
]
TruthColumn = Annotated[
    str | None,
    shared_option(
        "--truth-column -t NAME",
        "Column with the truth of every row: 1 or anomaly, 0 or normal (or -1, +1). "
        "For pictures the sub-folders anomaly/ and normal/ say it.",
    ),
]
Seed = Annotated[
    int,
    shared_option(
        "--seed N", "The same seed on the same machine gives the same result.", RUNNING, callback=_check_seed
    ),
]
Device = Annotated[str, shared_option("--device NAME", "Where to compute: auto, cpu, cuda, cuda:1.", RUNNING)]
Host = Annotated[
    str, shared_option("--host ADDRESS", "Where to listen; 0.0.0.0 is every network of this machine.", ADDRESS)
]
Port = Annotated[int, shared_option("--port -p N", "Port; 0 takes a free one.", ADDRESS, min=0, max=65535)]

# ---------------------------------------------------------------------- training

ModelOut = Annotated[Path, shared_option("--out -o MODEL", "Model file to write; its name ends in .esad.")]
SkipBroken = Annotated[
    bool, shared_option("--skip-broken", "Leave out pictures that cannot be read, and say which.", RUNNING)
]

# ---------------------------------------------------------------------- how files are written


def _make_reading(
    decimal: str | None = option(
        None, "--decimal MARK", "What stands before decimals, . or a comma, where the numbers do not show it.", _WRITTEN
    ),
    date_format: str | None = option(
        None,
        "--date-format FORM",
        "How dates such as 01/02/2024 are meant: day-first, month-first, or a form such as '%d.%m.%y %H:%M'.",
        _WRITTEN,
    ),
    encoding: str | None = option(
        None,
        "--encoding NAME",
        "How letters are written, such as cp1250; by default UTF-8, UTF-16 or cp1252, as the file shows.",
        _WRITTEN,
    ),
    sheet: str | None = option(None, "--sheet NAME", "Sheet of an Excel file; by default the first.", _WRITTEN),
    max_unpacked: float = option(
        2.0,
        "--max-unpacked GIB",
        "Refuse a Parquet file of which 65,536 rows become more than this in memory, and an Excel file that does; "
        "0 reads whatever comes.",
        _WRITTEN,
        min=0,
    ),
) -> "Reading":
    from esad.io.dialect import Reading

    n_bytes = int(max_unpacked * 2**30) or None
    return Reading(decimal=decimal, date_format=date_format, encoding=encoding, sheet=sheet, max_unpacked=n_bytes)


def _name_labels(
    label_column: LabelColumn = None,
    anomaly_value: AnomalyValue = None,
    normal_value: NormalValue = None,
    unlabelled_value: UnlabelledValue = None,
    labels_csv: LabelsCsv = None,
) -> dict[str, Any]:
    return locals()


def _name_columns(
    label_column: LabelColumn = None,
    id_column: IdColumn = None,
    ignore: list[str] | None = option(None, "--ignore NAME", "Column to leave out; may be repeated.", DATA),
    text: list[str] | None = option(
        None, "--text NAME", "Column to read as text, such as codes of digits; may be repeated.", DATA
    ),
    anomaly_value: AnomalyValue = None,
    normal_value: NormalValue = None,
    unlabelled_value: UnlabelledValue = None,
    labels_csv: LabelsCsv = None,
) -> dict[str, Any]:
    return locals() | {"ignore": tuple(ignore or ()), "text": tuple(text or ())}


# arguments of `TrainingData.from_file`: the column of labels, what its words mean, and the roles of other columns
LabelOptions = Annotated[dict[str, Any], OptionGroup(_name_labels)]
ColumnOptions = Annotated[dict[str, Any], OptionGroup(_name_columns)]
ReadingOptions = Annotated["Reading", OptionGroup(_make_reading)]
