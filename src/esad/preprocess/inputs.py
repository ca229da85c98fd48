"""One face over tables and pictures: what was given to `fit` or `score`, as the rows a method works on."""

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.arrays import Arrays, Labels, Rows
from esad.errors import InputError, SchemaError
from esad.labels import reference_rows
from esad.preprocess.image import ImagePreprocessor, as_images
from esad.table.encode import TabularPreprocessor
from esad.table.table import Schema, Table, expect

SCALINGS = ("standard", "minmax")


def is_images(X: Any) -> bool:
    """Tell whether `X` has the dimensions of pictures, without looking at its values.

    Parameters
    ----------
    X : object
        Anything given to a detector.

    Returns
    -------
    bool
        True for arrays and nested lists of three or four dimensions.

    Examples
    --------
    >>> is_images(np.zeros((10, 28, 28))), is_images([[1.0, 2.0]])
    (True, False)
    """
    if hasattr(X, "shape"):
        return len(X.shape) in (3, 4)
    depth = 0
    while isinstance(X, list | tuple) and len(X) > 0:
        depth, X = depth + 1, X[0]
    return depth + len(getattr(X, "shape", ())) in (3, 4)


def read_rows(X: Any) -> Table | NDArray[Any]:
    """A table, or pictures as an array (n, channels, height, width); what was read as a table stays as it is."""
    if isinstance(X, Table):
        return X
    return as_images(X) if is_images(X) else Table.from_any(X)


def _check_scaling(scaling: str) -> None:
    if scaling not in SCALINGS:
        raise InputError(f"`scaling` must be one of {', '.join(SCALINGS)}. Got {scaling!r}.")


class Inputs:
    """The fitted way from a user's data to float32 rows.

    Parameters
    ----------
    preprocessor : TabularPreprocessor or ImagePreprocessor
        Fitted.
    minimum, span : ndarray or None
        Per-feature scale to [0, 1] on top, for scaling="minmax" (Deep SAD's protocol for tables).
    mean_picture : ndarray or None
        Mean of the presumed normal training pictures; None for tables, and in files of before it was kept.
    estimator : str
        Name of the detector, for messages.

    Attributes
    ----------
    kind : {"table", "images"}
        What it takes.
    schema : Schema or None
        The columns of a table; None for pictures.
    shape : tuple of int
        Of one transformed row: (features,) or (channels, height, width).
    described_names : tuple of str
        The columns of `describe`.
    """

    schema: Schema | None
    shape: tuple[int, ...]

    def __init__(
        self,
        preprocessor: TabularPreprocessor | ImagePreprocessor,
        *,
        minimum: Rows | None = None,
        span: Rows | None = None,
        mean_picture: Rows | None = None,
        estimator: str = "ESAD",
    ) -> None:
        self.preprocessor = preprocessor
        self.minimum, self.span = minimum, span
        self.mean_picture, self.estimator = mean_picture, estimator
        if isinstance(preprocessor, TabularPreprocessor):
            self.kind, self.schema, self.shape = "table", preprocessor.schema_, (preprocessor.n_features_out_,)
            self.described_names = preprocessor.schema_.names
        else:
            self.kind, self.schema, self.shape = "images", None, preprocessor.shape_
            self.described_names = _name_measures(n_channels=preprocessor.shape_[0])

    @property
    def typical(self) -> Rows:
        """A typical row, of shape `shape`: the mean of the presumed normal training rows; mid-grey if unknown."""
        if self.kind == "table":
            return self._rescale(np.zeros(self.shape, dtype=np.float32))  # features are standardised
        return np.full(self.shape, 0.5, dtype=np.float32) if self.mean_picture is None else self.mean_picture

    @property
    def _tabular(self) -> TabularPreprocessor:
        """The preprocessing of a table, where there is one."""
        assert isinstance(self.preprocessor, TabularPreprocessor)
        return self.preprocessor

    @property
    def columns(self) -> NDArray[np.intp]:
        """The column behind each feature of a table."""
        return self._tabular.feature_sources_

    def read_cells(self, X: Any) -> list[NDArray[Any]]:
        """The cells of a table that `transform` takes, in training order, one object array per column."""
        schema = self._tabular.schema_
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `transform` has given them
            table = schema.align(X if isinstance(X, Table) else Table.from_any(X))
        return [_as_cells(table.column(index), kind) for index, kind in enumerate(schema.kinds)]

    def cells(self, rows: NDArray[Any], has_value: NDArray[np.bool_] | None = None) -> list[NDArray[Any]]:
        """Rows of a table in the user's own units and categories, one object array per column.

        A column that never varied in training is given as it was then, whatever the row says. `has_value` as for
        `TabularPreprocessor.cells`.
        """
        constant = [column.is_constant for column in self._tabular.schema_.columns]
        rows = np.where(np.array(constant)[self.columns], self.typical, rows)
        if self.minimum is not None and self.span is not None:
            rows = rows * self.span + self.minimum
        return self._tabular.cells(rows, has_value)

    @classmethod
    def fit(
        cls, data: Table | NDArray[Any], y: Labels, *, scaling: str, estimator: str = "ESAD"
    ) -> tuple["Inputs", Rows]:
        """Learn all scales from the presumed normal rows and give every row transformed."""
        _check_scaling(scaling)
        reference = reference_rows(y)
        if isinstance(data, Table):
            tabular = TabularPreprocessor().fit(data, reference)
            inputs, rows = cls(tabular, estimator=estimator), tabular.transform(data)
        else:
            image = ImagePreprocessor().fit(data, reference)
            rows = image.transform(data)
            mean_picture = rows[reference].mean(axis=0, dtype=np.float64).astype(np.float32)
            inputs = cls(image, mean_picture=mean_picture, estimator=estimator)
        if scaling == "minmax" and inputs.kind == "table":
            inputs._set_limits(rows[reference])
            rows = inputs._rescale(rows)
        return inputs, rows

    @classmethod
    def of_table(
        cls, preprocessor: TabularPreprocessor, sample: Table, *, scaling: str, estimator: str = "ESAD"
    ) -> "Inputs":
        """Take a fitted preprocessing; "minmax" gets its limits from a sample of the presumed normal rows."""
        _check_scaling(scaling)
        inputs = cls(preprocessor, estimator=estimator)
        if scaling == "minmax":
            inputs._set_limits(preprocessor.transform(sample))
        return inputs

    def _set_limits(self, rows: Rows) -> None:
        self.minimum = rows.min(axis=0)
        span = rows.max(axis=0) - self.minimum
        self.span = np.where(span > 0, span, np.float32(1))

    def transform(self, X: Any) -> Rows:
        """New data as rows; the wrong kind of data is an error."""
        return self.rows_of(read_rows(X))

    def rows_of(self, data: Table | NDArray[Any]) -> Rows:
        """The same for data that was read already."""
        if isinstance(data, Table) != (self.kind == "table"):
            wanted, came = ("a table", "pictures") if self.kind == "table" else ("pictures", "a table")
            shape = (data.n_rows, data.n_columns) if isinstance(data, Table) else data.shape
            raise SchemaError(f"This {self.estimator} was trained on {wanted}. Got {came} of shape {shape}.")
        if isinstance(data, Table):
            return self._rescale(self._tabular.transform(data, estimator=self.estimator))
        assert isinstance(self.preprocessor, ImagePreprocessor)
        return self.preprocessor.transform(data)

    def describe(self, data: Table | NDArray[Any]) -> Table:
        """What data can be told apart by, column by column: the table itself, or brightness and contrast of pictures.

        Examples
        --------
        >>> pictures = np.zeros((3, 1, 4, 4), dtype=np.uint8)
        >>> inputs, _ = Inputs.fit(pictures, np.zeros(3, dtype=np.int8), scaling="standard")
        >>> inputs.describe(pictures).names
        ('brightness', 'contrast')
        """
        if self.schema is not None and isinstance(data, Table):
            return self.schema.align(data, estimator=self.estimator)
        rows = self.rows_of(data)
        measures = np.concatenate([rows.mean(axis=(2, 3)), rows.std(axis=(2, 3))], axis=1)
        return Table(names=self.described_names, named=True, matrix=measures.astype(np.float64))

    def _rescale(self, rows: Rows) -> Rows:
        return rows if self.minimum is None or self.span is None else (rows - self.minimum) / self.span

    def state(self) -> tuple[Arrays, dict[str, Any]]:
        """Arrays and plain values for the model file."""
        own, plain = self.preprocessor.state()
        arrays: Arrays = dict(own)
        if self.minimum is not None and self.span is not None:
            arrays |= {"minmax.minimum": self.minimum, "minmax.span": self.span}
        described = {"kind": self.kind, "minmax": self.minimum is not None, "preprocessor": plain}
        if self.mean_picture is not None:
            arrays["mean_picture"], described["mean_picture"] = self.mean_picture, True
        return arrays, described

    @classmethod
    def from_state(cls, arrays: Arrays, plain: Any, *, estimator: str = "ESAD") -> "Inputs":
        """Rebuild from `state`, checking everything."""
        expect(isinstance(plain, dict) and plain.get("kind") in ("table", "images"), "the kind of the inputs")
        expect(isinstance(plain.get("minmax"), bool) and "preprocessor" in plain, "parts of the inputs")
        own = {name: value for name, value in arrays.items() if not name.startswith("minmax.")}
        if plain["kind"] == "images":
            mean_picture = own.pop("mean_picture", None)
            image = ImagePreprocessor.from_state(own, plain["preprocessor"])
            claimed = plain.get("mean_picture", False)  # files of before it was kept do not say
            expect(claimed is (mean_picture is not None), "the mean picture is missing, or not claimed")
            expect(mean_picture is None or _is_picture(mean_picture, image.shape_), "the mean picture")
            return cls(image, mean_picture=mean_picture, estimator=estimator)
        tabular = TabularPreprocessor.from_state(own, plain["preprocessor"])
        if not plain["minmax"]:
            return cls(tabular, estimator=estimator)
        scales = [arrays.get(f"minmax.{name}") for name in ("minimum", "span")]
        for scale in scales:
            is_scale = scale is not None and scale.dtype == np.float32 and scale.shape == (tabular.n_features_out_,)
            expect(is_scale and bool(np.isfinite(np.asarray(scale)).all()), "the scales of the inputs")
        return cls(tabular, minimum=scales[0], span=scales[1], estimator=estimator)


def _name_measures(n_channels: int) -> tuple[str, ...]:
    """What pictures are described by."""
    channels = [""] if n_channels == 1 else [f" of channel {channel}" for channel in range(n_channels)]
    return tuple(f"{measure}{channel}" for measure in ("brightness", "contrast") for channel in channels)


def _as_cells(column: NDArray[Any], kind: str) -> NDArray[Any]:
    """One column as float, bool, str and datetime64, None where missing."""
    cells = np.empty(len(column), dtype=object)
    missing = np.isnat(column) if kind == "date" else np.array([cell is None or cell != cell for cell in column])
    cells[:] = list(column) if kind == "date" else column.tolist()
    if kind == "boolean":
        cells[~missing] = column[~missing].astype(bool).tolist()
    cells[missing] = None
    return cells


def _is_picture(array: NDArray[Any], shape: tuple[int, ...]) -> bool:
    """Whether an array is a transformed picture."""
    return array.dtype == np.float32 and array.shape == shape and bool(((array >= 0) & (array <= 1)).all())
