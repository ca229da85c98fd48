"""`esad report`: a model and a data set as one HTML file."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options
from esad.cli.cases import KnownCases, read_cases
from esad.cli.evaluate import TruthColumn, read_truth
from esad.cli.source import Block, Source, load_model, open_source, scored
from esad.cli.training import Reading
from esad.cli.worst import Worst
from esad.errors import InputError, LabelError, OutputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector
    from esad.report.findings import Findings

__all__ = ["EXAMPLE", "Asked", "collect", "report", "write_report"]

EXAMPLE = common.example(
    "esad report payments.esad checked.csv --truth-column truth --out report.html",
    "esad report payments.esad new.csv --cases payments.csv --out report.html",
    "esad report pictures.esad checked/ --out report.html",
)
_SUFFIXES = (".html", ".htm")


def report(
    model: options.Model,
    data: options.Data,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="REPORT", help="HTML file to write.")],
    truth_column: TruthColumn = None,
    anomaly_value: options.AnomalyValue = None,
    kind_column: Annotated[
        str | None,
        typer.Option(
            "--kind-column",
            metavar="NAME",
            help="Column with the kind of each anomaly; for pictures the sub-folders of anomaly/ say it.",
        ),
    ] = None,
    seen_kind: Annotated[
        list[str] | None,
        typer.Option(
            "--seen-kind",
            metavar="KIND",
            help="Kind that training had labels of; may be repeated. The others had none.",
        ),
    ] = None,
    top: Annotated[int, typer.Option("--top", "-n", min=1, metavar="N", help="Explain the N worst rows.")] = 10,
    id_column: options.IdColumn = None,
    labels_csv: options.LabelsCsv = None,
    cases: options.CasesFile = None,
    label_column: options.LabelColumn = None,
    as_json: options.Json = False,
) -> None:
    """Write one HTML file: scores, figures against the truth, the worst rows with reasons, calibration, training, data.

    The file needs no network and runs no script. --label-column is about --cases.
    """
    from esad.core.atomic import check_writable

    detector = load_model(model)
    if out.suffix.lower() not in _SUFFIXES:
        raise OutputError(f"Cannot write a report to {str(out)!r}: its name must end in .html.")
    common.refuse_same_file(out, [model, data])
    check_writable(out)
    if detector.inputs_.kind == "table" and kind_column is not None and truth_column is None:
        raise InputError("--kind-column is about anomalies: give --truth-column too.")
    known = read_cases(cases, detector, Reading(label_column=label_column))
    source = open_source(
        data,
        detector,
        id_column=id_column or _known_id(detector, data),
        truth_column=truth_column,
        kind_column=kind_column,
        labels_csv=labels_csv,
    )
    asked = Asked(truth_column, anomaly_value, labels_csv is not None, None if seen_kind is None else tuple(seen_kind))
    found = collect(detector, source, known, asked, model=model, data=data, n_top=top)
    write_report(found, out)
    if as_json:
        common.json_out({"out": str(out)} | found.to_json())
    else:
        size = common.size_text(out.stat().st_size)
        flagged = common.counted(int(found.flagged.sum()), "alarm")
        common.say(f"{common.counted(len(found.scores), 'row')}, {flagged}. Report: {out} ({size})")


def write_report(found: "Findings", out: Path) -> None:
    """Write the page, whole or not at all."""
    from esad.core.atomic import atomic_path
    from esad.report.page import write_page

    page = write_page(found)
    with atomic_path(out) as temporary:
        temporary.write_text(page, encoding="utf-8")


@dataclass(frozen=True)
class Asked:
    """What the user said about truth and kinds."""

    truth_column: str | None = None
    anomaly_value: str | None = None
    from_csv: bool = False
    seen: tuple[str, ...] | None = None

    def truth(self, words: "list[NDArray[np.object_]]") -> "NDArray[np.bool_] | None":
        """The truth of all rows; None where nobody said that there is one."""
        import numpy as np

        if not words:
            return None
        try:
            name = self.truth_column or ("label" if self.from_csv else "sub-folder")
            return read_truth(np.concatenate(words), self.anomaly_value, name)
        except LabelError:
            if self.truth_column is not None or self.anomaly_value is not None or self.from_csv:
                raise
            common.note("the sub-folders do not say the truth (anomaly, normal): the report goes without.")
            return None


def collect(
    detector: "Detector", source: Source, known: KnownCases, asked: Asked, *, model: Path, data: Path, n_top: int
) -> "Findings":
    """Score all rows, measure them where the truth is known, and explain the worst."""
    import numpy as np

    from esad.report.findings import Findings, measure_kinds
    from esad.score.metrics import evaluate

    counted = _Counted(detector, n_top)
    for block, scores in scored(detector, source):
        counted.add(block, scores)
    scores, truth = np.concatenate(counted.scores), asked.truth(counted.words)
    if truth is not None and truth.all() == truth.any():
        common.note("the rows are all normal or all anomalies: there is nothing to measure against.")
        truth = None
    evaluation, kinds = None, []
    if truth is not None:
        evaluation = evaluate(scores, truth, threshold=detector.threshold_, ks=())
        words = np.concatenate(counted.kinds) if counted.kinds else np.full(len(truth), None)
        kinds = measure_kinds(scores, truth, words, threshold=detector.threshold_, seen=asked.seen)
    assert counted.worst is not None  # a source has one block at least
    reasons = detector.explain(counted.worst.X, cases=known.given)
    p_values = np.concatenate(counted.p_values) if counted.p_values else None
    monitor = counted.monitor
    return Findings(
        detector=detector,
        model_name=model.name,
        data_name=data.name,
        n_bytes=model.stat().st_size if model.exists() else None,
        scores=scores,
        truth=truth,
        evaluation=evaluation,
        kinds=kinds,
        p_values=p_values,
        drift=None if monitor is None else monitor.report(),
        n_missing=counted.n_missing,
        alarms=_alarms(detector, counted.worst, reasons, known, truth, p_values, source.id_name or "row"),
        reasons=reasons,
    )


class _Counted:
    """What one pass over the rows leaves."""

    def __init__(self, detector: "Detector", n_top: int) -> None:
        self.detector, self.n_top = detector, n_top
        self.monitor = detector.drift_monitor()
        self.scores: list[Any] = []
        self.p_values: list[Any] = []
        self.words: list[Any] = []
        self.kinds: list[Any] = []
        self.n_missing: dict[str, int] = {}
        self.n_rows = 0
        self.worst: Worst | None = None

    def add(self, block: Block, scores: "NDArray[np.float64]") -> None:
        """Take in one block."""
        import numpy as np

        worst = Worst.of(block, scores, first_row=self.n_rows, n_kept=self.n_top)
        self.worst = worst if self.worst is None else self.worst.joined(worst, n_kept=self.n_top)
        self.n_rows += block.n_rows
        self.scores.append(scores)
        if self.monitor is not None:
            self.monitor.add(block.X, scores)
        if self.detector.calibration_ is not None:
            self.p_values.append(self.detector.p_value(block.X))
        if block.truth is not None:
            self.words.append(np.asarray(block.truth, dtype=object))
        kinds = _folder_kinds(block) if self.detector.inputs_.kind == "images" else block.kinds
        if kinds is not None:
            self.kinds.append(np.asarray(kinds, dtype=object))
        if hasattr(block.X, "column_names"):
            for name in block.X.column_names:
                self.n_missing[name] = self.n_missing.get(name, 0) + block.X[name].null_count


def _folder_kinds(block: Block) -> list[str | None]:
    """The sub-folder below anomaly/ that each picture lies in, if it does."""
    return [parts[1] if len(parts := str(name).split("/")) > 2 else None for name in block.ids]


def _alarms(
    detector: "Detector", worst: Worst, reasons: Any, known: KnownCases, truth: Any, p_values: Any, id_name: str
) -> list[Any]:
    from esad.report.findings import Alarm

    return [
        Alarm(
            name=f"{id_name} {'' if name is None else name}",
            score=score,
            is_alarm=score > detector.threshold_,
            is_anomaly=None if truth is None else bool(truth[row]),
            p_value=None if p_values is None else float(p_values[row]),
            cases=tuple(known.text(case) for case in reasons.cases[number]) if reasons.cases else (),
        )
        for number, (name, score, row) in enumerate(
            zip(worst.ids, worst.scores.tolist(), worst.rows.tolist(), strict=True)
        )
    ]


def _known_id(detector: "Detector", data: Path) -> str | None:
    """The id column of the training file, where this file has it too."""
    from esad.io.files import column_names

    known = detector.notes_.get("id_column")
    return known if known is not None and data.is_file() and known in column_names(data) else None
