"""What an exported file takes: its inputs described, and a user's data brought into that form.

An ONNX file of a table has one input per column, or one for all of them where training had an array of numbers. A torch
file cannot hold text: it takes columns by kind, categories as codes that its description lists.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.errors import SchemaError
from esad.preprocess.inputs import Inputs
from esad.preprocess.tensors import GROUPS, PictureRows, group_of
from esad.table.encode import TabularPreprocessor
from esad.table.table import Table

__all__ = ["ARRAY", "PICTURES", "column_inputs", "group_inputs", "input_names", "split_columns", "split_groups"]

_OUTPUTS = ("score", "anomaly", "p_value")
ARRAY, PICTURES = "X", "pictures"
_TYPES = {"numbers": "float64", "codes": "string", "dates": "int64"}


def input_names(inputs: Inputs) -> list[str] | None:
    """Names of an ONNX file's inputs, one per column; None where an array or pictures go in whole.

    A column's own name, with an underscore behind it where it is empty or the name of an output.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = Table.from_any(pa.table({"score": [1.0, 2.0], "score_": [1.0, 2.0], "size": [3.0, 4.0]}))
    >>> input_names(Inputs.fit(table, np.zeros(2, dtype=np.int8), scaling="standard")[0])
    ['score__', 'score_', 'size']
    """
    schema = inputs.schema
    if schema is None or (not schema.named and set(schema.kinds) <= {"number", "boolean"}):
        return None
    taken, names = {*schema.names, *_OUTPUTS}, []
    for column in schema.names:
        name = column
        while name in ("", *_OUTPUTS) or (name != column and name in taken):
            name += "_"
        taken.add(name)
        names.append(name)
    return names


def column_inputs(inputs: Inputs) -> list[dict[str, Any]]:
    """The inputs of an ONNX file, as its description lists them."""
    names, schema = input_names(inputs), inputs.schema
    if schema is None:
        return [_describe_pictures(inputs)]
    if names is None:
        return [{"name": ARRAY, "type": "float64", "columns": len(schema.columns)}]
    parts = _table_preprocessor(inputs).features_
    return [
        {"name": name, "column": column.name, "kind": column.kind, "type": _TYPES[group_of(part)]}
        for name, column, part in zip(names, schema.columns, parts, strict=True)
    ]


def split_columns(inputs: Inputs, data: Table | NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Aligned data as an ONNX file takes it."""
    if isinstance(data, np.ndarray):
        return {PICTURES: _to_layout(inputs, data)}
    names = input_names(inputs)
    if names is None:
        return {ARRAY: _stack_columns(data, list(range(data.n_columns)))}
    columns = (_to_plain(data.column(index)) for index in range(data.n_columns))
    return dict(zip(names, columns, strict=True))


def group_inputs(inputs: Inputs) -> list[dict[str, Any]]:
    """The inputs of a torch file, in their order, as its description lists them."""
    schema = inputs.schema
    if schema is None:
        return [_describe_pictures(inputs)]
    described: dict[str, list[Any]] = {name: [] for name in GROUPS}
    for column, part in zip(schema.names, _table_preprocessor(inputs).features_, strict=True):
        if part.kind == "category":
            codes = {text: code for text, code in part.codes.items() if text is not None}
            missing = part.codes.get(None, part.other_code)
            described["codes"].append({"column": column, "codes": codes, "other": part.other_code, "missing": missing})
        else:
            described[group_of(part)].append(column)
    types = _TYPES | {"codes": "int64"}
    return [{"name": name, "type": types[name], "columns": described[name]} for name in GROUPS if described[name]]


def split_groups(inputs: Inputs, data: Table | NDArray[Any]) -> list[NDArray[Any]]:
    """Aligned data as a torch file takes it."""
    if isinstance(data, np.ndarray):
        return [_to_layout(inputs, data)]
    parts = _table_preprocessor(inputs).features_
    members = {name: [index for index, part in enumerate(parts) if group_of(part) == name] for name in GROUPS}
    given: list[NDArray[Any]] = []
    if members["numbers"]:
        given.append(_stack_columns(data, members["numbers"]))
    if members["codes"]:
        given.append(np.stack([parts[index].codes_of(data.values(index)) for index in members["codes"]], axis=1))
    if members["dates"]:
        given.append(np.stack([data.column(index).astype(np.int64) for index in members["dates"]], axis=1))
    return given


def _table_preprocessor(inputs: Inputs) -> TabularPreprocessor:
    assert isinstance(inputs.preprocessor, TabularPreprocessor)
    return inputs.preprocessor


def _stack_columns(table: Table, columns: list[int]) -> NDArray[np.float64]:
    return np.stack([table.column(index) for index in columns], axis=1)


def _to_plain(column: NDArray[Any]) -> NDArray[Any]:
    """Text with "" where missing, dates as microseconds since 1970, numbers as they are."""
    if column.dtype.kind == "M":
        return column.astype(np.int64)
    if column.dtype == object:
        return np.array(["" if text is None else text for text in column], dtype=object)
    return column


def _picture_rows(inputs: Inputs) -> PictureRows:
    assert not isinstance(inputs.preprocessor, TabularPreprocessor)
    return PictureRows(inputs.preprocessor)


def _describe_pictures(inputs: Inputs) -> dict[str, Any]:
    rows = _picture_rows(inputs)
    return {"name": PICTURES, "type": str(rows.dtype).removeprefix("torch."), "shape": list(rows.shape)}


def _to_layout(inputs: Inputs, pictures: NDArray[Any]) -> NDArray[Any]:
    """Pictures (n, channels, height, width) in the type and layout that the file takes."""
    rows = _picture_rows(inputs)
    wanted = np.uint8 if rows.scale == "bytes" else np.float32
    if pictures.dtype != wanted and wanted == np.uint8:
        raise SchemaError("The model was trained on uint8 pictures, and its file takes nothing else. Got floats.")
    if pictures.dtype != wanted:
        pictures = pictures.astype(np.float32) / np.float32(255.0 if rows.scale == "unit" else 1.0)
    channels_last = np.moveaxis(pictures, 1, -1)
    return np.ascontiguousarray(channels_last[..., 0] if len(rows.shape) == 2 else channels_last)
