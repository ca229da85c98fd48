"""Labelled rows or pictures that alarms are held against: those a model has kept, or those of a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.source import known_features
from esad.cli.training import Reading, check_column, column_labels, picture_labels, refuse_model
from esad.detectors.opening import plain_id
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.explain.cases import Case

__all__ = ["KnownCases", "read_cases"]


@dataclass(frozen=True)
class KnownCases:
    """What `explain` takes as its cases (None: the model's own), and what they are called."""

    given: tuple[Any, Any] | None
    names: list[Any] | None

    def called(self, case: "Case") -> Any:
        """The id of a case, or its row number."""
        return case.row if self.names is None else self.names[case.row]

    def text(self, case: "Case") -> str:
        """One case for people."""
        what = "anomaly" if case.label < 0 else "normal"
        name = f"row {case.row}" if self.names is None else str(self.called(case))
        return f"{name} ({what}, distance {case.distance:.2f})"


def read_cases(path: Path | None, detector: "Detector", reading: Reading) -> KnownCases:
    """Labelled cases from a file or folder, read as `esad fit` would have; without one the model's own."""
    if path is None:
        given = (reading.label_column, reading.anomaly_value, reading.normal_value, reading.labels_csv)
        if any(option is not None for option in given):
            raise InputError("--label-column, --anomaly-value, --normal-value and --labels-csv are about --cases FILE.")
        return KnownCases(None, None)
    refuse_model(path)
    is_table = detector.inputs_.kind == "table"
    if path.is_dir() == is_table and path.exists():
        wanted = "a table, and --cases a folder" if is_table else "pictures, and --cases a file"
        raise DataFileError(f"The model was trained on {wanted}: {str(path)!r}. Give labelled data of the same kind.")
    return _read_table(path, detector, reading) if is_table else _read_folder(path, detector, reading)


def _read_table(path: Path, detector: "Detector", reading: Reading) -> KnownCases:
    from esad.io.files import column_names, read_table

    names, notes = column_names(path), detector.notes_
    label_column = reading.label_column or notes.get("label_column")
    if label_column is None:
        raise InputError(f"Which column of {str(path)!r} holds the labels? Give --label-column NAME.")
    check_column(label_column, names, path, "--label-column")
    id_column = notes.get("id_column") if notes.get("id_column") in names else None
    ignored = notes.get("ignored_columns")
    aside = {label_column, notes.get("label_column"), id_column, *(ignored if isinstance(ignored, list) else [])}
    features = known_features(path, detector, names, aside)
    wanted = dict.fromkeys([*features, label_column, *([] if id_column is None else [id_column])])
    table = read_table(path, columns=list(wanted))
    y = column_labels(table[label_column], reading, name=label_column)
    ids = None if id_column is None else [plain_id(cell) for cell in table[id_column]]
    return _known(path, table.select(features), y, ids)


def _read_folder(path: Path, detector: "Detector", reading: Reading) -> KnownCases:
    from esad.io.images import read_folder

    channels = detector.inputs_.preprocessor.shape_[0]  # type: ignore[union-attr]  # of pictures
    folder = read_folder(path, labels_csv=reading.labels_csv, channels=channels)
    if folder.label_words is None:
        raise InputError("The pictures of --cases lie in no sub-folders. Put them into anomaly/ and normal/.")
    return _known(path, folder.images, picture_labels(path, folder.label_words, reading), list(folder.ids))


def _known(path: Path, X: Any, y: Any, names: list[Any] | None) -> KnownCases:
    if not (y != 0).any():
        common.warn(f"{str(path)!r} holds no label: there are no cases to hold the alarms against.")
    return KnownCases((X, y), names)
