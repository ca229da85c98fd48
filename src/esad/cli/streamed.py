"""Training data that is read in parts: when that is done, and what `esad fit` knows of it after one pass."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from esad.cli import common
from esad.cli.doubts import mention_doubts, mention_misread, mention_names
from esad.cli.progress import bar
from esad.cli.training import (
    Reading,
    TrainingSet,
    check_roles,
    column_labels,
    mention_broken,
    notes_of,
    picture_labels,
    refuse_model,
    telling_how_to_skip,
)
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.io.stream import PictureStream, TableStream

__all__ = ["open_parts", "survey_parts"]

MEMORY_SHARE = 0.125  # of the machine's memory; a fit takes several times what its rows take


def open_parts(
    path: Path, reading: Reading, *, wanted: bool | None, shown: bool
) -> "TableStream | PictureStream | None":
    """The data as a stream if it is asked for, of several files, or too large; None to read it whole."""
    from esad.io.parts import find_tables

    refuse_model(path)
    files = find_tables(path) if reading.labels_csv is None else ()
    several = len(files) > 1 or (len(files) == 1 and files[0] != path)
    if wanted is False:
        if several:
            raise InputError("Several files are always read in parts. Leave --no-stream out, or give one file.")
        return None
    if files:
        return _tables(path, files, reading, shown=shown) if wanted or several or _is_large(path) else None
    if not path.is_dir() or reading.label_column or reading.id_column or reading.ignore or reading.text:
        return None  # will be refused where it is read whole
    pictures = _pictures(path, reading)
    return pictures if wanted or pictures.n_bytes > MEMORY_SHARE * _memory() else None


def _is_large(file: Path) -> bool:
    from esad.io.files import n_cell_bytes

    return n_cell_bytes(file) > MEMORY_SHARE * _memory()


def _memory() -> float:
    """Bytes of memory that the machine has."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):
        return 8.0 * 2**30


def _tables(path: Path, files: tuple[Path, ...], reading: Reading, *, shown: bool) -> "TableStream":
    from esad.io.files import column_names
    from esad.io.stream import TableStream

    check_roles(files[0], column_names(files[0]), reading)
    mention_names(files[0], reading)
    name = reading.label_column
    with bar(shown=shown) as progress:
        task = progress.add_task("looking", total=sum(file.stat().st_size for file in files))
        stream = TableStream(
            files,
            label_column=name,
            ignore=[*reading.ignore, *([] if reading.id_column is None else [reading.id_column])],
            text=reading.text,
            meaning=lambda values: column_labels(values, reading, name=name or ""),
            on_bytes=lambda n_bytes: progress.advance(task, n_bytes),
        )
    if stream.n_rows < 2:
        raise DataFileError(
            f"Cannot learn from {str(path)!r}: it holds {common.counted(stream.n_rows, 'row')}. Give two or more."
        )
    return stream


def _pictures(path: Path, reading: Reading) -> "PictureStream":
    from esad.io.picture_folder import list_folder
    from esad.io.stream import PictureStream

    with telling_how_to_skip():
        listing = list_folder(path, labels_csv=reading.labels_csv, broken={} if reading.skip_broken else None)
    return PictureStream(listing, meaning=lambda words: picture_labels(path, words, reading))


def survey_parts(
    stream: "TableStream | PictureStream", path: Path, reading: Reading, *, seed: int, shown: bool
) -> TrainingSet:
    """Read all rows once, with a bar."""
    from esad.detectors.streaming import Survey
    from esad.io.stream import PictureStream

    with telling_how_to_skip(), bar(rows=True, shown=shown) as progress:
        task = progress.add_task("reading", total=stream.n_rows)
        survey = Survey.of(stream, seed=seed, on_block=lambda n_rows: progress.advance(task, n_rows))
    schema = None
    left_out: tuple[str, ...] = ()
    broken = (stream.listing.broken if isinstance(stream, PictureStream) else None) or {}
    mention_broken(broken)
    if survey.kind == "table":
        schema = survey.statistics.schema()
        mention_misread(survey.unlabelled.rows(0, len(survey.unlabelled)), schema)
        left_out = tuple(column.name for column in schema.columns if column.proposes_id)
        if len(left_out) == len(schema.columns):
            held = common.listed(left_out)
            raise DataFileError(f"{str(path)!r} has only columns of text that differs in every row: {held}.")
        survey.leave_out(left_out)
        schema = survey.statistics.schema()
        sample = survey.unlabelled.rows(0, len(survey.unlabelled))
        mention_doubts(sample, schema, label_column=reading.label_column)
    X, y = survey.held_out()
    has_labels = survey.counts.n_anomaly + survey.counts.n_normal > 0
    return TrainingSet(
        X=X,
        y=y if has_labels else None,
        n_rows=len(y),
        schema=schema,
        left_out=left_out,
        notes=notes_of(path, reading, left_out),
        broken=broken,
        survey=survey,
    )
