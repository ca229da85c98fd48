"""Rows or pictures for a fitted model, block by block, so that memory does not grow with the file."""

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from esad.core.arrays import Labels
from esad.core.text import hint, list_text
from esad.detectors.base import Detector
from esad.errors import DataFileError, InputError, SchemaError
from esad.io import checks
from esad.io.checks import OnRemark, Remark
from esad.io.csv import Cells
from esad.io.dialect import Dialect, Reading
from esad.io.excel import sheets_hint
from esad.io.files import TableFiles, find_tables
from esad.io.notes import Notes, Roles, check_column
from esad.io.picture_folder import Broken, open_folder
from esad.io.pictures import is_picture
from esad.table.columns import decode_categories, read_arrow

_Path = str | os.PathLike[str]
_MAX_IDS = 1 << 20  # held in memory to see whether one is there twice


@dataclass(frozen=True)
class Block:
    """Some rows: what the model takes, their ids (None: count them), truth and kinds as they stand in the file.

    `cells` are all columns of the file, where they were asked for; `share` is how much of the file has been given
    with this block, about, where the number of rows is not known before.
    """

    X: Any
    ids: Any
    truth: Any
    n_rows: int
    kinds: Any = None
    cells: Any = None
    share: float | None = None


@dataclass(frozen=True)
class Source:
    """A file or folder opened for scoring; iterating over it reads all blocks, as often as one likes.

    Attributes
    ----------
    read : callable
        Gives all blocks.
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
    truth_name : str or None
        The column that says what is true of the rows.
    cell_names : tuple of str or None
        All columns of the file, where they were asked for.
    dialect : Dialect or None
        How the first file is written, where the cells are as they are written in CSV.
    files : tuple of Path
        The tables that are read.
    ids_tell : callable
        Whether the ids tell the rows apart: none is blank or there twice. Of more than a million it is not known.
    """

    read: Callable[[], Iterator[Block]]
    id_name: str | None = None
    n_rows: int | None = None
    unknown: tuple[str, ...] = ()
    lost_id: str | None = None
    broken: dict[str, str] = field(default_factory=dict)
    truth_name: str | None = None
    cell_names: tuple[str, ...] | None = None
    dialect: Dialect | None = None
    files: tuple[Path, ...] = ()
    ids_tell: Callable[[], bool] = lambda: True

    @property
    def row_name(self) -> str:
        """What rows go by."""
        return "row" if self.id_name is None else self.id_name

    def needs_row_numbers(self) -> bool:
        """Whether rows must be numbered beside their ids, since these do not tell them apart."""
        return self.id_name != "row" and not self.ids_tell()

    def __iter__(self) -> Iterator[Block]:
        return self.read()


def open_source(
    path: _Path,
    detector: Detector,
    *,
    id_column: str | None = None,
    truth_column: str | None = None,
    kind_column: str | None = None,
    noted_labels: bool = False,
    labels_csv: _Path | None = None,
    reading: Reading | None = None,
    cells: Cells | None = None,
    may_be_empty: bool = False,
    set_aside: bool = False,
    on_remark: OnRemark | None = checks.tell,
) -> Source:
    """Open a file or folder for a model and check that it fits; what is odd about it is told.

    Parameters
    ----------
    path : str or path-like
        A table, a folder or a pattern of them, or a folder of pictures or one of them, as the model takes. Pictures of
        another size are scaled.
    detector : Detector
        Fitted.
    id_column, truth_column, kind_column : str, optional
        Columns of a table that name the rows, say what is true of them, and say the kind of each anomaly. Without
        `id_column` the ids are those of the column that named the rows in training.
    noted_labels : bool
        Without `truth_column` take the column that held the labels in training, where the file has it.
    labels_csv : str or path-like, optional
        The truth of pictures; their sub-folders by default.
    reading : Reading, optional
        How numbers, dates and letters of a table are written; as in training where it does not say.
    cells : {"texts", "values"}, optional
        Give all columns of a table along: as they are written in CSV, where all of it is CSV, or as values.
    may_be_empty : bool
        Whether a table without rows is none the worse for it.
    set_aside : bool
        Leave out pictures that cannot be read and note them in `Source.broken`; by default they are an error.
    on_remark : callable or None
        Told of unknown columns and the like; None: nobody is.
    """
    given = {"id_column": id_column, "truth_column": truth_column, "kind_column": kind_column}
    if detector.inputs_.kind == "images":
        _check_kind(path, detector)
        for role, is_given in (given | {"with_data": cells}).items():
            if is_given:
                raise InputError(f"`{role}` is for a table, and this is a folder of pictures.")
        return _open_pictures(path, detector, labels_csv, set_aside, on_remark)
    files = find_tables(path)
    if not files:
        _check_kind(path, detector)
    if labels_csv is not None:
        raise InputError("`labels_csv` is for a folder of pictures. For a table give a column.")
    notes = Notes.from_json(detector.notes_)
    data = TableFiles(files or (path,), reading=notes.add_reading(reading))
    for role, name in given.items():
        check_column(name, data.names, data.files[0], role)
    known = notes.roles_in(data.names)
    features, unknown = _divide_columns(
        data, detector, {*given.values(), known.id_column, known.label_column, *known.ignore}
    )
    truth_name = known.label_column if truth_column is None and noted_labels else truth_column
    id_name = known.id_column if id_column is None else id_column
    lost_id = notes.roles.id_column if id_name is None and truth_name is None else None
    named = (id_name, truth_name, kind_column)  # a name may be empty, as that of pandas' index is
    more = [name for name in named if name is not None]
    if cells == "texts" and not data.is_csv:
        cells = "values"
    wanted = list(data.names if cells else dict.fromkeys([*features, *more]))
    if on_remark is not None:
        _tell_odd(data, detector, unknown, lost_id, on_remark)

    def read() -> Iterator[Block]:
        share: float | None = None

        def note(now: float) -> None:
            nonlocal share
            share = now

        on_share = note if data.n_rows is None else None
        schema = detector.inputs_.schema
        for both in data.batches(wanted, schema=schema, may_be_empty=may_be_empty, cells=cells, on_share=on_share):
            batch = both.select(list(range(len(wanted))))
            ids, truth, kinds = (None if name is None else decode_categories(batch[name]) for name in named)
            written = both.select(list(range(len(wanted), both.num_columns))) if cells else None
            yield Block(batch.select(features), ids, truth, batch.num_rows, kinds, written, share)

    return Source(
        read,
        id_name,
        data.n_rows,
        tuple(unknown),
        lost_id,
        truth_name=truth_name,
        cell_names=data.names if cells else None,
        dialect=data.dialect if cells == "texts" else None,
        files=data.files,
        ids_tell=lambda: id_name is None or _are_distinct(data, id_name),
    )


def _check_kind(path: _Path, detector: Detector) -> None:
    """Refuse a folder or a picture for a model of a table, and a file that is no picture for one of pictures."""
    is_table, what = detector.inputs_.kind == "table", "picture" if is_picture(path) else "file"
    what = "folder" if os.path.isdir(path) else what
    if is_table and what != "file":
        raise DataFileError(f"{os.fspath(path)!r} is a {what}, and the model was trained on a table. Give a table.")
    if os.path.exists(path) and not is_table and what == "file":
        raise DataFileError(
            f"{os.fspath(path)!r} is a file, and the model was trained on pictures. Give a folder of them, or one."
        )


def _open_pictures(
    path: _Path, detector: Detector, labels_csv: _Path | None, set_aside: bool, on_remark: OnRemark | None
) -> Source:
    channels, height, width = detector.inputs_.shape
    broken: Broken = {}
    unread = broken if set_aside else None
    folder = open_folder(path, labels_csv=labels_csv, channels=channels, broken=unread, resize=(width, height))
    if on_remark is not None and folder.resizing:
        on_remark(Remark("note", folder.resizing))

    def read() -> Iterator[Block]:
        for batch in folder.batches():
            yield Block(batch.images, list(batch.ids), batch.label_words, len(batch.ids))

    return Source(read, "file", broken=broken)


# ---------------------------------------------------------------------- tables


def _divide_columns(data: TableFiles, detector: Detector, aside: Iterable[str | None]) -> tuple[list[str], list[str]]:
    """The columns of a file that the model takes, and those that nothing explains; `aside` are known to be neither."""
    schema, names, others = detector.inputs_.schema, data.names, set(aside)
    assert schema is not None  # the model takes tables
    if not schema.named:
        return [name for name in names if name not in others], []
    trained = set(schema.names)
    missing = [name for name in schema.names if name not in set(names)]
    if missing:
        word = "column" if len(missing) == 1 else "columns"
        holds = f" Its first line holds {list_text(names)}." if len(missing) == len(schema.names) else ""
        raise SchemaError(
            f"{str(data.files[0])!r} lacks the {word} {list_text(missing)} that the model was trained on."
            f"{hint(missing[0], [name for name in names if name not in trained])} "
            f"Add what is missing; other order and further columns are fine.{holds}{sheets_hint(data.files[0])}"
        )
    return list(schema.names), [name for name in names if name not in trained and name not in others]


def _tell_odd(
    data: TableFiles, detector: Detector, unknown: Iterable[str], lost_id: str | None, on_remark: OnRemark
) -> None:
    for remark in check_unknown(unknown):
        on_remark(remark)
    if data.dialect is not None:
        assert detector.inputs_.schema is not None  # the model takes tables
        percents = checks.check_percents(data.dialect, data.reading, detector.inputs_.schema)
        for remark in (*checks.check_notation(data.dialect, data.reading), *percents):
            on_remark(remark)
    if lost_id is not None:
        on_remark(Remark("note", f"there is no id column {lost_id!r} here: rows are numbered from 0."))


def check_unknown(columns: Iterable[str]) -> Iterator[Remark]:
    """Columns that the model has no use for may be a mistake, unless they are called as truth usually is."""
    unexplained = [name for name in columns if not checks.names_the_answer(name)]
    if unexplained:
        yield Remark("warning", f"columns that were not in training are ignored: {list_text(unexplained)}.")


def _are_distinct(data: TableFiles, name: str) -> bool:
    """Whether no cell of a column is blank or there twice; of more than so many it is not known."""
    parts: list[pa.Table] = []
    for batch in data.batches([name], may_be_empty=True):
        parts.append(batch)
        if batch[name].null_count or sum(part.num_rows for part in parts) > _MAX_IDS:
            return False
    if not parts:
        return True
    ids = pa.concat_tables(parts, promote_options="permissive")[name]
    values = read_arrow(ids, name)
    n_different = len(values.encoded.texts) if values.kind == "category" else pc.count_distinct(ids).as_py()
    return bool(n_different == len(ids))


def join_truth(parts: Iterable[Any]) -> NDArray[np.object_] | None:
    """What a file says of its rows, from the `truth` of all blocks; None where it says nothing."""
    words = [np.asarray(part, dtype=object) for part in parts if part is not None]
    return np.concatenate(words) if words else None


def label_rows(
    words: NDArray[np.object_], path: _Path, detector: Detector, roles: Roles, *, from_csv: bool
) -> tuple[Labels, Roles]:
    """Labels of what `path` says of its rows, and the roles with the words of the training where they have none."""
    roles = Notes.from_json(detector.notes_).add_words(roles, words)
    if detector.inputs_.kind == "table":
        return roles.labels(words), roles
    return roles.picture_labels(Path(path), words, from_csv=from_csv), roles


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
