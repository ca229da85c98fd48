"""The worst rows of a file or folder with the reasons for their scores: as plain values, and as files."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.core.atomic import new_folder, write_json
from esad.detectors.opening import Source, open_source
from esad.detectors.scored_file import Worst, score_blocks
from esad.explain.reasons import HeatMaps, Reasons
from esad.io import checks
from esad.io.checks import OnProgress, OnRemark
from esad.io.dialect import Reading
from esad.io.scores import write_arrow

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.detectors.training import TrainingData


@dataclass(frozen=True, eq=False)
class ExplainedFile:
    """The worst rows of a file or folder, and why they are.

    Attributes
    ----------
    worst : Worst
        The rows with the highest scores, the worst first.
    reasons : Reasons or HeatMaps
        Why, in the same order.
    threshold : float
        Of the model.
    id_name : str
        What the rows go by; "row" where they are numbered from 0.
    case_names : sequence or None
        What the labelled cases are called, where they were given.
    row_numbers : bool
        Whether the rows are numbered beside their ids, since these do not tell them apart.
    """

    worst: Worst
    reasons: Reasons | HeatMaps
    threshold: float
    id_name: str
    case_names: Any
    row_numbers: bool

    def name(self, number: int) -> str:
        """Return the name of a row: "serial S007", or "serial S007 (row 12)" where ids are not unique."""
        name = self.worst.ids[number]
        row = f" (row {self.worst.rows[number]})" if self.row_numbers else ""
        return f"{self.id_name} {'' if name is None else name}{row}"

    def nearest_cases(self, number: int) -> list[str]:
        """The labelled cases nearest to a row, in words; none where no case is known."""
        return [case.describe(self.case_names) for case in self.reasons.cases[number]] if self.reasons.cases else []

    def to_json(self) -> list[dict[str, Any]]:
        """Plain values, one dictionary a row: its id, score and verdict, and the reasons."""
        rows = []
        for number, (name, score) in enumerate(zip(self.worst.ids, self.worst.scores.tolist(), strict=True)):
            reasons = self.reasons.to_json(number)
            if self.case_names is not None and self.reasons.cases:
                for case, plain in zip(self.reasons.cases[number], reasons["cases"], strict=True):
                    plain["id"] = self.case_names[case.row]
            row = {"row": int(self.worst.rows[number])} if self.row_numbers else {}
            rows.append({self.id_name: name, "score": score, "anomaly": score > self.threshold} | row | reasons)
        return rows

    def write(self, out: str | os.PathLike[str]) -> None:
        """Write all reasons to a .csv, .parquet or .json file; of pictures, heat maps to a new folder."""
        path = Path(out)
        if isinstance(self.reasons, HeatMaps):
            from esad.explain.displays import draw, to_png

            with new_folder(path) as beside:
                for number, name in enumerate(self.worst.ids):
                    flat = f"{number + 1:03d}-{str(name).replace('/', '-')}"
                    (beside / flat).with_suffix(".png").write_bytes(to_png(draw(self.reasons, number)))
        elif path.suffix == ".json":
            write_json(path, self.to_json())
        else:
            lines = self.reasons.to_frame(self.worst.ids, id_name=self.id_name)
            if self.row_numbers:
                numbers = self.worst.rows.repeat(len(self.reasons.columns))
                lines = lines.append_column("row", [numbers])
            write_arrow(path, lines)


def explain_file(
    detector: "Detector",
    data: str | os.PathLike[str],
    *,
    top: int = 5,
    id_column: str | None = None,
    cases: "TrainingData | None" = None,
    reading: Reading | None = None,
    on_progress: OnProgress | None = None,
    on_remark: OnRemark = checks.tell,
) -> ExplainedFile:
    r"""Score all rows of a file or folder, and explain the worst.

    Parameters
    ----------
    detector : Detector
        Fitted.
    data : str or path-like
    top : int
        How many rows to explain.
    id_column, reading
        As for `esad.detectors.opening.open_source`.
    cases : TrainingData, optional
        Labelled rows to hold the worst against; by default those that the model keeps.
    on_progress, on_remark : callable, optional
        As for `esad.score_file`.

    Examples
    --------
    >>> import tempfile
    >>> from esad import IsolationForest, TrainingData
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "sizes.csv")
    ...     _ = file.write_text("\n".join(["size,weight", *(f"{row % 7},{row % 5}" for row in range(60)), "99,2"]))
    ...     forest = TrainingData.from_file(file).fit(IsolationForest(random_state=0))
    ...     found = explain_file(forest, file, top=1)
    >>> found.to_json()[0]["row"], found.reasons.top(0, 1)
    (60, ('size',))
    """
    source = open_source(data, detector, id_column=id_column, reading=reading, on_remark=on_remark)
    worst = Worst(top)
    for block, _, scores, _ in score_blocks(detector, source, on_progress):
        worst.add(block, scores)
    return explain_worst(detector, worst, source, cases=cases)


def explain_worst(
    detector: "Detector", worst: Worst, source: Source, *, cases: "TrainingData | None" = None
) -> ExplainedFile:
    """Explain the worst of the rows of a source, which are scored."""
    return ExplainedFile(
        worst=worst,
        reasons=detector.explain(worst.X, cases=None if cases is None else (cases.X, cases.labels)),
        threshold=detector.threshold_,
        id_name=source.row_name,
        case_names=None if cases is None else cases.ids,
        row_numbers=source.needs_row_numbers(),
    )
