"""Rows or pictures for a fitted model, block by block, so that memory does not grow with the file."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.core.text import hint, listed
from esad.errors import SchemaError

if TYPE_CHECKING:
    from esad.detectors.base import Detector

__all__ = ["Block", "Source", "columns_for", "open_pictures", "open_table", "plain_id"]


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
    """A file or folder opened for scoring.

    Attributes
    ----------
    blocks : iterator of Block
    again : callable
        Gives the same blocks once more.
    id_name : str or None
        Name of the ids; None: rows are numbered.
    n_rows : int or None
        None when only reading tells.
    unknown : tuple of str
        Columns that the model has no use for and that nothing explains.
    lost_id : str or None
        The id column of the training file, where this file lacks it.
    broken : dict of str to str
        Pictures that could not be read so far, and why.
    """

    blocks: Iterator[Block]
    again: Callable[[], Iterator[Block]]
    id_name: str | None
    n_rows: int | None
    unknown: tuple[str, ...] = ()
    lost_id: str | None = None
    broken: dict[str, str] = field(default_factory=dict)


def open_table(
    path: Path,
    detector: "Detector",
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    kind_column: str | None = None,
    may_be_empty: bool = False,
) -> Source:
    """Open a table and check that its columns fit the model; the columns named must be there.

    Without `id_column` and `truth_column` the ids are those of the column that named the rows in training.
    """
    from esad.io.files import column_names, count_rows, open_batches

    names, notes = column_names(path), detector.notes_
    ignored = notes.get("ignored_columns")
    aside = {
        id_column,
        truth_column,
        kind_column,
        notes.get("id_column"),
        notes.get("label_column"),
        *(ignored if isinstance(ignored, list) else []),
    }
    features, unknown = columns_for(path, detector, names, aside)
    lost_id = None
    if truth_column is None and id_column is None and notes.get("id_column") is not None:
        known = notes["id_column"]
        id_column, lost_id = (known, None) if known in names else (None, known)
    roles = (name for name in (id_column, truth_column, kind_column) if name is not None)
    wanted = list(dict.fromkeys([*features, *roles]))

    def blocks() -> Iterator[Block]:
        schema = detector.inputs_.schema
        batches = open_batches(path, schema=schema, columns=wanted, may_be_empty=may_be_empty)
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

    return Source(blocks(), blocks, id_column, count_rows(path), tuple(unknown), lost_id)


def columns_for(
    path: Path, detector: "Detector", names: Sequence[str], aside: set[Any]
) -> tuple[list[str], Sequence[str]]:
    """The columns of a file that the model takes, and those that nothing explains; `aside` are known to be neither."""
    schema = detector.inputs_.schema
    assert schema is not None  # the model takes tables
    if not schema.named:
        return [name for name in names if name not in aside], ()
    given, trained = set(names), set(schema.names)
    missing = [name for name in schema.names if name not in given]
    if missing:
        others = [name for name in names if name not in trained]
        word = "column" if len(missing) == 1 else "columns"
        raise SchemaError(
            f"{str(path)!r} lacks the {word} {listed(missing)} that the model was trained on."
            f"{hint(missing[0], others)} Add what is missing; other order and further columns are fine."
        )
    return list(schema.names), [name for name in names if name not in trained and name not in aside]


def open_pictures(
    path: Path, detector: "Detector", *, labels_csv: Path | None = None, set_aside: bool = False
) -> Source:
    """Open a folder of pictures; their ids are the paths below it.

    One that cannot be read is an error or, with `set_aside`, noted as broken and left out.
    """
    from esad.io.images import open_images

    channels = detector.inputs_.preprocessor.shape_[0]  # type: ignore[union-attr]  # of pictures
    broken: dict[str, str] = {}

    def blocks() -> Iterator[Block]:
        batches = open_images(path, labels_csv=labels_csv, channels=channels, broken=broken if set_aside else None)
        return (Block(batch.images, list(batch.ids), batch.label_words, len(batch.ids)) for batch in batches)

    return Source(blocks(), blocks, "file", None, broken=broken)


def plain_id(cell: Any) -> Any:
    """An id as JSON can hold it: NaN and infinities, which it cannot, are missing.

    Examples
    --------
    >>> plain_id("S001"), plain_id(7), plain_id(float("nan"))
    ('S001', 7, None)
    """
    value = cell.as_py() if hasattr(cell, "as_py") else cell
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)
