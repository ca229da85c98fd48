"""Export to ONNX: the traced graph, with named columns and a look-up of categories put in front."""

import json
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from esad.core.extras import require
from esad.persist.interface import ARRAY, PICTURES, column_inputs, input_names, split_columns
from esad.preprocess.inputs import Inputs
from esad.preprocess.tensors import GROUPS, group_of
from esad.table.encode import ColumnFeatures, TabularPreprocessor

__all__ = ["check_installed", "describe_inputs", "reader", "write"]

OPSET, ML_OPSET, IR_VERSION = 20, 3, 10  # RegexFullMatch came with 20; what onnxruntime 1.18 and later read
_BLANKS = "".join(chr(code) for code in range(0x110000) if chr(code).isspace())  # what str.strip takes for blank
_EXTRA = "export"

describe_inputs = column_inputs


def check_installed() -> None:
    """Refuse early where a package is missing."""
    for module in ("onnx", "onnxscript", "onnxruntime"):
        require(module, extra=_EXTRA)


def write(program: Any, inputs: Inputs, path: Path, facts: dict[str, Any]) -> None:
    """Write one file; `facts` become its metadata, what is not text as JSON."""
    import torch

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


def reader(path: Path, inputs: Inputs) -> Callable[[Any], dict[str, NDArray[Any]]]:
    """The written file as a function from aligned data to its outputs, in onnxruntime."""
    runtime = require("onnxruntime", extra=_EXTRA)
    options = runtime.SessionOptions()
    options.log_severity_level = 3  # errors only
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return lambda data: dict(zip(names, session.run(names, split_columns(inputs, data)), strict=True))


@contextmanager
def _silence_exporter() -> Iterator[None]:
    """Hide the exporter's own remarks, which do not help a user."""
    import logging

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
    """Take out what the exporter notes about source files."""
    del model.metadata_props[:]
    del model.graph.metadata_props[:]
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.input, *model.graph.output):
        part.doc_string = ""
        del part.metadata_props[:]


def _put_in_front(model: Any, inputs: Inputs) -> None:
    """Replace the graph's inputs by those of `column_inputs`, and compute the graph's own from them."""
    onnx = require("onnx", extra=_EXTRA)
    names = input_names(inputs)
    prefix = "esad/"
    while any(name.startswith(prefix) for name in names or ()):
        prefix += "/"  # a column may be called anything
    kept = [output.name for output in model.graph.output]
    renamed = onnx.compose.add_prefix(model, prefix, rename_outputs=False)
    model.CopyFrom(renamed)
    assert kept == [output.name for output in model.graph.output]
    given = [graph_input.name for graph_input in model.graph.input]
    if names is None:
        _rename_input(model, given[0], PICTURES if inputs.kind == "images" else ARRAY)
        return
    assert isinstance(inputs.preprocessor, TabularPreprocessor)
    parts = inputs.preprocessor.features_
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
        known = {text: code for text, code in part.codes.items() if text is not None and _is_unicode(text)}
        found = self.constant(np.array(part.other_code))
        if known:
            found = self.node(
                "LabelEncoder",
                [column],
                domain="ai.onnx.ml",
                keys_strings=list(known),
                values_int64s=list(known.values()),
                default_int64=part.other_code,
            )
        is_missing = self.node("RegexFullMatch", [column], pattern=f"[{_BLANKS}]*")
        missing = self.constant(np.array(part.codes.get(None, part.other_code)))
        return self.node("Where", [is_missing, missing, found])

    def stack(self, columns: list[str], target: str) -> None:
        """Columns (n,) side by side, (n, columns)."""
        upright = [self.node("Unsqueeze", [column, self.axis]) for column in columns]
        self.node("Concat", upright, to=target, axis=1)


def _is_unicode(text: str) -> bool:
    """Whether a text can be written at all; a half of a surrogate pair cannot, so no input ever holds it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
