"""Data to learn from, read from a file or folder: features, labels, roles of the columns, and what looks odd."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa

from esad.core.arguments import check_share
from esad.core.arrays import Labels
from esad.core.machine import data_limit
from esad.core.random import N_PARTS, draw_calibration, n_held_out_rows, seed_from
from esad.core.text import as_names, count_text, list_text
from esad.detectors.base import Detector
from esad.detectors.opening import join_truth, label_rows, open_source, plain_id
from esad.detectors.streaming import Survey
from esad.errors import DataFileError, InputError, LabelError, LabelWarning, PictureFileError
from esad.io import checks
from esad.io.checks import OnProgress, OnRemark, Remark
from esad.io.dialect import Reading
from esad.io.excel import sheets_hint
from esad.io.files import TableFiles, open_data
from esad.io.notes import DataSource, Notes, Roles
from esad.io.picture_folder import PictureFolder, Resize
from esad.io.stream import PictureStream, TableStream
from esad.labels import LabelCounts, reference_rows
from esad.labels import counts as count_labels
from esad.score.threshold import Threshold
from esad.table.statistics import TableStatistics
from esad.table.table import Schema, Table, join_rows
from esad.train.callbacks import Callback
from esad.train.runtime import resolve_device

LONGEST_SIDE = {"cpu": 128, "gpu": 256}  # pixels of a picture

AnyDetector = TypeVar("AnyDetector", bound=Detector)


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingData:
    r"""Rows or pictures and labels to learn from, and how they were read.

    Attributes
    ----------
    X : arrow table or ndarray, (n, channels, height, width)
        The features. Of data that is read in parts, rows that the training does not see, then labelled ones.
    y : ndarray of int8, (n,), or None
        -1 anomaly, 0 unlabelled, +1 normal; None where nothing says any.
    roles : Roles
        Which columns are no features.
    schema : Schema or None
        What the columns are taken for; None for pictures.
    ids : sequence or None
        Names of the rows, from the id column or the paths of the pictures.
    left_out : tuple of str
        Columns of text that differs in every row, as ids do.
    broken : mapping of str to str
        Pictures that could not be read, and why.
    survey : Survey or None
        What one pass told of data that is read in parts.
    source : DataSource or None
        Where the data lies, with a fingerprint of it.
    labels_csv : str or None
        Where the labels of pictures lie, if not in sub-folders.
    written : Reading
        How numbers, dates and letters are written in the file, for a model to keep.

    Examples
    --------
    >>> import tempfile
    >>> from esad import IsolationForest, TrainingData
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     lines = [f"S{row},{row % 7 + 90 * (row == 3)},{'fraud' if row == 3 else ''}" for row in range(40)]
    ...     file = Path(folder) / "payments.csv"
    ...     _ = file.write_text("\n".join(["serial,amount,verdict", *lines]))
    ...     data = TrainingData.from_file(file, label_column="verdict", anomaly_value="fraud", id_column="serial")
    >>> data.X.column_names, data.label_counts().n_anomaly, data.ids[3]
    (['amount'], 1, 'S3')
    >>> data.fit(IsolationForest(random_state=0)).notes_["id_column"]
    'serial'
    """

    X: Any
    y: Labels | None
    roles: Roles = field(default_factory=Roles)
    schema: Schema | None = None
    ids: Sequence[Any] | None = None
    left_out: tuple[str, ...] = ()
    broken: Mapping[str, str] = field(default_factory=dict)
    survey: Survey | None = None
    source: DataSource | None = None
    labels_csv: str | None = None
    written: Reading = field(default_factory=Reading)
    _table: Table | None = None  # X, parsed and counted

    @classmethod
    def from_file(
        cls,
        path: str | os.PathLike[str],
        *,
        label_column: str | None = None,
        id_column: str | None = None,
        ignore: Sequence[str] = (),
        text: Sequence[str] = (),
        anomaly_value: object = None,
        normal_value: object = None,
        unlabelled_value: object = None,
        labels_csv: str | os.PathLike[str] | None = None,
        decimal: str | None = None,
        date_format: str | None = None,
        encoding: str | None = None,
        sheet: str | None = None,
        max_unpacked: int | None = None,
        skip_broken: bool = False,
        resize: Resize | Literal["auto"] = "auto",
        stream: bool | None = False,
        detector: Detector | None = None,
        on_remark: OnRemark = checks.tell,
        on_progress: OnProgress | None = None,
    ) -> "TrainingData":
        """Read a CSV, Parquet or Excel file, a folder or pattern of them, or a folder of pictures.

        Parameters
        ----------
        path : str or path-like
        label_column : str, optional
            Column that holds the few labels: the words anomaly, normal, or blank for unlabelled; or -1, +1, 0.
        id_column : str, optional
            Column that names the rows; never learned from, carried into the scores.
        ignore, text : str or sequence of str
            Columns to leave out, and columns to read as text whatever they hold, such as codes of digits.
        anomaly_value, normal_value : object, optional
            Value that marks an anomaly, such as 1, "fraud" or "yes", and the one for a row known to be normal; of
            pictures, names of sub-folders.
        unlabelled_value : object, optional
            Value of rows that nobody has looked at, beside blanks.
        labels_csv : str or path-like, optional
            For a folder of pictures: CSV with the columns file and label, instead of sub-folders.
        decimal, date_format, encoding, sheet, max_unpacked
            How numbers, dates and letters are written, and more, where the file does not show it: as for
            `esad.io.dialect.Reading`. A model keeps the first three.
        skip_broken : bool
            Leave out pictures that cannot be read; by default they are an error.
        resize : int, (int, int), None or "auto"
            The size that pictures are read at, and scored at later: the most pixels of the longer side, or width and
            height; None for as they are, which must be all alike. Auto: at most 128 pixels on a CPU, 256 on a GPU.
        stream : bool or None
            Whether to read in parts, in bounded memory. None: several files, and whatever would fill an eighth of the
            memory.
        detector : Detector, optional
            Who is to learn from data in parts: its seed draws the sample, and one that needs all rows at hand is
            refused before they are read.
        on_remark : callable, optional
            Told of what looks odd, as `Remark`; by default a warning, or a line in the log.
        on_progress : callable, optional
            Told of reading in parts: what is being done, how much more is done, and of how much.
        """
        roles = Roles(
            label_column=label_column,
            id_column=id_column,
            ignore=as_names(ignore),
            text=as_names(text),
            anomaly_value=anomaly_value,
            normal_value=normal_value,
            unlabelled_value=unlabelled_value,
        )
        with _tell_how_to_skip():
            size = resize if resize != "auto" else _choose_longest_side(detector) if os.path.isdir(path) else None
            reading = Reading(
                decimal=decimal, date_format=date_format, encoding=encoding, sheet=sheet, max_unpacked=max_unpacked
            )
            unread: dict[str, str] | None = {} if skip_broken else None
            data = open_data(path, reading=reading, labels_csv=labels_csv, broken=unread, resize=size)
        if isinstance(data, TableFiles):
            _check_table_options(labels_csv, skip_broken, resize)
            roles.check(data.files[0], data.names)
            for file, dialect in list(data.dialects.items())[:1]:
                _tell_all(checks.check_dialect(file, dialect, roles, data.reading), on_remark)
        else:
            roles.check_folder()
            if data.resizing:
                on_remark(Remark("note", data.resizing + (" `resize` sets another size." if resize == "auto" else "")))
        from_csv = labels_csv is not None
        if stream is None:
            has_several = isinstance(data, TableFiles) and data.files != (Path(path),)
            stream = has_several or data.n_bytes > data_limit()
        if stream:
            found = _read_parts(Path(path), data, roles, from_csv, detector, on_remark, on_progress)
        elif isinstance(data, TableFiles):
            found = _read_table(Path(path), data, roles, on_remark)
        else:
            found = _read_pictures(Path(path), data, roles, from_csv, on_remark)
        where = None if labels_csv is None else os.path.abspath(labels_csv)
        written = data.written if isinstance(data, TableFiles) else Reading()
        return replace(found, source=DataSource.of(path), labels_csv=where, written=written)

    @classmethod
    def for_model(
        cls,
        path: str | os.PathLike[str],
        detector: Detector,
        *,
        label_column: str | None = None,
        id_column: str | None = None,
        anomaly_value: object = None,
        normal_value: object = None,
        unlabelled_value: object = None,
        labels_csv: str | os.PathLike[str] | None = None,
        reading: Reading | None = None,
        skip_broken: bool = False,
        on_remark: OnRemark = checks.tell,
    ) -> "TrainingData":
        """Read all rows of a file or folder in the columns of a fitted model, with the labels there are.

        Parameters are those of `from_file`; the columns of labels and ids are those of the training unless others are
        given; so are the words for labels, and how numbers, dates and letters are written unless `reading` says it.
        Rows without labels are unlabelled: `y` is never None.
        """
        roles = Roles(
            label_column=label_column,
            id_column=id_column,
            anomaly_value=anomaly_value,
            normal_value=normal_value,
            unlabelled_value=unlabelled_value,
        )
        is_table = detector.inputs_.kind == "table"
        if is_table:
            _check_table_options(labels_csv, skip_broken)
        else:
            roles.check_folder()
        with _tell_how_to_skip():
            source = open_source(
                path,
                detector,
                id_column=id_column,
                truth_column=label_column,
                noted_labels=True,
                labels_csv=labels_csv,
                reading=reading,
                set_aside=skip_broken,
                on_remark=on_remark,
            )
            blocks = list(source)
        if is_table:
            roles = replace(roles, label_column=source.truth_name, id_column=source.id_name)
            roles.check_values()
        X = join_rows([block.X for block in blocks])
        y, words = np.zeros(len(X), dtype=np.int8), join_truth(block.truth for block in blocks)
        if words is not None:
            y, roles = label_rows(words, path, detector, roles, from_csv=labels_csv is not None)
        ids = None
        if source.id_name is not None:
            ids = [plain_id(cell) for block in blocks for cell in block.ids]
        return cls(X=X, y=y, roles=roles, schema=detector.inputs_.schema, ids=ids, broken=source.broken)

    # ------------------------------------------------------------------ what is known

    @property
    def n_rows(self) -> int:
        """How many rows there are, those that are not at hand included."""
        return len(self.X) if self.survey is None else self.survey.source.n_rows

    @property
    def kind(self) -> str:
        """What the rows are: "table" or "images"."""
        return "images" if self.schema is None else "table"

    @property
    def id_name(self) -> str:
        """What the rows go by: the name of the id column, "file" for pictures, else "row"."""
        if self.roles.id_column is None:
            return "file" if self.kind == "images" else "row"
        return self.roles.id_column

    def name_of(self, row: int) -> Any:
        """The id of a row, or its number."""
        return row if self.ids is None else self.ids[row]

    @property
    def ids_tell(self) -> bool:
        """Whether the ids tell the rows apart: none is blank or there twice."""
        ids = self.ids or ()
        return len(set(ids)) == len(ids) and not any(cell is None or not str(cell).strip() for cell in ids)

    @property
    def notes(self) -> dict[str, Any]:
        """What a model keeps; see `esad.io.notes.Notes`."""
        roles = replace(self.roles, ignore=(*self.roles.ignore, *self.left_out))
        sources = () if self.source is None else (self.source,)
        return Notes(roles=roles, labels_csv=self.labels_csv, written=self.written, sources=sources).to_json()

    @property
    def labels(self) -> Labels:
        """`y`, or as many zeros where it is None."""
        return np.zeros(len(self.X), dtype=np.int8) if self.y is None else self.y

    def label_counts(self) -> LabelCounts:
        """How many rows carry each label."""
        return count_labels(self.labels) if self.survey is None else self.survey.counts

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        columns = [] if self.schema is None else self.schema.to_json()["columns"]
        read = {"n_rows": self.n_rows, "columns": columns, "left_out": list(self.left_out)}
        if self.schema is None:
            read |= {"shape": list(self.X.shape[1:]), "broken": dict(self.broken)}
        return read | {"labels": asdict(self.label_counts())}

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        detector: AnyDetector,
        *,
        rule: Threshold | None = None,
        calibration_ratio: float | None = None,
        cross_calibration: bool = False,
        callbacks: Sequence[Callback] = (),
        on_remark: OnRemark = checks.tell,
    ) -> AnyDetector:
        """Fit a detector, whole or in parts, set its threshold and let it keep the roles of the columns.

        Parameters
        ----------
        detector : Detector
        rule : Threshold, optional
            How to set the threshold; by default as the detector's `contamination` says.
        calibration_ratio, callbacks
            As for `Detector.fit`.
        cross_calibration : bool
            Calibrate with the rows that each member left out anyway.
        on_remark : callable, optional
            Told, as in `from_file`, of labels that leave little to learn from, and of known anomalies that the
            automatic threshold misses.

        Returns
        -------
        detector
        """
        _tell_all(checks.check_labels(self.label_counts()), on_remark)
        if self.survey is None:
            X = self.X if self.kind == "images" else self._table or Table.from_any(self.X)  # was looked at
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", LabelWarning)  # words and blanks were read, and what they lack was told
                detector.fit(X, self.y, calibration_ratio=calibration_ratio, callbacks=callbacks)
        else:
            detector.fit_stream(self.survey, calibration_ratio=calibration_ratio, callbacks=callbacks)
        detector.notes_ = self.notes
        if cross_calibration:
            detector.calibrate()
        if rule is not None and rule.rule == "false_alarm" and detector.calibration_ is not None:
            detector.calibrate(alpha=rule.level)
        elif rule is not None and rule.rule != "contamination":
            detector.set_threshold(rule)
        if rule is None and detector.contamination == "auto":
            _tell_all(self._check_automatic_threshold(detector), on_remark)
        return detector

    def _check_automatic_threshold(self, detector: Detector) -> Iterator[Remark]:
        """Look for labelled anomalies that have lowered the threshold, and for a threshold that misses most of them."""
        is_anomaly, applied = detector.training_labels_ < 0, detector.applied_
        n_known = int(is_anomaly.sum())
        known = count_text(n_known, "labelled anomaly", "labelled anomalies")
        if applied is not None and applied.chosen_by == "missed anomalies" and applied.usual is not None:
            n_usual = int((detector.training_scores_[is_anomaly] > applied.usual).sum())
            yield Remark("note", f"the usual threshold would flag {n_usual:,} of the {known}: they lower it.")
        n_flagged = int((detector.training_totals_[is_anomaly] > detector.threshold_).sum())
        if 2 * n_flagged < n_known and self.label_counts().n_anomaly < self.n_rows:
            yield Remark(
                "warning",
                f"the automatic threshold flags {n_flagged:,} of the {known}. To flag more rows, fit the threshold "
                "with `from_labels`, or with `contamination` and the share to flag.",
            )

    def summarize(self, detector: Detector) -> dict[str, Any]:
        """What a detector just fitted does on the rows it learned from, those held out for a calibration included."""
        calibration, scores = detector.calibration_, detector.training_totals_
        if self.survey is None and calibration is not None and calibration.kind == "held out":
            scores = np.append(scores, calibration.parts[0])
        flagged, is_anomaly = scores > detector.threshold_, detector.training_labels_ < 0
        assert detector.applied_ is not None and detector.applied_.forecast is not None
        found: dict[str, Any] = {
            "threshold": detector.threshold_,
            "threshold_rule": str(detector.applied_),
            "forecast": detector.applied_.forecast.to_json(),
            "n_flagged": int(flagged.sum()),
            "flagged_ratio": float(flagged.mean()),
            "n_sample": None if self.survey is None else len(self.X),
            "n_calibration": 0 if calibration is None else calibration.n_rows,
            "why": getattr(detector, "why_", None),
        }
        if is_anomaly.any():
            found["n_labelled_anomaly_flagged"] = int(flagged[: len(is_anomaly)][is_anomaly].sum())
            found["n_labelled_anomaly"] = int(is_anomaly.sum())
        return found

    def check_rule(
        self,
        rule: Threshold | None,
        detector: Detector,
        *,
        calibration_ratio: float | None = None,
        cross_calibration: bool = False,
    ) -> None:
        """Refuse now what `fit` could not do: learn without labels, or set a threshold that these rows cannot bear.

        Parameters are those of `fit`.
        """
        self._check_labels(detector)
        n_calibration = self._n_calibration(detector, calibration_ratio)
        if cross_calibration and calibration_ratio is not None:
            raise InputError("Give `calibration_ratio` or `cross_calibration`, not both.")
        if cross_calibration and not self._n_held_out(detector):
            raise InputError(
                "`cross_calibration` needs a method whose members leave rows out, and 20 unlabelled rows or more. "
                "Take `calibration_ratio`."
            )
        if rule is None:
            return
        if rule.rule != "false_alarm":
            rule.fit(np.zeros(len(self.X)), self.y)
        elif n_calibration:
            rule.fit(np.zeros(n_calibration))
        else:
            self._check_false_alarm(rule, detector)

    def _check_labels(self, detector: Detector) -> None:
        """Name what says where labels are, if nothing does and the method cannot do without."""
        if self.y is None and "anomaly" in detector.labels_needed:
            ways = "sub-folders or `labels_csv`" if self.kind == "images" else "`label_column`"
            raise LabelError(
                f"{type(detector).__name__} learns from labelled anomalies, and nothing says which these are. Give "
                f"{ways}, or take a method that can do without: see `esad methods`."
            )

    def _n_calibration(self, detector: Detector, ratio: float | None) -> int:
        """How many rows a calibration will hold out; a share that leaves none is refused."""
        if ratio is None:
            return 0
        if self.survey is not None:
            check_share("`calibration_ratio`", ratio)
            return self.survey.n_calibration(ratio)
        return int(draw_calibration(self.labels, ratio, seed_from(detector.random_state)).sum())

    def _n_held_out(self, detector: Detector) -> int:
        """How many unlabelled rows some member will leave out."""
        return 0 if self.survey is not None else detector.n_held_out(self.kind, self.label_counts().n_unlabelled)

    def _check_false_alarm(self, rule: Threshold, detector: Detector) -> None:
        """Refuse a rate for which too few rows will be left: of the unlabelled, only those a member has not seen."""
        counts = self.label_counts()
        if self.survey is not None:
            if error := _find_refusal(rule, LabelCounts(0, self.survey.n_held_out(), 0)):
                raise error
            return
        n_members, n_held_out = detector.n_leaving_out(self.kind), self._n_held_out(detector)
        error = _find_refusal(rule, replace(counts, n_unlabelled=n_held_out or counts.n_unlabelled))
        if error is None:  # too few to hold any out: all of them are taken
            return
        if not n_members or not n_held_out:
            raise error
        advice = "Unlabelled rows count if a member leaves them out of its training: "
        advice += f"{n_held_out:,} of {counts.n_unlabelled:,} with {count_text(n_members, 'member')}."
        most = n_members if "n_members" not in detector.get_params() else N_PARTS
        for number in range(n_members + 1, most + 1):
            if _find_refusal(rule, replace(counts, n_unlabelled=n_held_out_rows(counts.n_unlabelled, number))) is None:
                advice += f" `n_members={number}` would do."
                break
        raise InputError(f"{error} {advice}") from error


def _find_refusal(rule: Threshold, counts: LabelCounts) -> InputError | None:
    """Why the rule cannot be used with so many rows of each kind, if so."""
    numbers = [counts.n_unlabelled, counts.n_normal, counts.n_anomaly]
    y = np.repeat(np.array([0, 1, -1], dtype=np.int8), numbers)
    try:
        rule.fit(np.zeros(len(y)), y)
    except InputError as error:
        return error
    return None


# ---------------------------------------------------------------------- checks


def mention_broken(broken: Mapping[str, str], on_remark: OnRemark = checks.tell) -> None:
    """Point at pictures that are left out."""
    if broken:
        left_out = count_text(len(broken), "picture that cannot be read is", "pictures that cannot be read are")
        on_remark(Remark("warning", f"{left_out} left out: {list_text(sorted(broken))}."))


def _check_table_options(labels_csv: object, skip_broken: bool, resize: Resize | Literal["auto"] = None) -> None:
    if labels_csv is not None:
        raise InputError("`labels_csv` is for a folder of pictures. For a table give `label_column`.")
    if skip_broken:
        raise InputError("`skip_broken` is for a folder of pictures. A table that is broken must be mended.")
    if resize not in ("auto", None):
        raise InputError("`resize` is for a folder of pictures.")


def _choose_longest_side(detector: Detector | None) -> int:
    """Pixels that pictures may be long and wide: a training takes as many times longer as they have more of them."""
    device = resolve_device(getattr(detector, "device", "auto"))
    return LONGEST_SIDE["cpu" if device.type == "cpu" else "gpu"]


def _check_enough(path: Path, number: int, noun: str) -> None:
    if number < 2:
        held = count_text(number, noun)
        raise DataFileError(f"Cannot learn from {str(path)!r}: it holds {held}. Give two or more.{sheets_hint(path)}")


def _tell_all(remarks: Iterator[Remark] | Sequence[Remark], on_remark: OnRemark) -> None:
    for remark in remarks:
        on_remark(remark)


@contextmanager
def _tell_how_to_skip() -> Iterator[None]:
    """Name what helps where a picture cannot be read."""
    try:
        yield
    except PictureFileError as error:
        raise DataFileError(f"{error} Mend or remove it, or leave all such pictures out with `skip_broken`.") from error


# ---------------------------------------------------------------------- whole


def _read_table(path: Path, data: TableFiles, roles: Roles, on_remark: OnRemark) -> TrainingData:
    columns = roles.features(data.names)
    named = [] if roles.id_column is None else [roles.id_column]
    rows = data.read([*columns, *named], label_column=roles.label_column, text=roles.text)
    _check_enough(path, rows.num_rows, "row")
    y = None if roles.label_column is None else roles.labels(rows[roles.label_column])
    ids = None if roles.id_column is None else rows[roles.id_column].to_pylist()
    features = rows.select(columns)
    table = Table.from_any(features)
    statistics = TableStatistics.of(table, reference_rows(np.zeros(len(features), dtype=np.int8) if y is None else y))
    schema, left_out = _check_columns(path, features, statistics.schema, roles, on_remark)
    if left_out:
        features, table = features.select(schema.names), table.select(schema.names)
        statistics.leave_out(left_out)
    counted_table = replace(table, statistics=statistics)
    return TrainingData(X=features, y=y, roles=roles, schema=schema, ids=ids, left_out=left_out, _table=counted_table)


def _check_columns(
    path: Path, X: pa.Table, schema: Schema, roles: Roles, on_remark: OnRemark
) -> tuple[Schema, tuple[str, ...]]:
    """Tell what looks odd; the schema without columns of text that is different in every row, and these columns."""
    _tell_all(checks.check_texts(X, schema, as_text=roles.text), on_remark)
    left_out = tuple(column.name for column in schema.columns if column.proposes_id)
    if len(left_out) == len(schema.columns):
        raise DataFileError(
            f"{str(path)!r} has only columns of text that differs in every row: {list_text(left_out)}. Give numbers, "
            "dates or words that repeat; columns are parted by commas, semicolons, tabs or |."
        )
    kept = replace(schema, columns=tuple(column for column in schema.columns if not column.proposes_id))
    _tell_all(checks.check_kinds(X.select(kept.names), kept, label_column=roles.label_column), on_remark)
    return kept, left_out


def _read_pictures(
    path: Path, folder: PictureFolder, roles: Roles, from_csv: bool, on_remark: OnRemark
) -> TrainingData:
    with _tell_how_to_skip():
        pictures = folder.read()
    _check_enough(path, len(pictures.images), "picture")
    broken = folder.broken or {}
    mention_broken(broken, on_remark)
    words = pictures.label_words
    y = None if words is None else roles.picture_labels(path, words, from_csv=from_csv)
    return TrainingData(X=pictures.images, y=y, roles=roles, ids=list(pictures.ids), broken=broken)


# ---------------------------------------------------------------------- in parts


def _read_parts(
    path: Path,
    data: TableFiles | PictureFolder,
    roles: Roles,
    from_csv: bool,
    detector: Detector | None,
    on_remark: OnRemark,
    on_progress: OnProgress | None,
) -> TrainingData:
    """Read all rows once, part by part."""
    tell = on_progress or (lambda what, n_more, n_in_all: None)
    stream: TableStream | PictureStream
    if isinstance(data, TableFiles):
        n_bytes = sum(file.stat().st_size for file in data.files)
        stream = TableStream(data, roles, on_bytes=lambda n_more: tell("looking", n_more, n_bytes))
        _check_enough(path, stream.n_rows, "row")
    else:
        words = data.label_words
        stream = PictureStream(data, None if words is None else roles.picture_labels(path, words, from_csv=from_csv))
    if detector is not None:
        detector.check_stream()
    seed = 0 if detector is None else seed_from(detector.random_state)
    with _tell_how_to_skip():
        survey = Survey.of(stream, seed=seed, on_block=lambda n_rows: tell("reading", n_rows, stream.n_rows))
    broken = (data.broken if isinstance(data, PictureFolder) else None) or {}
    mention_broken(broken, on_remark)
    schema: Schema | None = None
    left_out: tuple[str, ...] = ()
    if survey.kind == "table":
        sample = survey.unlabelled.rows(0, len(survey.unlabelled))
        schema, left_out = _check_columns(path, sample, survey.statistics.schema, roles, on_remark)
        survey.leave_out(left_out)
    X, y = survey.held_out()
    has_labels = survey.counts.n_anomaly + survey.counts.n_normal > 0
    return TrainingData(
        X=X,
        y=y if has_labels else None,
        roles=roles,
        schema=schema,
        left_out=left_out,
        broken=broken,
        survey=survey,
    )
