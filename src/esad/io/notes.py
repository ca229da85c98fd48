"""What is known of data beside its cells: what its columns are for, where it lies, and what a model notes of that."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from esad import labels
from esad.core.arrays import Labels
from esad.core.atomic import hash_file
from esad.core.text import hint, list_text
from esad.errors import DataFileError, InputError, LabelError, ModelFileError
from esad.io.dialect import Reading
from esad.io.excel import sheets_hint
from esad.io.files import find_tables

_FOLDERS = ("anomaly", "normal", "unlabelled", "unlabeled", "unknown")


@dataclass(frozen=True, kw_only=True)
class Roles:
    """Which columns of a file are no features, and what the words in its labels mean.

    Parameters
    ----------
    label_column : str, optional
        Column that holds the few labels.
    id_column : str, optional
        Column that names the rows; never learned from.
    ignore : tuple of str
        Columns to leave out.
    text : tuple of str
        Columns to read as text whatever they hold, such as codes of digits.
    anomaly_value, normal_value, unlabelled_value : object, optional
        The values that mark an anomaly, a row known to be normal, and one that nobody has looked at; see
        `esad.labels.from_column`.

    Examples
    --------
    >>> roles = Roles(label_column="verdict", anomaly_value="fraud")
    >>> roles.features(["amount", "verdict"]), roles.labels(["fraud", None]).tolist()
    (['amount'], [-1, 0])
    """

    label_column: str | None = None
    id_column: str | None = None
    ignore: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    anomaly_value: object = None
    normal_value: object = None
    unlabelled_value: object = None

    def features(self, names: Sequence[str]) -> list[str]:
        """The columns to learn from."""
        return [name for name in names if name not in (self.label_column, self.id_column, *self.ignore)]

    def check(self, path: Path, names: Sequence[str]) -> None:
        """Refuse columns that are not there, or named for two roles; one at least must be left to learn from."""
        check_column(self.label_column, names, path, "label_column")
        check_column(self.id_column, names, path, "id_column")
        for role, given in (("ignore", self.ignore), ("text", self.text)):
            for name in given:
                check_column(name, names, path, role)
        named = [name for name in (self.label_column, self.id_column, *self.ignore, *self.text) if name is not None]
        twice = next((name for name in named if named.count(name) > 1), None)
        if twice is not None:
            raise InputError(f"Column {twice!r} is named twice among `label_column`, `id_column`, `ignore` and `text`.")
        self.check_values()
        if not self.features(names):
            raise DataFileError(f"{str(path)!r} has no column left to learn from.")

    def check_values(self) -> None:
        """Refuse words for labels where no column has any."""
        if self.label_column is None and self.has_words:
            raise InputError("`anomaly_value` and `normal_value` are about a label column. Give `label_column` too.")

    @property
    def has_words(self) -> bool:
        """Whether something is said about the values of the labels."""
        return (self.anomaly_value, self.normal_value, self.unlabelled_value) != (None, None, None)

    def check_folder(self) -> None:
        """Refuse what is about columns where there are pictures."""
        for role, name in (("label_column", self.label_column), ("id_column", self.id_column)):
            if name is not None:
                raise InputError(f"`{role}` is for a table. Pictures are labelled by sub-folder or `labels_csv`.")
        for role, names in (("ignore", self.ignore), ("text", self.text)):
            if names:
                raise InputError(f"`{role}` is for the columns of a table, and this is a folder.")

    def labels(self, values: Any, *, name: str | None = None) -> Labels:
        """Labels -1, 0, +1 of the values of the label column."""
        return labels.from_column(
            values,
            anomaly_value=self.anomaly_value,
            normal_value=self.normal_value,
            unlabelled_value=self.unlabelled_value,
            name=name or self.label_column or "label",
        )

    def picture_labels(self, folder: Path, words: Any, *, from_csv: bool) -> Labels:
        """Labels of pictures by a CSV file or by their sub-folders; sub-folders that mean nothing are named."""
        try:
            return self.labels(words, name="label" if from_csv else "sub-folder")
        except LabelError as error:
            names = list(dict.fromkeys(word for word in words.tolist() if word is not None))
            said = (self.anomaly_value, self.normal_value, self.unlabelled_value)
            given = [value for value in said if value is not None]
            wrong = [name for name in names if name.casefold() not in _FOLDERS and name not in given]
            if from_csv or not wrong or not set(given) <= set(names):  # the error says well enough what is not there
                raise
            raise LabelError(
                f"The sub-folders of {str(folder)!r} must be anomaly, normal or unlabelled. Got {list_text(wrong)}. "
                "Say what they mean with `anomaly_value` and `normal_value`, or rename them."
            ) from error


def check_column(name: str | None, names: Sequence[str], path: Path, role: str) -> None:
    """Refuse a column that the file does not have, naming the nearest."""
    if name is not None and name not in names:
        several = all(part.strip() in names for part in name.split(","))
        near = f" Give `{role}` once for each." if several else hint(name, names)
        raise DataFileError(
            f"{str(path)!r} has no column {name!r} (`{role}`).{near} Its columns are {list_text(names)}."
            f"{sheets_hint(path)}"
        )


# ---------------------------------------------------------------------- where it lies


@dataclass(frozen=True)
class DataSource:
    r"""Data that a model learned from.

    Attributes
    ----------
    path : str
        The file, folder or pattern, from the root of the file system.
    fingerprint : str
        Of its bytes.
    judgements : str
        The file of judgements of a review of this data, else empty. Unless it is the first data that the model learned
        from, only the rows judged there were learned from.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "a.csv"
    ...     _ = file.write_text("x\n1\n")
    ...     source = DataSource.of(file)
    ...     _ = file.write_text("x\n2\n")
    ...     source.is_unchanged()
    False
    """

    path: str
    fingerprint: str
    judgements: str = ""

    @classmethod
    def of(cls, path: str | os.PathLike[str], judgements: str | os.PathLike[str] = "") -> "DataSource":
        """The data that lies at a path now."""
        where = os.path.abspath(judgements) if judgements else ""
        return cls(os.path.abspath(path), fingerprint_data(path), where)

    def is_unchanged(self, path: str | os.PathLike[str] | None = None) -> bool:
        """Whether the data lies where it lay, or at another path, just as it was."""
        try:
            return fingerprint_data(self.path if path is None else path) == self.fingerprint
        except (OSError, DataFileError):
            return False


def fingerprint_data(path: str | os.PathLike[str]) -> str:
    """A hash of the bytes of a file, of all tables that a folder or pattern means, or of all files of a folder."""
    root = Path(path)
    files = find_tables(root) or sorted(file for file in root.rglob("*") if file.is_file())
    digest = hashlib.sha256()
    for file in files:
        if len(files) > 1:
            digest.update(file.name.encode("utf-8", "surrogateescape"))
        digest.update(bytes.fromhex(hash_file(file)))
    return digest.hexdigest()[:32]


# ---------------------------------------------------------------------- what a model keeps

# What is stored by which name; the order is that of the file.
_WORDS: Final = ("anomaly_value", "normal_value", "unlabelled_value")
_ROLES: Final = ("anomaly_value", "id_column", "label_column", "normal_value", "unlabelled_value")
_WRITTEN: Final = {"decimal": "decimal_point", "date_format": "date_format", "encoding": "encoding", "sheet": "sheet"}
_SOURCES: Final = {"path": "training_data", "fingerprint": "training_fingerprints", "judgements": "training_judgements"}


@dataclass(frozen=True, kw_only=True)
class Notes:
    """What a model keeps of the data that it learned from: its `notes_`, and "notes" in its file.

    Parameters
    ----------
    roles : Roles
        The columns that a file may have beside those of the model, and the words of the labels: `label_column`,
        `id_column`, `ignored_columns` (those that were left out for their text, too), `anomaly_value`, `normal_value`
        and `unlabelled_value`.
    labels_csv : str, optional
        Where the labels of pictures lay, if not in sub-folders.
    written : Reading
        How numbers, dates and letters are written, and on which sheet: `decimal_point`, `date_format`, `encoding` and
        `sheet`, and `percent_columns`, those whose numbers were per cent.
    sources : tuple of DataSource
        Where the data lay and what it was like, as lists: `training_data`, `training_fingerprints` and, after a
        review, `training_judgements`.

    Whoever makes a model may note more beside it, as plain values or lists of them.

    Examples
    --------
    >>> notes = Notes(roles=Roles(id_column="serial"), written=Reading(decimal=","))
    >>> notes.to_json()
    {'id_column': 'serial', 'ignored_columns': [], 'decimal_point': ','}
    >>> Notes.from_json(notes.to_json()) == notes
    True
    """

    roles: Roles = field(default_factory=Roles)
    labels_csv: str | None = None
    written: Reading = field(default_factory=Reading)
    sources: tuple[DataSource, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain values for `notes_`; what is not known is left out."""
        stored = {name: getattr(self.roles, name) for name in _ROLES}
        stored |= {"ignored_columns": list(self.roles.ignore), "labels_csv": self.labels_csv}
        stored |= {key: getattr(self.written, name) for name, key in _WRITTEN.items()}
        percents = self.written.percents
        stored["percent_columns"] = None if percents is None else sorted(percents)
        return note_sources({key: value for key, value in stored.items() if value is not None}, self.sources)

    @classmethod
    def from_json(cls, notes: Any) -> "Notes":
        """Read what `to_json` gave, of a model that may be forged: damage is refused, what is of no use passed over."""
        if not isinstance(notes, Mapping) or not all(map(_is_plain, notes.values())):
            raise ModelFileError("its notes are damaged")
        ignored = notes.get("ignored_columns") or []
        several = ignored if isinstance(ignored, list) else [ignored]
        names = [notes.get("id_column"), notes.get("label_column"), *several]
        if not all(name is None or isinstance(name, str) for name in names):
            raise ModelFileError("its notes name columns by something else than text")
        ignore = [name for name in ignored if name is not None] if isinstance(ignored, list) else ()
        known: dict[str, Any] = {name: value for name in _ROLES if not isinstance(value := notes.get(name), list)}
        written: dict[str, Any] = {name: _keep_usable(name, notes.get(key)) for name, key in _WRITTEN.items()}
        if isinstance(percents := notes.get("percent_columns"), list):
            written["percents"] = frozenset(map(str, percents))
        where = notes.get("labels_csv")
        return cls(
            roles=Roles(**known, ignore=tuple(ignore)),
            labels_csv=where if isinstance(where, str) else None,
            written=Reading(**written),
            sources=_read_sources(notes),
        )

    def roles_in(self, names: Sequence[str]) -> Roles:
        """The columns that are no features, as far as a file has them."""
        known = self.roles
        return Roles(
            label_column=known.label_column if known.label_column in names else None,
            id_column=known.id_column if known.id_column in names else None,
            ignore=tuple(name for name in known.ignore if name in names),
        )

    def add_words(self, roles: Roles, values: Any) -> Roles:
        """Roles with the words of the training's labels that are among these values, where no words are given."""
        if roles.has_words or roles.label_column not in (None, self.roles.label_column):
            return roles
        noted = {name: getattr(self.roles, name) for name in _WORDS}
        words: dict[str, Any] = labels.keep_occurring(noted, values, name=roles.label_column or "label")
        return replace(roles, **words)

    def add_reading(self, reading: Reading | None = None) -> Reading:
        """What is said about files, and how those of the training were written where nobody says otherwise."""
        said = reading or Reading()
        known = {name: getattr(self.written, name) for name in _WRITTEN if getattr(said, name) is None}
        noted: dict[str, Any] = {name: value for name, value in known.items() if value is not None}
        return replace(said, **noted, percents=self.written.percents, noted=said.noted | noted.keys())


def note_sources(notes: Mapping[str, Any], sources: Sequence[DataSource]) -> dict[str, Any]:
    """The notes of a model, all else as it is, that learned from these."""
    found = {key: [getattr(source, name) for source in sources] for name, key in _SOURCES.items()}
    others = {name: value for name, value in notes.items() if name not in found}
    return others | {key: values for key, values in found.items() if any(values)}


def _read_sources(notes: Mapping[str, Any]) -> tuple[DataSource, ...]:
    """What a model learned from; nothing where its lists do not go together."""
    lists = [notes.get(key) for key in _SOURCES.values()]
    paths = lists[0] if isinstance(lists[0], list) else []
    columns = [paths, *(values or [""] * len(paths) for values in lists[1:])]
    if not all(isinstance(values, list) and len(values) == len(paths) for values in columns):
        return ()
    return tuple(DataSource(*map(str, values)) for values in zip(*columns, strict=True))


def _is_plain(value: Any) -> bool:
    """Whether notes may hold it: a plain value, or a list of them."""
    items = value if isinstance(value, list) else [value]
    return all(item is None or isinstance(item, str | int | float | bool) for item in items)


def _keep_usable(name: str, value: Any) -> str | None:
    """What is noted of how files are written, unless none can be written so."""
    given: dict[str, Any] = {name: value}
    try:
        return value if isinstance(value, str) and Reading(**given) else None
    except InputError:
        return None
