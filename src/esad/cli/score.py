"""`esad score`: a score and a verdict for every row of a file or folder."""

import heapq
import math
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options
from esad.cli.source import Block, load_model, open_source, scored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["EXAMPLE", "score"]

EXAMPLE = common.example(
    "esad score payments.esad new.csv --out scores.csv", "esad score payments.esad new.parquet --top 20"
)
_TOP = 20  # shown when no file is asked for


def score(
    model: options.Model,
    data: options.Data,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="SCORES", help="Scores file to write: .csv or .parquet.")
    ] = None,
    id_column: options.IdColumn = None,
    top: Annotated[
        int | None, typer.Option("--top", "-n", min=0, metavar="N", help="Print the N worst rows; 20 without --out.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Score every row: the higher, the more anomalous.

    The scores file has the id column (or the row number, from 0), score and anomaly. Files of any length are read block
    by block.
    """
    detector = load_model(model)
    source = open_source(data, detector, id_column=id_column)
    worst = _Worst(top if top is not None else (0 if out else _TOP))
    n_rows, n_flagged = 0, 0
    with ExitStack() as opened:
        writer = None
        if out is not None:
            from esad.data.scores import ScoreWriter

            writer = opened.enter_context(ScoreWriter(out, id_name=source.id_name, inputs=[data, model]))
        for block, scores in scored(detector, source):
            flagged = scores > detector.threshold_
            if writer is not None:
                writer.write(scores, flagged, ids=block.ids)
            worst.add(block, scores, first_row=n_rows)
            n_rows, n_flagged = n_rows + block.n_rows, n_flagged + int(flagged.sum())
    found: dict[str, Any] = {"n_rows": n_rows, "n_flagged": n_flagged, "flagged_ratio": n_flagged / n_rows}
    found |= {"threshold": detector.threshold_, "out": None if out is None else str(out)}
    top_rows = worst.rows(source.id_name or "row", detector.threshold_)
    if as_json:
        common.json_out(found | {"top": top_rows})
    else:
        _show(found, top_rows)


class _Worst:
    """The highest scores so far; of equal ones the earlier rows."""

    def __init__(self, n_kept: int) -> None:
        self.n_kept = n_kept
        self._heap: list[tuple[float, int, Any]] = []  # score, minus row number, id

    def add(self, block: Block, scores: "NDArray[np.float64]", *, first_row: int) -> None:
        import numpy as np

        n_new = min(self.n_kept, len(scores))
        if n_new == 0:
            return
        candidates = np.argsort(-scores, kind="stable")[:n_new]
        for index in candidates.tolist():
            row = first_row + index
            name = row if block.ids is None else _plain(block.ids[index])
            heapq.heappush(self._heap, (float(scores[index]), -row, name))
            if len(self._heap) > self.n_kept:
                heapq.heappop(self._heap)

    def rows(self, id_name: str, threshold: float) -> list[dict[str, Any]]:
        """The worst first."""
        ordered = sorted(self._heap, key=lambda kept: kept[:2], reverse=True)
        return [{id_name: name, "score": value, "anomaly": value > threshold} for value, _, name in ordered]


def _plain(cell: Any) -> Any:
    """An id as JSON can hold it: NaN and infinities, which it cannot, are missing."""
    value = cell.as_py() if hasattr(cell, "as_py") else cell
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _show(found: dict[str, Any], top_rows: list[dict[str, Any]]) -> None:
    if top_rows:
        id_name = next(iter(top_rows[0]))
        cells = [
            ("" if row[id_name] is None else row[id_name], f"{row['score']:.6g}", "yes" if row["anomaly"] else "no")
            for row in top_rows
        ]
        title = "The worst row" if len(top_rows) == 1 else f"The {len(top_rows)} worst"
        common.show_table(title, [id_name, "score", "anomaly"], cells, right=["score"])
    flagged = f"{found['n_flagged']:,} flagged ({common.percent(found['flagged_ratio'])})"
    rows = common.counted(found["n_rows"], "row")
    common.say(f"{rows} scored, {flagged} above the threshold {found['threshold']:.6g}.")
    if found["out"]:
        common.say(f"Scores: {found['out']}")
