"""Rows or pictures to be scored by a model: what the user gave, checked, and what is odd about it, said."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.doubts import mention_unclear, names_the_answer
from esad.cli.progress import bar
from esad.cli.training import check_column, refuse_model
from esad.detectors.opening import Block, Source, columns_for, open_pictures, open_table
from esad.errors import DataFileError, InputError, ModelFileError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector

__all__ = [
    "Block",
    "Source",
    "known_features",
    "load_model",
    "open_source",
    "parsed",
    "refuse_data",
    "scored",
    "warn_of_unknown",
]

_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")


def load_model(path: Path) -> "Detector":
    """Load a model; data given in its place is named as such."""
    from esad.detectors.model_file import load

    refuse_data(path)
    return load(path)


def refuse_data(path: Path) -> None:
    """Refuse data where a model is expected."""
    if path.is_dir() or path.name.lower().endswith(_TABLES):
        raise ModelFileError(f"{str(path)!r} is data, and a model is expected here. Give a file written by esad fit.")


def open_source(
    path: Path,
    detector: "Detector",
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    kind_column: str | None = None,
    labels_csv: Path | None = None,
    set_aside: bool = False,
) -> Source:
    """Open what shall be scored and check that it fits the model before anything is written.

    With `set_aside`, pictures that cannot be read are left out and noted in `Source.broken`.
    """
    refuse_model(path)
    is_table = detector.inputs_.kind == "table"
    if path.is_dir() and is_table:
        raise DataFileError(f"{str(path)!r} is a folder, and the model was trained on a table. Give a table.")
    if path.exists() and not path.is_dir() and not is_table:
        raise DataFileError(f"{str(path)!r} is a file, and the model was trained on pictures. Give a folder.")
    if is_table:
        if labels_csv is not None:
            raise InputError("--labels-csv is for a folder of pictures.")
        return _open_file(path, detector, id_column, truth_column, kind_column)
    for option, given in (
        ("--id-column", id_column),
        ("--truth-column", truth_column),
        ("--kind-column", kind_column),
    ):
        if given is not None:
            raise InputError(f"{option} is for a table, and this is a folder of pictures.")
    return open_pictures(path, detector, labels_csv=labels_csv, set_aside=set_aside)


def parsed(source: Source) -> Source:
    """The same rows with their cells parsed, so that several uses of a block do it once."""
    from esad.preprocess.inputs import read

    return replace(source, blocks=(replace(block, X=read(block.X)) for block in source.blocks))


def scored(
    detector: "Detector", source: Source, *, word: str = "scoring"
) -> "Iterator[tuple[Block, NDArray[np.float64]]]":
    """Every block with its scores, and a bar that counts the rows."""
    with bar(rows=True) as progress:
        task = progress.add_task(word, total=source.n_rows)
        for block in source.blocks:
            yield block, detector.anomaly_score(block.X)
            progress.advance(task, block.n_rows)


def _open_file(
    path: Path, detector: "Detector", id_column: str | None, truth_column: str | None, kind_column: str | None
) -> Source:
    from esad.io.files import column_names

    names = column_names(path)
    for option, column in (
        ("--id-column", id_column),
        ("--truth-column", truth_column),
        ("--kind-column", kind_column),
    ):
        check_column(column, names, path, option)
    source = open_table(path, detector, id_column=id_column, truth_column=truth_column, kind_column=kind_column)
    warn_of_unknown(source.unknown)
    mention_unclear(path)
    if source.lost_id is not None:
        common.note(f"there is no id column {source.lost_id!r} here: rows are numbered from 0.")
    return source


def known_features(path: Path, detector: "Detector", names: Sequence[str], aside: set[Any]) -> list[str]:
    """The columns of a file that the model takes; `aside` are known to be none of them."""
    features, unknown = columns_for(path, detector, names, aside)
    warn_of_unknown(unknown)
    return features


def warn_of_unknown(columns: Iterable[str]) -> None:
    """Columns that the model has no use for may be a mistake, unless they are called as truth usually is."""
    unexplained = [name for name in columns if not names_the_answer(name)]
    if unexplained:
        common.warn(f"columns that were not in training are ignored: {common.listed(unexplained)}.")
