"""The scikit-learn face shared by every method: fit, score, decide, save.

Directions, defined here once: `anomaly_score` is higher for the more anomalous; `score_samples` is its negative;
`decision_function = score_samples - offset_`; `predict` gives -1 for an alarm and +1 otherwise. A row is an alarm
when its anomaly score is greater than `threshold_ = -offset_`.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import narwhals as nw
import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OutlierMixin
from sklearn.utils import Tags
from torch import nn

from esad import labels
from esad.core.arguments import is_auto
from esad.core.arrays import Arrays, Labels, Rows, State
from esad.core.random import draw_calibration, n_held_out_rows, seed_from
from esad.detectors import model_file
from esad.detectors.decisions import Decider, TrainingScores
from esad.detectors.streaming import Portion, Survey
from esad.errors import InputError, LabelError
from esad.explain.attribution import Attribution, number_patches, occlude_units
from esad.explain.cases import Cases
from esad.explain.reasons import HeatMaps, Reasons
from esad.io.checks import check_texts
from esad.io.stream import Stream
from esad.labels import reference_rows
from esad.preprocess.inputs import Inputs, read_rows
from esad.preprocess.sketch import sketch_rows
from esad.score.conformal import Calibration
from esad.score.threshold import Threshold
from esad.table.profile import MAX_ROWS, Profile, draw_profiled_rows
from esad.table.table import Schema, Table, take_rows
from esad.train.callbacks import Callback

__all__ = ["Detector", "TrainingScores", "warn_of_texts"]


class Detector(Decider, OutlierMixin, BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """Base of all methods. A method says what it can do, how to fit rows, how to score them and what its state is.

    Parameters
    ----------
    contamination : "auto" or float
        Share of the training rows to flag; "auto" takes what labels and unlabelled rows tell.
    random_state : int, RandomState or None
        What random numbers begin with: a whole number gives the same model again.

    Attributes
    ----------
    summary : str
        The method in a line.
    takes : tuple of {"table", "images"}
    labels_used, labels_needed : tuple of {"anomaly", "unlabelled", "normal"}
        Rows that it learns from, and those that it cannot do without.
    can_stream : bool
        Whether it can learn from rows that are not all at hand: `fit_stream`.
    can_export : bool
        Whether its score is written as tensor operations, which `esad.export` needs.
    not_exported : str
        Why not, where it is not.
    """

    summary: ClassVar[str]
    takes: ClassVar[tuple[str, ...]] = ("table", "images")
    labels_used: ClassVar[tuple[str, ...]] = ("anomaly", "unlabelled", "normal")
    labels_needed: ClassVar[tuple[str, ...]] = ()
    can_stream: ClassVar[bool] = False
    can_export: ClassVar[bool] = False
    not_exported: ClassVar[str] = "its score is not written as tensor operations"

    scaling = "standard"  # of the columns of a table; an argument where a method makes it one
    contamination: float | str
    random_state: int | np.random.RandomState | None

    # ------------------------------------------------------------------ what a method says

    @abstractmethod
    def _fit_rows(self, rows: Rows, y: Labels, callbacks: Sequence[Callback]) -> TrainingScores:
        """Train on preprocessed rows and labels -1, 0, +1, and score those rows."""

    @abstractmethod
    def _state(self) -> State:
        """What the method learned, as arrays and plain values."""

    @abstractmethod
    def _restore(self, arrays: Arrays, plain: Any) -> None:
        """Undo `_state`, checking everything."""

    def _fit_portion(self, portion: Portion, callbacks: Sequence[Callback]) -> TrainingScores:
        """Train on a stream and score rows that the training has not seen, then the labelled ones: `can_stream`."""
        raise NotImplementedError

    def _terms_module(self) -> nn.Module:
        """The score as a torch module: `can_export`.

        Rows (n, *features) of float32 -> what each term adds to each member's score, by name, (members, n) of float64.
        """
        raise NotImplementedError

    def _on_cpu(self) -> Self:
        """The same detector on the CPU."""
        return self

    def n_leaving_out(self, kind: str) -> int:
        """How many members leave a part of the unlabelled rows out of their training on "table" or "images".

        Thresholds and p-values rest on rows that some member has not seen. 0 where all members see all rows, and for
        a number of members that `fit` will refuse.
        """
        return 0

    def n_held_out(self, kind: str, n_unlabelled: int) -> int:
        """How many of the unlabelled rows `fit` will also score by a member that has not seen them."""
        n_members = self.n_leaving_out(kind)
        return n_held_out_rows(n_unlabelled, n_members) if n_members else 0

    # ------------------------------------------------------------------ fit

    def fit(
        self,
        X: Any,
        y: ArrayLike | None = None,
        *,
        calibration_ratio: float | None = None,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Learn from rows or pictures and a few labels.

        Parameters
        ----------
        X : array, pandas, polars or arrow table, or pictures
            (n, columns), or (n, H, W), (n, H, W, C), (n, C, H, W).
        y : array-like of -1, 0, +1, optional
            -1 anomaly, 0 unlabelled, +1 normal; missing values are unlabelled. None: nothing is labelled.
        calibration_ratio : float, optional
            Hold this share of the unlabelled rows (without any: of the known normal ones) out of the training, to
            calibrate `p_value` with.
        callbacks : sequence of Callback
            Watch, checkpoint or stop the training.

        Returns
        -------
        self
        """
        data, checked = self._read(X, y)
        whole, held_out = data, None
        if calibration_ratio is not None:
            data = data.settle() if isinstance(data, Table) else data
            chosen = draw_calibration(checked, calibration_ratio, seed_from(self.random_state))
            held_out, data, checked = take_rows(data, chosen), take_rows(data, ~chosen), checked[~chosen]
        rows = self._learn_inputs(data, checked)
        warn_of_texts(X, whole, self.inputs_.schema)
        self.decide(self._fit_rows(rows, checked, callbacks), checked, held_out)
        return self

    def fit_stream(
        self, source: Stream | Survey, *, calibration_ratio: float | None = None, callbacks: Sequence[Callback] = ()
    ) -> Self:
        """Learn from rows or pictures that do not fit into memory.

        One pass learns the preprocessing and keeps a uniform sample and the labelled rows; the training then draws from
        rows at hand that are replaced by others of the stream once all have been drawn. A tenth of the sample, 50,000
        rows at most, stays out of the training: thresholds and drift rest on these rows.

        Parameters
        ----------
        source : Stream or Survey
            From `esad.io.stream.open_stream`; or what a pass over it told already, of the same seed.
        calibration_ratio : float, optional
            As in `fit`; a calibration gets 50,000 rows at most.
        callbacks : sequence of Callback
            Watch, checkpoint or stop the training.

        Examples
        --------
        >>> import tempfile, numpy as np, pyarrow as pa, pyarrow.parquet as pq
        >>> from esad import ESAD
        >>> from esad.io.stream import open_stream
        >>> columns = np.random.default_rng(0).normal(size=(3, 500))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pq.write_table(pa.table(dict(zip("abc", columns))), f"{folder}/part-0.parquet")
        ...     detector = ESAD(n_epochs=2, random_state=0).fit_stream(open_stream(folder))
        >>> detector.label_counts_.n_unlabelled
        500
        """
        self._forget()
        self.check_stream()
        survey = source if isinstance(source, Survey) else Survey.of(source, seed=seed_from(self.random_state))
        self._check_kind(survey.kind)
        n_calibration = survey.n_calibration(calibration_ratio)
        self.inputs_ = survey.inputs(scaling=self.scaling, estimator=type(self).__name__)
        portion = Portion.of(survey, self.inputs_, n_calibration=n_calibration)
        self._check_needed(portion.y)
        described = read_rows(survey.unlabelled.rows(n_calibration, n_calibration + MAX_ROWS))
        self._describe_inputs(portion.rows, portion.y, described)
        if survey is not source:
            warn_of_texts(None, described, self.inputs_.schema)
        self.label_counts_ = survey.counts
        held_out = read_rows(survey.unlabelled.rows(0, n_calibration)) if n_calibration else None
        self.decide(self._fit_portion(portion, callbacks), portion.scored_y, held_out)
        return self

    def check_stream(self) -> None:
        """Refuse, before anything is read, what `fit_stream` cannot do with this detector."""
        if not self.can_stream:
            raise InputError(
                f"{type(self).__name__} looks at all rows at once and cannot learn from a stream. Take ESAD or another "
                "method that is trained in steps, or give data that fits into memory."
            )
        self._threshold_rule()

    def decide(self, scores: TrainingScores, checked: Labels, held_out: Table | NDArray[Any] | None = None) -> None:
        """Keep the scores of the training rows and set the threshold; calibrate with rows that were held out."""
        threshold = self._threshold_rule()
        self.training_scores_, self.training_labels_ = scores.held_out, checked
        self.training_totals_ = scores.total
        self.training_unseen_by_, self.training_unseen_ = scores.unseen_by, scores.is_unseen()
        if threshold.rule == "contamination":  # a share of these very rows, as scikit-learn means it
            applied = threshold.apply(scores.total, checked, basis="training")
            applied = replace(applied, forecast=self._forecast(applied.value))
        else:
            applied = self._fit_to_training(threshold)
        self._take_threshold(applied)
        if held_out is not None:
            held_out_scores = self.score_rows(self.inputs_.rows_of(held_out))
            self.calibration_ = Calibration.of([held_out_scores], "held out")

    def _read(self, X: Any, y: ArrayLike | None) -> tuple[Table | NDArray[Any], Labels]:
        """Check what was given and forget an earlier fit."""
        self._forget()
        data = read_rows(X)
        n_rows = data.n_rows if isinstance(data, Table) else len(data)
        self._check_kind("table" if isinstance(data, Table) else "images")
        if n_rows < 2:
            raise InputError(f"{type(self).__name__} cannot learn from {n_rows} sample: give two rows or more.")
        self._threshold_rule()  # refuses a wrong one before anything takes long
        _warn_of_another_order(X, y)
        return data, labels.check(y, n_rows)

    def _forget(self) -> None:
        """A fit that fails must not leave half of an old one."""
        for name in [name for name in vars(self) if name.endswith("_")]:
            delattr(self, name)

    def _check_kind(self, kind: str) -> None:
        if kind not in self.takes:
            words = {"table": "tables", "images": "pictures"}
            taken = " and ".join(words[taken] for taken in self.takes)
            raise InputError(f"{type(self).__name__} takes {taken}. Got {words[kind]}.")

    def _learn_inputs(self, data: Table | NDArray[Any], checked: Labels) -> Rows:
        """Learn the preprocessing from the rows to train on, and give them preprocessed."""
        self._check_needed(checked)
        self.inputs_, rows = Inputs.fit(data, checked, scaling=self.scaling, estimator=type(self).__name__)
        self._describe_inputs(rows, checked, take_rows(data, draw_profiled_rows(reference_rows(checked))))
        return rows

    def _describe_inputs(self, rows: Rows, y: Labels, profiled: Table | NDArray[Any]) -> None:
        """Keep what a model tells of its training rows; `profiled` are some of them, as they came, for the profile."""
        self._describe_features()
        self.label_counts_ = labels.counts(y)
        self.fingerprint_ = _fingerprint(rows, y)
        self.sketch_ = sketch_rows(rows)
        self.cases_ = Cases.of(rows, y)
        self.notes_: dict[str, Any] = {}
        self.calibration_ = None
        self.profile_ = Profile.fit(self.inputs_.describe(profiled))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "offset_")

    def learned_from(self, X: Any, y: ArrayLike | None = None) -> bool:
        """Whether these are the rows and labels of the training, in the same order.

        Examples
        --------
        >>> import numpy as np
        >>> from esad import IsolationForest
        >>> X = np.random.default_rng(0).normal(size=(30, 2))
        >>> forest = IsolationForest(random_state=0).fit(X)
        >>> forest.learned_from(X), forest.learned_from(X[:20])
        (True, False)
        """
        rows = self.rows_of(X)
        return _fingerprint(rows, labels.check(y, len(rows))) == self.fingerprint_

    def fit_predict(self, X: Any, y: ArrayLike | None = None, **kwargs: Any) -> NDArray[np.int64]:
        """`fit(X, y)`, then `predict(X)`."""
        return self.fit(X, y, **kwargs).predict(X)

    # ------------------------------------------------------------------ explain

    def explain(self, X: Any, *, cases: tuple[Any, ArrayLike] | None = None, n_cases: int = 3) -> Reasons | HeatMaps:
        """Which columns or pixels make the score of each row, and what was expected in their place.

        Meant for the rows one looks at: it costs hundreds of times as much as scoring.

        Parameters
        ----------
        X : as in `anomaly_score`
        cases : (X, y), optional
            Labelled rows to be held against, -1 and +1. By default those of training; a model file has them only if
            it was saved with `with_cases=True`.
        n_cases : int
            How many of the nearest labelled cases are named.

        Returns
        -------
        Reasons or HeatMaps
            `Reasons` for a table, `HeatMaps` for pictures.
        """
        rows = self.rows_of(X)
        known = getattr(self, "cases_", None)
        if cases is not None:
            labelled = self.rows_of(cases[0])
            known = Cases.of(labelled, labels.check(cases[1], len(labelled), warn=False))
        expected = self._find_expected(rows)
        found = self._attribute(rows, expected)
        terms = self._contributions(rows)
        answers: dict[str, Any] = {
            "score": np.sum(list(terms.values()), axis=0),
            "terms": terms,
            "base": found.base,
            "cases": known.nearest(rows, n_cases) if known is not None and len(known) and n_cases else (),
        }
        if self.inputs_.schema is None:
            maps = {name: value.reshape(len(rows), *rows.shape[2:]) for name, value in found.shares.items()}
            is_rebuilt = self._rebuilds_pictures()
            shown = expected if is_rebuilt else np.broadcast_to(self.inputs_.typical, rows.shape)
            return HeatMaps(shares=maps, pictures=rows, expected=shown, is_rebuilt=is_rebuilt, **answers)
        observed = np.stack(self.inputs_.read_cells(X), axis=1)
        is_missing = np.array([[cell is None for cell in row] for row in observed])  # a value is expected there
        seen, cells = (np.stack(self.inputs_.cells(each, is_missing), axis=1) for each in (rows, expected))
        is_same = (seen == cells) & ~is_missing  # as the model sees them: all rare texts are one to it
        cells = np.where(is_same.astype(bool), observed, cells)
        return Reasons(
            shares=found.shares, columns=self.inputs_.schema.names, observed=observed, expected=cells, **answers
        )

    def _find_expected(self, rows: Rows) -> Rows:
        """What the model expects in place of the rows; the typical row where it cannot tell."""
        return np.broadcast_to(self.inputs_.typical, rows.shape)

    def _rebuilds_pictures(self) -> bool:
        """Whether a picture has an expectation of its own, one that says what would be normal in its place."""
        return False

    def _attribute(self, rows: Rows, expected: Rows) -> Attribution:
        """Shares of columns (n, columns) or pixels (n, height x width) in the terms of the score."""
        if rows.ndim == 2:
            return occlude_units(self._contributions, rows, expected, self.inputs_.columns)
        patch = number_patches(self.inputs_.shape).ravel()
        found = occlude_units(self._contributions, rows, expected, np.tile(patch, rows.shape[1]))
        by_pixel = {name: (share / np.bincount(patch))[:, patch] for name, share in found.shares.items()}
        return Attribution(by_pixel, found.base)

    # ------------------------------------------------------------------ files

    def save(self, path: str | os.PathLike[str], *, with_cases: bool = False) -> None:
        """Write the fitted detector to one `.esad` file: safetensors + JSON, never pickle.

        Parameters
        ----------
        path : str or path-like
        with_cases : bool
            Also write the labelled training rows, so that `explain` can name the nearest of them later on. Whoever
            has the file can then read those rows.
        """
        model_file.save(self, path, with_cases=with_cases)

    # ------------------------------------------------------------------ inside

    def _threshold_rule(self) -> Threshold:
        if is_auto(self.contamination):
            return Threshold("auto")
        if not isinstance(self.contamination, int | float | np.number) or not 0 < self.contamination <= 0.5:
            raise InputError(
                f"`contamination` must be 'auto' or a share above 0 and at most 0.5. Got {self.contamination!r}. "
                "For 5 % write 0.05."
            )
        return Threshold("contamination", self.contamination)

    def _check_needed(self, y: Labels) -> None:
        """Refuse to train without the kinds of rows that the method cannot do without."""
        meant = {"anomaly": labels.ANOMALY, "unlabelled": labels.UNLABELLED, "normal": labels.NORMAL}
        for kind in self.labels_needed:
            if not (y == meant[kind]).any():
                named = {"anomaly": "labelled anomalies (-1)", "normal": "labelled normal rows (+1)"}
                raise LabelError(
                    f"{type(self).__name__} learns from {named.get(kind, 'unlabelled rows (0)')} and needs one at "
                    "least. Got none. Other methods can do without: see `esad methods`."
                )

    def inform(self, other: Detector) -> None:
        """Give another detector, which is to judge the same rows, the preprocessing and what is known of the rows."""
        other.inputs_, other.label_counts_, other.fingerprint_ = self.inputs_, self.label_counts_, self.fingerprint_
        other.sketch_ = self.sketch_
        other.notes_, other.calibration_, other.profile_, other.applied_ = {}, None, None, None
        other._describe_features()

    def _describe_features(self) -> None:
        """scikit-learn's attributes about the columns; pictures have none."""
        schema = self.inputs_.schema
        if schema is not None:
            self.n_features_in_ = len(schema.columns)
            if schema.named:
                self.feature_names_in_ = np.asarray(schema.names, dtype=object)

    def plain_parameters(self) -> dict[str, Any]:
        """The constructor's arguments as JSON, for files and reports."""
        parameters = self.get_params(deep=False)
        if isinstance(self.random_state, np.random.RandomState | np.random.Generator):
            parameters["random_state"] = None  # a live generator cannot be saved; the fitted model does not need it
        return {name: _to_plain(value) for name, value in parameters.items()}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = bool(self.labels_needed)
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _warn_of_another_order(X: Any, y: Any) -> None:
    """Point at labels of pandas that have the index of the rows, but in another order: they are taken as they stand."""
    if not (nw.dependencies.is_pandas_dataframe(X) and nw.dependencies.is_pandas_like_index(getattr(y, "index", None))):
        return
    if len(X) == len(y) and not X.index.equals(y.index) and X.index.sort_values().equals(y.index.sort_values()):
        warnings.warn(
            "`y` has the index of `X` in another order, and its labels are taken in the order they stand in. If they "
            "belong to the rows of the same name, pass y.loc[X.index].",
            UserWarning,
            stacklevel=4,
        )


def warn_of_texts(X: Any, data: Table | NDArray[Any], schema: Schema | None) -> None:
    """Point at text that was probably meant otherwise: numbers and dates written as text, and ids."""
    if schema is None or not isinstance(data, Table) or isinstance(X, Table):
        return  # whoever has read a table himself has looked at it
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    types = frame.schema.dtypes() if isinstance(frame, nw.DataFrame) else [None] * data.n_columns
    for index, (column, type_) in enumerate(zip(schema.columns, types, strict=True)):
        if column.kind != "category" or isinstance(type_, nw.Categorical | nw.Enum):  # categories on purpose
            continue
        texts = pa.table({column.name: data.values(index).array})
        doubts = [remark.text for remark in check_texts(texts, replace(schema, columns=(column,)))]
        if column.proposes_id and not doubts:
            doubts = [
                f"column {column.name!r} holds other text in every row, as an id does: nothing true is learned from "
                "it. Drop it, or convert it if these are numbers."
            ]
        for doubt in doubts:
            warnings.warn(doubt[0].upper() + doubt[1:], UserWarning, stacklevel=3)


def _fingerprint(rows: Rows, y: Labels) -> str:
    """Short hash of the preprocessed training data and labels."""
    digest = hashlib.sha256(repr(rows.shape).encode())
    digest.update(np.ascontiguousarray(rows).data)
    digest.update(np.ascontiguousarray(y).data)
    return digest.hexdigest()[:16]


def _to_plain(value: Any) -> Any:
    """A constructor argument as JSON."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
        return [_to_plain(item) for item in value]
    return value
