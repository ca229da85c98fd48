"""Files that run without esad, ONNX and torch programs: what they take, how they are written and read again.

An ONNX file of a table has one input per column, or one for all of them where training had an array of numbers; columns
and the look-up of categories are put in front of the traced graph. A torch program (.pt2), which `torch.export.load`
reads, cannot hold text: it takes columns by kind, categories as codes that its description lists.
"""

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from esad.core.arrays import Arrays, Floats
from esad.core.machine import require
from esad.errors import SchemaError
from esad.preprocess.inputs import Inputs
from esad.preprocess.tensors import GROUPS, PictureRows, group_of
from esad.table.encode import ColumnFeatures, TabularPreprocessor
from esad.table.parse import BLANKS
from esad.table.table import Table

FACTS_FILE = "esad.json"  # beside a torch program, inside its file
OPSET, ML_OPSET, IR_VERSION = 20, 3, 10  # RegexFullMatch came with 20; what onnxruntime 1.18 and later read
_EXTRA = "export"
_OUTPUTS = ("score", "anomaly", "p_value")
_ARRAY, _PICTURES = "X", "pictures"
_TYPES = {"numbers": "float64", "codes": "string", "dates": "int64"}


# ---------------------------------------------------------------------- what goes into an ONNX file


def _name_inputs(inputs: Inputs) -> list[str] | None:
    """Names of an ONNX file's inputs, one per column; None where an array or pictures go in whole.

    A column's own name, with an underscore behind it where it is empty or the name of an output.

    Examples
    --------
    >>> import pyarrow as pa
    >>> table = Table.from_any(pa.table({"score": [1.0, 2.0], "score_": [1.0, 2.0], "size": [3.0, 4.0]}))
    >>> _name_inputs(Inputs.fit(table, np.zeros(2, dtype=np.int8), scaling="standard")[0])
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


def _describe_columns(inputs: Inputs) -> list[dict[str, Any]]:
    """The inputs of an ONNX file, as its description lists them."""
    names, schema = _name_inputs(inputs), inputs.schema
    if schema is None:
        return [_describe_pictures(inputs)]
    if names is None:
        return [{"name": _ARRAY, "type": "float64", "columns": len(schema.columns)}]
    parts = _table_preprocessor(inputs).features_
    return [
        {"name": name, "column": column.name, "kind": column.kind, "type": _TYPES[group_of(part)]}
        for name, column, part in zip(names, schema.columns, parts, strict=True)
    ]


def _split_columns(inputs: Inputs, data: Table | NDArray[Any]) -> Arrays:
    """Split aligned data into the inputs of an ONNX file."""
    if isinstance(data, np.ndarray):
        return {_PICTURES: _to_layout(inputs, data)}
    names = _name_inputs(inputs)
    if names is None:
        return {_ARRAY: _stack_columns(data, list(range(data.n_columns)))}
    columns = (_to_plain(data.column(index)) for index in range(data.n_columns))
    return dict(zip(names, columns, strict=True))


# ---------------------------------------------------------------------- what goes into a torch program


def _describe_groups(inputs: Inputs) -> list[dict[str, Any]]:
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
    """Group aligned data into the inputs of a torch file."""
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


def _stack_columns(table: Table, columns: list[int]) -> Floats:
    return np.stack([table.column(index) for index in columns], axis=1)


def _to_plain(column: NDArray[Any]) -> NDArray[Any]:
    """Convert a column: text with "" where missing, dates to microseconds since 1970, numbers unchanged."""
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
    return {"name": _PICTURES, "type": str(rows.dtype).removeprefix("torch."), "shape": list(rows.shape)}


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


# ---------------------------------------------------------------------- ONNX


def _require_onnx() -> None:
    """Refuse early where a package is missing."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, extra=_EXTRA)


def _write_onnx(program: Any, inputs: Inputs, path: Path, facts: dict[str, Any]) -> None:
    """Write one file; `facts` become its metadata, what is not text as JSON."""
    onnx = require("onnx", extra=_EXTRA)
    outputs = [str(node) for node in program.call_spec.out_spec.context]
    with _silence_exporter():
        exported = torch.onnx.export(program, opset_version=OPSET, output_names=outputs, verbose=False)
    assert exported is not None
    model = exported.model_proto
    _forget_this_machine(model)
    _put_in_front(model, inputs)
    model.ir_version, model.producer_name, model.producer_version = IR_VERSION, "esad", str(facts["esad_version"])
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()}
    onnx.helper.set_model_props(model, texts)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())


def _read_onnx(path: Path, inputs: Inputs) -> Callable[[Any], Arrays]:
    """The written file as a function from aligned data to its outputs, in onnxruntime."""
    runtime = require("onnxruntime", extra=_EXTRA)
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda data: dict(zip(names, session.run(names, _split_columns(inputs, data)), strict=True))


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Hide the exporter's own remarks, which do not help a user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _forget_this_machine(model: Any) -> None:
    """Remove the paths of source files that the exporter notes."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]


def _put_in_front(model: Any, inputs: Inputs) -> None:
    """Replace the graph's inputs by those of `_describe_columns`, and compute the graph's own from them."""
    onnx = require("onnx", extra=_EXTRA)
    names = _name_inputs(inputs)
    prefix = "esad/"
    while any(name.startswith(prefix) for name in names or ()):
        prefix += "/"  # a column may be called anything
    kept = [output.name for output in model.graph.output]
    renamed = onnx.compose.add_prefix(model, prefix, rename_outputs=False)
    model.CopyFrom(renamed)
    assert kept == [output.name for output in model.graph.output]
    given = [graph_input.name for graph_input in model.graph.input]
    if names is None:
        _rename_input(model, given[0], _PICTURES if inputs.kind == "images" else _ARRAY)
        return
    parts = _table_preprocessor(inputs).features_
    front = _Front(onnx, prefix + "in/")
    groups = [name for name in GROUPS if any(group_of(part) == name for part in parts)]
    for group, target in zip(groups, given, strict=True):
        columns = [(name, part) for name, part in zip(names, parts, strict=True) if group_of(part) == group]
        front.stack([front.codes(*column) if group == "codes" else column[0] for column in columns], target)
    nodes = [*front.nodes, *model.graph.node]
    del model.graph.input[:], model.graph.node[:]
    types = {"numbers": onnx.TensorProto.DOUBLE, "codes": onnx.TensorProto.STRING, "dates": onnx.TensorProto.INT64}
    model.graph.input.extend(
        onnx.helper.make_tensor_value_info(name, types[group_of(part)], ["rows"])
        for name, part in zip(names, parts, strict=True)
    )
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(front.constants)
    model.opset_import.append(onnx.helper.make_opsetid("ai.onnx.ml", ML_OPSET))


def _rename_input(model: Any, old: str, new: str) -> None:
    (only,) = model.graph.input
    only.name = new
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            if name == old:
                node.input[index] = new


class _Front:
    """Nodes that turn named columns into the tensors of `TableRows`."""

    def __init__(self, onnx: Any, prefix: str) -> None:
        self.onnx, self.prefix = onnx, prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self.axis = self.constant(np.array([1]))

    def constant(self, value: NDArray[Any]) -> str:
        """A constant of the graph."""
        name = f"{self.prefix}constant{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(value.astype(np.int64), name))
        return name

    def node(self, kind: str, given: list[str], *, to: str | None = None, domain: str = "", **attributes: Any) -> str:
        """A node with one output."""
        name = to or f"{self.prefix}value{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, given, [name], domain=domain, **attributes))
        return name

    def codes(self, column: str, part: ColumnFeatures) -> str:
        """`ColumnFeatures.codes` of a text column."""
        known = {text: code for text, code in part.codes.items() if text is not None}
        if not known:
            found = self.constant(np.array(part.other_code))
        else:
            found = self.node(
                "LabelEncoder",
                [column],
                domain="ai.onnx.ml",
                keys_strings=list(known),
                values_int64s=list(known.values()),
                default_int64=part.other_code,
            )
        is_missing = self.node("RegexFullMatch", [column], pattern=f"[{BLANKS}]*")
        missing = self.constant(np.array(part.codes.get(None, part.other_code)))
        return self.node("Where", [is_missing, missing, found])

    def stack(self, columns: list[str], target: str) -> None:
        """Columns (n,) side by side, (n, columns)."""
        upright = [self.node("Unsqueeze", [column, self.axis]) for column in columns]
        self.node("Concat", upright, to=target, axis=1)


# ---------------------------------------------------------------------- torch programs


def _write_program(program: Any, inputs: Inputs, path: Path, facts: dict[str, Any]) -> None:
    """Write one file with the program and, as JSON, what is known about it."""
    whole = io.BytesIO()  # on a full disk torch's own writer ends the process
    torch.export.save(program, whole, extra_files={FACTS_FILE: json.dumps(facts)})
    path.write_bytes(whole.getbuffer())


def _read_program(path: Path, inputs: Inputs) -> Callable[[Any], Arrays]:
    """The written file as a function from aligned data to its outputs."""
    with path.open("rb") as file:
        run = torch.export.load(file).module()

    def outputs(data: Any) -> Arrays:
        with torch.inference_mode():
            found = run(*(torch.from_numpy(given) for given in split_groups(inputs, data)))
        return {name: value.numpy() for name, value in found.items()}

    return outputs


class Format(NamedTuple):
    """A kind of file: what it needs, takes, and how it is written and read."""

    check_installed: Callable[[], None]
    describe_inputs: Callable[[Inputs], list[dict[str, Any]]]
    write: Callable[[Any, Inputs, Path, dict[str, Any]], None]
    read: Callable[[Path, Inputs], Callable[[Any], Arrays]]


FORMATS = {
    "onnx": Format(_require_onnx, _describe_columns, _write_onnx, _read_onnx),
    "torch": Format(lambda: None, _describe_groups, _write_program, _read_program),
}
