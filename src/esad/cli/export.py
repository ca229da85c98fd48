"""`esad export`: a model as one file that runs without esad."""

from pathlib import Path
from typing import Any

from esad.cli import options, output
from esad.cli.options import command, option
from esad.errors import InputError, OutputError

_SUFFIXES = {"onnx": ".onnx", "torch": ".pt2"}


@command(
    "esad export payments.esad --out payments.onnx --check new.csv",
    "esad export payments.esad --format torch --out payments.pt2",
)
def export(
    model: options.Model,
    out: Path = option(..., "--out -o FILE", "File to write: .onnx, or .pt2 for torch."),
    format: str = option("onnx", "--format -f NAME", "onnx, for onnxruntime, or torch, for torch.export.load."),
    check: Path | None = option(None, "--check DATA", "Rows or pictures to compare the scores on, beside random ones."),
    *,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Write a model as one file that runs without esad: preprocessing, members, score and threshold.

    The file is kept only if its scores are the model's own, to 1e-4, on random rows and on those of --check.
    """
    from esad.detectors.export import FORMATS, describe
    from esad.detectors.export import export as write
    from esad.detectors.model_file import load
    from esad.detectors.opening import open_source

    if format not in FORMATS:
        raise InputError(f"Unknown format {format!r}.{output.hint(format, FORMATS)} There are: {', '.join(FORMATS)}.")
    if out.suffix.lower() != _SUFFIXES[format]:  # a slip must not replace a model or data
        ends = f"the name of a file of --format {format} must end in {_SUFFIXES[format]}"
        raise OutputError(f"Cannot write {str(out)!r}: {ends}.")
    detector = load(model)
    X = None if check is None else next(iter(open_source(check, detector, reading=reading, on_remark=output.remark))).X
    with output.bar() as progress:
        task = progress.add_task("reading", total=None)
        parity = write(
            detector, out, format=format, X=X, on_stage=lambda stage: progress.update(task, description=stage)
        )
    found = {"file": str(out), "n_bytes": out.stat().st_size, "format": format}
    found |= {"n_checked": parity.n_rows, "difference": parity.difference, **describe(detector, format)}
    output.answer(as_json, found, lambda: _show(found))


def _show(found: dict[str, Any]) -> None:
    checked = output.count_text(found["n_checked"], "row")
    output.show_pairs(
        [
            ("file", f"{found['file']} ({output.size_text(found['n_bytes'])})"),
            ("method", found["method"]),
            ("checked", f"{checked}: scores differ from the model's by {found['difference']:.1e} at most"),
            ("gives", ", ".join(f"{output['name']} ({output['type']})" for output in found["outputs"])),
        ]
    )
    output.say()
    rows = [(entry["name"], entry["type"], _describe_content(entry)) for entry in found["inputs"]]
    output.show_table(None, ["input", "type", "holds"], rows, noun="input")


def _describe_content(entry: dict[str, Any]) -> str:
    if "shape" in entry:
        return " x ".join(["n", *map(str, entry["shape"])])
    if "column" in entry:
        return str(entry["kind"])
    return f"n x {entry['columns'] if isinstance(entry['columns'], int) else len(entry['columns'])}"
