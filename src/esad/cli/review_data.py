"""What `esad review` judges: all rows or pictures and their cells, the journal of judgements, and labels out and in."""

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from esad.cli import common
from esad.cli.doubts import names_the_answer
from esad.cli.rows import read_rows
from esad.cli.source import load_model
from esad.cli.training import Reading, check_column, mention_broken, table_files
from esad.errors import DataFileError, OutputError

if TYPE_CHECKING:
    import pyarrow as pa

    from esad.detectors.base import Detector
    from esad.io.provenance import DataSource
    from esad.review.dataset import ReviewDataset, TrainingRows
    from esad.review.store import Store

__all__ = ["Asked", "exchange_labels", "named_after", "open_store", "read_dataset", "training_finder"]


@dataclass(frozen=True)
class Asked:
    """Which files a review is about: the model, which need not be there yet, the data, and the journal."""

    model: Path
    data: Path
    labels: Path
    reading: Reading


def named_after(data: Path, ending: str) -> Path:
    """A file beside the data with its name and another ending; what a pattern means is named after its folder.

    Examples
    --------
    >>> str(named_after(Path("b.csv.gz"), ".esad")), str(named_after(Path("a-*.csv"), ".labels.db")) != "a-*.labels.db"
    ('b.esad', True)
    """
    place = data
    if not data.exists() and glob.has_magic(str(data)):
        place = next(folder for folder in data.parents if not glob.has_magic(str(folder)))
        if not place.name:  # files of the working folder, as their names are
            return place / f"{place.absolute().name}{ending}"
    is_file = ending == ".esad" and not place.is_dir()
    return place.with_name(f"{(is_file and place.name.partition('.')[0]) or place.name}{ending}")


def read_dataset(data: Path, detector: "Detector", reading: Reading, *, is_new: bool) -> "ReviewDataset":
    """Everything that is judged, in memory; a model that is new has said already what could not be read."""
    from esad.review.dataset import ReviewDataset

    rows = read_rows(data, detector, reading)
    if not is_new:
        mention_broken(rows.broken)
    cells = None
    if detector.inputs_.kind == "table":
        cells = _cells(table_files(data, reading), detector, reading, {rows.label_column, rows.id_name})
    titles = None if cells is None else _titles(cells, detector)
    return ReviewDataset(
        title=data.name, X=rows.X, known=rows.y, names=rows.ids, id_name=rows.id_name, cells=cells, titles=titles
    )


def _titles(cells: "pa.Table", detector: "Detector") -> list[str | None] | None:
    """Text that is different in every row and was left out of the training for it: it says which row is meant."""
    import pyarrow as pa
    import pyarrow.compute as pc

    left_out = [name for name in cells.column_names if name in detector.notes_.get("ignored_columns", ())]
    for column in (cells[name] for name in left_out if pa.types.is_string(cells[name].type)):
        if 0 < pc.count_distinct(column).as_py() == len(column) - column.null_count:
            return [text or None for text in column.to_pylist()]
    return None


def _cells(files: Sequence[Path], detector: "Detector", reading: Reading, aside: set[str | None]) -> "pa.Table":
    """All columns to show, as they stand in the files, but for those to ignore and those that are called as answers."""
    import pyarrow as pa

    from esad.io.files import column_names, open_batches

    names = column_names(files[0])
    for name in reading.ignore:
        check_column(name, names, files[0], "--ignore")
    aside = aside | set(reading.ignore)
    schema = detector.inputs_.schema
    learned = set(schema.names) if schema is not None and schema.named else set()
    shown = [name for name in names if name in learned or not (name in aside or names_the_answer(name))]
    batches = [batch for file in files for batch in open_batches(file, columns=shown)]
    return pa.concat_tables(batches, promote_options="permissive")


def open_store(journal: Path, dataset: "ReviewDataset") -> "Store":
    """The judgements of this very data."""
    from esad.review.store import Store

    return Store(journal, fingerprint=dataset.fingerprint(), n_rows=dataset.n_rows)


def training_finder(
    dataset: "ReviewDataset", store: "Store", source: "DataSource", given: Path | None
) -> "Callable[[Detector], TrainingRows | None]":
    """A way to find what a model learned from, where that is not the data under review; what was found is kept."""
    from esad.io.provenance import DataSource, sources_in
    from esad.review.dataset import TrainingRows

    found: dict[tuple[DataSource, ...], TrainingRows] = {}

    def learned_here(detector: "Detector") -> bool:
        """Of a model that does not say what it learned from."""
        known = store.known_to(detector.fingerprint_)
        return known is not None or detector.learned_from(dataset.X, dataset.known)

    def find(detector: "Detector") -> TrainingRows | None:
        noted = sources_in(detector.notes_) if given is None else [DataSource.of(given)]
        others = tuple(one for one in noted if source.path != one.path and source.fingerprint != one.fingerprint)
        if not others and (noted or learned_here(detector)):
            return None
        if others not in found:
            found[others] = _read_training_rows(others, detector)
        return found[others]

    return find


def _read_training_rows(sources: "Sequence[DataSource]", detector: "Detector") -> "TrainingRows":
    """Rows and labels of all sources that are where they were and as they were."""
    import numpy as np

    from esad.errors import EsadError
    from esad.review.dataset import TrainingRows
    from esad.review.refit import join_rows
    from esad.table.table import take_rows

    X, y, lost = [], [], []
    for source in sources:
        try:
            for path in filter(None, (source.path, source.judgements)):
                if not Path(path).exists() and not glob.has_magic(path):
                    raise DataFileError(f"{path} is not there")
            if not source.is_unchanged():
                raise DataFileError("it was changed since")
            dataset = read_dataset(Path(source.path), detector, _reading_of(detector), is_new=True)
            known, rows = dataset.known, dataset.X
            if source.judgements:
                with open_store(Path(source.judgements), dataset) as store:
                    known = store.judgements.labels(known)
                rows, known = take_rows(rows, np.flatnonzero(known)), known[known != 0]
        except EsadError as error:
            lost.append(f"{source.path} ({str(error).rstrip('.')})")
            continue
        X.append(rows)
        y.append(known)
    counts = detector.label_counts_
    n_rows, n_labels = sum(vars(counts).values()), counts.n_anomaly + counts.n_normal
    words = ""
    if lost or not sources:
        where = ": " + ", ".join(lost) if lost else ""
        rows_words, labels_words = common.counted(n_rows, "row"), common.counted(n_labels, "label")
        words = f"The model learned from {rows_words} with {labels_words}, which are not all here{where}."
    return TrainingRows(join_rows(X) if X else None, np.concatenate(y) if y else np.zeros(0, np.int8), words)


def _reading_of(detector: "Detector") -> Reading:
    """How the training data was read, as far as it matters for its labels."""
    notes = detector.notes_
    labels_csv = notes.get("labels_csv")
    return Reading(
        anomaly_value=notes.get("anomaly_value"),
        normal_value=notes.get("normal_value"),
        labels_csv=None if labels_csv is None else Path(labels_csv),
    )


def exchange_labels(asked: Asked, out: Path | None, given: Path | None, *, reviewer: str, as_json: bool) -> None:
    """Labels out or in, without a page."""
    from esad.core.atomic import atomic_path, check_writable
    from esad.review.judgements import parse_csv, write_csv

    if out is not None:
        if out.suffix.lower() != ".csv":
            raise OutputError(f"Cannot write the labels to {str(out)!r}: its name must end in .csv.")
        common.refuse_same_file(out, [asked.data, asked.labels, asked.model])
        check_writable(out)
        if not asked.labels.exists() and given is None:
            raise DataFileError(f"There are no labels {str(asked.labels)!r}. Name the file with --labels.")
    text = None if given is None else _read_text(given)
    if not asked.model.exists():
        raise DataFileError(f"There is no model {str(asked.model)!r} that says how to read the data. Review it first.")
    dataset = read_dataset(asked.data, load_model(asked.model), asked.reading, is_new=False)
    n_new = 0
    with open_store(asked.labels, dataset) as store:
        if text is not None:
            n_new = store.import_lines(parse_csv(text, dataset, reviewer=reviewer), importer=reviewer)
        if out is not None:
            with atomic_path(out) as temporary:
                temporary.write_text(write_csv(store.judgements, dataset), encoding="utf-8")
        n_judged = len(store.judgements.verdicts())
    if as_json:
        common.json_out({"labels": str(asked.labels), "n_judged": n_judged, "n_new": n_new, "out": out and str(out)})
        return
    if text is not None:
        common.say(f"{common.counted(n_new, 'new judgement')} from {given}")
    if out is not None:
        common.say(f"{common.counted(n_judged, 'judged row')}: {out}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: it is not UTF-8 text.") from error
