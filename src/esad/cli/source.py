"""Rows or pictures to be scored by a model, block by block, so that memory does not grow with the file."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common
from esad.cli.progress import bar
from esad.cli.training import check_column, names_the_answer, refuse_model
from esad.errors import DataFileError, InputError, ModelFileError, SchemaError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detector import Detector

__all__ = ["Block", "Source", "known_features", "load_model", "open_source", "parsed", "scored"]

_PARQUET = (".parquet", ".pq")
_TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", *_PARQUET)


@dataclass(frozen=True)
class Block:
    """Some rows: what the model takes, their ids (None: count them), truth and kinds as they stand in the file."""

    X: Any
    ids: Any
    truth: Any
    n_rows: int
    kinds: Any = None


@dataclass(frozen=True)
class Source:
    """A file or folder opened for scoring."""

    blocks: Iterator[Block]
    again: Callable[[], Iterator[Block]]  # the same blocks once more
    id_name: str | None
    n_rows: int | None  # None when only reading tells


def load_model(path: Path) -> "Detector":
    """Load a model; data given in its place is named as such."""
    from esad.loading import load

    if path.is_dir() or path.name.lower().endswith(_TABLES):
        raise ModelFileError(f"{str(path)!r} is data, and a model is expected here. Give a file written by esad fit.")
    return load(path)


def open_source(
    path: Path,
    detector: "Detector",
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    kind_column: str | None = None,
    labels_csv: Path | None = None,
) -> Source:
    """Open what shall be scored and check that it fits the model before anything is written."""
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
    return _open_folder(path, detector, labels_csv)


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
    from esad.data.files import column_names, open_batches

    names = column_names(path)
    check_column(id_column, names, path, "--id-column")
    check_column(truth_column, names, path, "--truth-column")
    check_column(kind_column, names, path, "--kind-column")
    notes = detector.notes_
    aside = {
        id_column,
        truth_column,
        kind_column,
        notes.get("id_column"),
        notes.get("label_column"),
        *_ignored(detector),
    }
    schema = detector.inputs_.schema
    assert schema is not None  # the model takes tables
    features = known_features(path, detector, names, aside)
    if truth_column is None and id_column is None:
        id_column = _known_id(detector, names)
    roles = (name for name in (id_column, truth_column, kind_column) if name is not None)
    wanted = list(dict.fromkeys([*features, *roles]))

    def blocks() -> Iterator[Block]:
        batches = open_batches(path, schema=schema, columns=wanted)
        return (
            Block(
                X=batch.select(features),
                ids=None if id_column is None else batch[id_column],
                truth=None if truth_column is None else batch[truth_column],
                n_rows=batch.num_rows,
                kinds=None if kind_column is None else batch[kind_column],
            )
            for batch in batches
        )

    return Source(blocks(), blocks, id_column, _count_rows(path))


def known_features(path: Path, detector: "Detector", names: Sequence[str], aside: set[Any]) -> list[str]:
    """The columns of a file that the model takes; `aside` are known to be none of them."""
    schema = detector.inputs_.schema
    assert schema is not None  # the model takes tables
    if not schema.named:
        return [name for name in names if name not in aside]
    _check_features(path, names, schema.names, aside)
    return list(schema.names)


def _known_id(detector: "Detector", names: Sequence[str]) -> str | None:
    """The id column of the training file, where this file has it too."""
    known = detector.notes_.get("id_column")
    if known is not None and known not in names:
        common.note(f"there is no id column {known!r} here: rows are numbered from 0.")
        return None
    return known


def _ignored(detector: "Detector") -> Sequence[str]:
    ignored = detector.notes_.get("ignored_columns")
    return ignored if isinstance(ignored, list) else []


def _check_features(path: Path, names: Sequence[str], features: Sequence[str], aside: set[Any]) -> None:
    """Missing columns are an error, others beside the known ones a warning."""
    given, trained = set(names), set(features)
    missing = [name for name in features if name not in given]
    if missing:
        others = [name for name in names if name not in trained]
        word = "column" if len(missing) == 1 else "columns"
        raise SchemaError(
            f"{str(path)!r} lacks the {word} {common.listed(missing)} that the model was trained on."
            f"{common.hint(missing[0], others)} Add what is missing; other order and further columns are fine."
        )
    extra = [name for name in names if name not in trained and name not in aside and not names_the_answer(name)]
    if extra:
        common.warn(f"columns that were not in training are ignored: {common.listed(extra)}.")


def _count_rows(path: Path) -> int | None:
    if not path.name.lower().endswith(_PARQUET):
        return None
    import pyarrow.parquet as pq

    return int(pq.read_metadata(str(path)).num_rows)


def _open_folder(path: Path, detector: "Detector", labels_csv: Path | None) -> Source:
    from esad.data.images import open_images

    channels = detector.inputs_.preprocessor.shape_[0]  # type: ignore[union-attr]  # of pictures

    def blocks() -> Iterator[Block]:
        batches = open_images(path, labels_csv=labels_csv, channels=channels)
        return (Block(batch.images, list(batch.ids), batch.label_words, len(batch.ids)) for batch in batches)

    return Source(blocks(), blocks, "file", None)
