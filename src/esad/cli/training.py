"""What a user's file or folder gives to learn from: which columns, which labels, and how it was read."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.doubts import mention_doubts, mention_misread, mention_names
from esad.errors import DataFileError, InputError, LabelError

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from esad.detectors.streaming import Survey
    from esad.table.schema import Schema

__all__ = [
    "Reading",
    "TrainingSet",
    "check_column",
    "check_roles",
    "column_labels",
    "mention_broken",
    "notes_of",
    "picture_labels",
    "read_training",
    "refuse_model",
    "table_files",
    "telling_how_to_skip",
]

_WORDS = ("anomaly", "normal", "unlabelled", "unlabeled", "unknown")  # of sub-folders


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the user wants a file or folder to be read."""

    label_column: str | None = None
    id_column: str | None = None
    ignore: tuple[str, ...] = ()
    anomaly_value: str | None = None
    normal_value: str | None = None
    labels_csv: Path | None = None
    text: tuple[str, ...] = ()
    skip_broken: bool = False


@dataclass(frozen=True, kw_only=True)
class TrainingSet:
    """Rows and labels to learn from, and how they were read."""

    X: Any
    y: "NDArray[np.int8] | None"
    n_rows: int
    schema: "Schema | None"  # None for pictures
    left_out: tuple[str, ...] = ()  # columns that look like ids
    notes: dict[str, Any] = field(default_factory=dict)  # what scoring must know
    broken: Mapping[str, str] = field(default_factory=dict)  # pictures that could not be read, and why
    survey: "Survey | None" = None  # of data read in parts; X and y are then rows that the training does not see

    @property
    def n_read(self) -> int:
        """How many rows there are, those that are not at hand included."""
        return self.n_rows if self.survey is None else self.survey.source.n_rows

    def labels(self) -> dict[str, int]:
        """How many rows carry each label."""
        import numpy as np

        from esad.labels import counts

        if self.survey is not None:
            return asdict(self.survey.counts)
        return asdict(counts(np.zeros(self.n_rows) if self.y is None else self.y))

    def to_json(self) -> dict[str, Any]:
        """What `esad fit --json` says about the data."""
        columns = [] if self.schema is None else self.schema.to_json()["columns"]
        read = {"n_rows": self.n_read, "columns": columns, "left_out": list(self.left_out)}
        if self.schema is None:
            read |= {"shape": list(self.X.shape[1:]), "broken": dict(self.broken)}
        return read | {"labels": self.labels()}


def read_training(path: Path, reading: Reading) -> TrainingSet:
    """Read what to learn from, or say in one line why not."""
    refuse_model(path)
    files = table_files(path, reading)
    return _read_files(path, files, reading) if files or not path.is_dir() else _read_folder(path, reading)


def table_files(path: Path, reading: Reading) -> tuple[Path, ...]:
    """The tables that a path means: itself, those of a folder or pattern; none for pictures."""
    from esad.io.parts import find_tables

    return find_tables(path) if reading.labels_csv is None or not path.is_dir() else ()


def refuse_model(path: Path) -> None:
    """Name the mistake when a model is given where data is expected."""
    if path.suffix == ".esad":
        raise DataFileError(f"{str(path)!r} is a model, and data is expected here. Give a CSV or Parquet file.")


def check_column(name: str | None, names: Sequence[str], path: Path, option: str) -> None:
    """Refuse a column that the file does not have, naming the nearest."""
    if name is not None and name not in names:
        several = all(part.strip() in names for part in name.split(","))
        hint = f" Give {option} once for each." if several else common.hint(name, names)
        raise DataFileError(
            f"{str(path)!r} has no column {name!r} ({option}).{hint} Its columns are {common.listed(names)}."
        )


def _check_enough(path: Path, number: int, noun: str) -> None:
    if number < 2:
        held = common.counted(number, noun)
        raise DataFileError(f"Cannot learn from {str(path)!r}: it holds {held}. Give two or more.")


def column_labels(values: Any, reading: Reading, *, name: str) -> "NDArray[np.int8]":
    """Labels -1, 0, +1; what cannot be read as such names the options that help."""
    from esad.labels import from_column

    try:
        return from_column(values, anomaly_value=reading.anomaly_value, normal_value=reading.normal_value, name=name)
    except LabelError as error:
        if "--anomaly-value" in str(error):
            raise
        raise LabelError(f"{error} Options: --anomaly-value, --normal-value.") from error


# ---------------------------------------------------------------------- tables


def _read_files(path: Path, files: Sequence[Path], reading: Reading) -> TrainingSet:
    from esad.io.files import column_names
    from esad.io.parts import read_tables

    if reading.labels_csv is not None:
        raise InputError("--labels-csv is for a folder of pictures. For a table give --label-column.")
    files = files or [path]  # what is no table is refused where it is read
    names = column_names(files[0])
    check_roles(files[0], names, reading)
    mention_names(files[0], reading)
    columns = [name for name in names if name not in reading.ignore and name != reading.label_column]
    table = read_tables(files, columns, label_column=reading.label_column, text=reading.text)
    _check_enough(path, table.num_rows, "row")
    y = None
    if reading.label_column is not None:
        y = column_labels(table[reading.label_column], reading, name=reading.label_column)
    features = table.drop_columns([name for name in (reading.label_column, reading.id_column) if name is not None])
    if features.num_columns == 0:
        raise DataFileError(f"{str(path)!r} has no column left to learn from.")
    features, schema, left_out = _without_ids(path, features)
    mention_doubts(features, schema, label_column=reading.label_column)
    notes = notes_of(path, reading, left_out)
    return TrainingSet(X=features, y=y, n_rows=table.num_rows, schema=schema, left_out=left_out, notes=notes)


def check_roles(path: Path, names: Sequence[str], reading: Reading) -> None:
    """Refuse columns that are not there, or named for two roles."""
    check_column(reading.label_column, names, path, "--label-column")
    check_column(reading.id_column, names, path, "--id-column")
    for option, given in (("--ignore", reading.ignore), ("--text", reading.text)):
        for name in given:
            check_column(name, names, path, option)
    roles = (reading.label_column, reading.id_column, *reading.ignore, *reading.text)
    named = [name for name in roles if name is not None]
    if len(set(named)) < len(named):
        twice = next(name for name in named if named.count(name) > 1)
        raise InputError(f"Column {twice!r} is named twice among --label-column, --id-column, --ignore and --text.")
    if reading.label_column is None and (reading.anomaly_value or reading.normal_value) is not None:
        raise InputError("--anomaly-value and --normal-value are about a label column. Give --label-column too.")
    if reading.skip_broken:
        raise InputError("--skip-broken is for a folder of pictures. A table that is broken must be mended.")


def _without_ids(path: Path, features: "pa.Table") -> "tuple[pa.Table, Schema, tuple[str, ...]]":
    """Leave out columns of text that is different in every row: nothing can be learned from them."""
    from dataclasses import replace

    from esad.table.schema import Schema, Table

    schema = Schema.infer(Table.from_any(features))
    mention_misread(features, schema)
    ids = tuple(column.name for column in schema.columns if column.proposes_id)
    if not ids:
        return features, schema, ()
    if len(ids) == len(schema.columns):
        raise DataFileError(f"{str(path)!r} has only columns of text that differs in every row: {common.listed(ids)}.")
    kept = tuple(column for column in schema.columns if column.name not in ids)
    return features.drop_columns(list(ids)), replace(schema, columns=kept), ids


def notes_of(path: Path, reading: Reading, left_out: tuple[str, ...]) -> dict[str, Any]:
    """Columns that a scored file may have beside those of the model, without a word; where the training data lies."""
    from esad.io.provenance import DataSource, note_sources

    words = {"label_column", "id_column", "anomaly_value", "normal_value"}
    notes: dict[str, Any] = {name: value for name in sorted(words) if (value := getattr(reading, name)) is not None}
    if reading.labels_csv is not None:
        notes["labels_csv"] = str(reading.labels_csv.absolute())
    notes["ignored_columns"] = [*reading.ignore, *left_out]
    return note_sources(notes, [DataSource.of(path)])


# ---------------------------------------------------------------------- pictures


def _read_folder(path: Path, reading: Reading) -> TrainingSet:
    from esad.io.images import read_folder

    for option, given in (("--label-column", reading.label_column), ("--id-column", reading.id_column)):
        if given is not None:
            raise InputError(f"{option} is for a table. Pictures are labelled by sub-folder or --labels-csv.")
    for option, names in (("--ignore", reading.ignore), ("--text", reading.text)):
        if names:
            raise InputError(f"{option} is for the columns of a table, and this is a folder.")
    broken: dict[str, str] = {}
    with telling_how_to_skip():
        folder = read_folder(path, labels_csv=reading.labels_csv, broken=broken if reading.skip_broken else None)
    _check_enough(path, len(folder.images), "picture")
    mention_broken(broken)
    y = None if folder.label_words is None else picture_labels(path, folder.label_words, reading)
    notes = notes_of(path, reading, ())
    return TrainingSet(X=folder.images, y=y, n_rows=len(folder.images), schema=None, broken=broken, notes=notes)


@contextmanager
def telling_how_to_skip() -> Iterator[None]:
    """Name the option that helps where a picture cannot be read."""
    try:
        yield
    except DataFileError as error:
        if not str(error).startswith("Cannot read the picture"):
            raise
        raise DataFileError(f"{error} Mend or remove it, or leave all such pictures out with --skip-broken.") from error


def mention_broken(broken: Mapping[str, str]) -> None:
    """Point at pictures that are not learned from."""
    if broken:
        left_out = common.counted(len(broken), "picture that cannot be read is", "pictures that cannot be read are")
        common.warn(f"{left_out} left out: {common.listed(sorted(broken))}.")


def picture_labels(path: Path, words: "NDArray[np.object_]", reading: Reading) -> "NDArray[np.int8]":
    """Labels by CSV file or by sub-folder; sub-folders that mean nothing are named."""
    if reading.labels_csv is not None:
        return column_labels(words, reading, name="label")
    try:
        return column_labels(words, reading, name="sub-folder")
    except LabelError as error:
        names = list(dict.fromkeys(word for word in words.tolist() if word is not None))
        given = [value for value in (reading.anomaly_value, reading.normal_value) if value is not None]
        wrong = [name for name in names if name.casefold() not in _WORDS and name not in given]
        if not wrong or not set(given) <= set(names):  # what was asked for is not there: said well enough
            raise
        raise LabelError(
            f"The sub-folders of {str(path)!r} must be anomaly, normal or unlabelled. Got {common.listed(wrong)}. "
            "Say what they mean with --anomaly-value NAME and --normal-value NAME, or rename them."
        ) from error
