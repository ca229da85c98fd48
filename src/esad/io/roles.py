"""What the columns of a table are for: which holds labels, which names the rows, which are left out or read as text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.core.text import hint, listed
from esad.core.values import distinct, key
from esad.errors import DataFileError, InputError, LabelError

__all__ = ["Roles", "check_column"]

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

    @classmethod
    def from_notes(cls, notes: Mapping[str, Any], names: Sequence[str]) -> "Roles":
        """The roles that a model keeps in its notes, as far as a file has such columns."""
        ignored = notes.get("ignored_columns")
        known = {role: notes.get(role) for role in ("label_column", "id_column")}
        present = {role: name for role, name in known.items() if name in names}
        kept = tuple(name for name in ignored if name in names) if isinstance(ignored, list) else ()
        return cls(label_column=present.get("label_column"), id_column=present.get("id_column"), ignore=kept)

    def notes(self, left_out: Sequence[str] = ()) -> dict[str, Any]:
        """What a model keeps of it: columns that a scored file may have beside those of the model, and their words."""
        names = ("anomaly_value", "id_column", "label_column", "normal_value", "unlabelled_value")
        kept = {name: value for name in names if (value := getattr(self, name)) is not None}
        return kept | {"ignored_columns": [*self.ignore, *left_out]}

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

    def with_noted_words(self, notes: Mapping[str, Any], values: Any) -> "Roles":
        """The same with the words that a model notes, as far as they occur among these values and none are given."""
        if self.has_words or self.label_column not in (None, notes.get("label_column")):
            return self
        found = {key(value) for value in distinct(values, name=self.label_column or "label")[0]}
        noted = {name: notes.get(name) for name in ("anomaly_value", "normal_value", "unlabelled_value")}
        return replace(self, **{name: word for name, word in noted.items() if word is not None and key(word) in found})

    def check_folder(self) -> None:
        """Refuse what is about columns where there are pictures."""
        for role, name in (("label_column", self.label_column), ("id_column", self.id_column)):
            if name is not None:
                raise InputError(f"`{role}` is for a table. Pictures are labelled by sub-folder or `labels_csv`.")
        for role, names in (("ignore", self.ignore), ("text", self.text)):
            if names:
                raise InputError(f"`{role}` is for the columns of a table, and this is a folder.")

    def labels(self, values: Any, *, name: str | None = None) -> NDArray[np.int8]:
        """Labels -1, 0, +1 of the values of the label column."""
        return labels.from_column(
            values,
            anomaly_value=self.anomaly_value,
            normal_value=self.normal_value,
            unlabelled_value=self.unlabelled_value,
            name=name or self.label_column or "label",
        )

    def picture_labels(self, folder: Path, words: Any, *, from_csv: bool) -> NDArray[np.int8]:
        """Labels of pictures by a CSV file or by their sub-folders; sub-folders that mean nothing are named."""
        try:
            return self.labels(words, name="label" if from_csv else "sub-folder")
        except LabelError as error:
            names = list(dict.fromkeys(word for word in words.tolist() if word is not None))
            said = (self.anomaly_value, self.normal_value, self.unlabelled_value)
            given = [value for value in said if value is not None]
            wrong = [name for name in names if name.casefold() not in _FOLDERS and name not in given]
            if (
                from_csv or not wrong or not set(given) <= set(names)
            ):  # what was asked for is not there: said well enough
                raise
            raise LabelError(
                f"The sub-folders of {str(folder)!r} must be anomaly, normal or unlabelled. Got {listed(wrong)}. "
                "Say what they mean with `anomaly_value` and `normal_value`, or rename them."
            ) from error


def check_column(name: str | None, names: Sequence[str], path: Path, role: str) -> None:
    """Refuse a column that the file does not have, naming the nearest."""
    if name is not None and name not in names:
        several = all(part.strip() in names for part in name.split(","))
        near = f" Give `{role}` once for each." if several else hint(name, names)
        raise DataFileError(f"{str(path)!r} has no column {name!r} (`{role}`).{near} Its columns are {listed(names)}.")
