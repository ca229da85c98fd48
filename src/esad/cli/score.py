"""`esad score`: a score and a verdict for every row of a file or folder."""

import heapq
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, options, shards
from esad.cli.decide import Decision, decision_for
from esad.cli.source import Block, load_model, open_source, parsed, scored
from esad.detectors.opening import plain_id
from esad.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from esad.detectors.base import Detector
    from esad.score.drift import Drift

__all__ = ["EXAMPLE", "score"]

EXAMPLE = common.example(
    "esad score payments.esad new.csv --out scores.csv",
    "esad score payments.esad new.parquet --top 20",
    "esad score payments.esad new.csv --fdr 0.1 --out scores.csv",
    "esad score payments.esad 'part-*.parquet' --out scores --jobs 8",
)
_MAX_SHIFTS = 5  # named in the warning of drift
_TOP = 20  # shown when no file is asked for


def score(
    model: options.Model,
    data: Annotated[
        list[Path],
        typer.Argument(
            metavar="DATA...",
            help="CSV or Parquet file, or a folder of PNG or JPEG pictures. Many tables: files, a folder of them, or a "
            "quoted pattern.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="SCORES", help="Scores file to write: .csv or .parquet. Of many files: folder."
        ),
    ] = None,
    id_column: options.IdColumn = None,
    top: Annotated[
        int | None, typer.Option("--top", "-n", min=0, metavar="N", help="Print the N worst rows; 20 without --out.")
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            "--alpha",
            metavar="SHARE",
            help="Flag rows whose p-value is at most this: the share of false alarms among normal rows.",
        ),
    ] = None,
    fdr: Annotated[
        float | None,
        typer.Option(
            "--fdr",
            metavar="SHARE",
            help="Flag rows so that at most this share of those flagged is expected to be false. Reads the data twice.",
        ),
    ] = None,
    engine: shards.Engine = None,
    jobs: shards.Jobs = None,
    ray_address: shards.RayAddress = None,
    form: shards.Format = None,
    as_json: options.Json = False,
) -> None:
    """Score every row: the higher, the more anomalous.

    The scores file has the id column (or the row number, from 0), score, anomaly and, if the model is calibrated,
    p_value. Files of any length are read block by block. Many files give a folder with one file of scores each; what
    is there already is not scored again. Files and pictures that cannot be read are set aside, and the exit code is 1.
    """
    detector = load_model(model)
    decision = decision_for(detector, alpha=alpha, fdr=fdr)
    request = shards.Request(engine, jobs, ray_address, form)
    if request.is_meant(data, detector):
        if fdr is not None:
            raise InputError("--fdr needs the p-values of all rows together. Give --alpha, or one file.")
        if top is not None:
            raise InputError("--top is for one file.")
        shards.score_many(model, data, out, request, id_column=id_column, alpha=alpha, as_json=as_json)
        return
    _score_one(detector, model, data[0], out, decision, id_column=id_column, top=top, as_json=as_json)


def _score_one(
    detector: "Detector",
    model: Path,
    data: Path,
    out: Path | None,
    decision: Decision,
    *,
    id_column: str | None,
    top: int | None,
    as_json: bool,
) -> None:
    source = open_source(data, detector, id_column=id_column, set_aside=True)
    monitor = detector.drift_monitor()
    worst = _Worst(top if top is not None else (0 if out else _TOP))
    n_rows, n_flagged = 0, 0
    with ExitStack() as opened:
        writer = None
        if out is not None:
            from esad.io.scores import ScoreWriter

            with_p_values = decision.calibration is not None
            writer = opened.enter_context(
                ScoreWriter(out, id_name=source.id_name, inputs=[data, model], p_values=with_p_values)
            )
        decision = decision.counted(detector, source)
        for block, scores in scored(detector, parsed(source)):
            p_values = decision.p_values(detector, block.X, scores)
            flagged = decision.flags(scores, p_values)
            if writer is not None:
                writer.write(scores, flagged, ids=block.ids, p_values=p_values)
            if monitor is not None:
                monitor.add(block.X, scores)
            worst.add(block, scores, flagged, p_values, first_row=n_rows)
            n_rows, n_flagged = n_rows + block.n_rows, n_flagged + int(flagged.sum())
        decision.check_same(n_rows)
    found: dict[str, Any] = {"n_rows": n_rows, "n_flagged": n_flagged, "flagged_ratio": n_flagged / n_rows}
    found |= decision.to_json() | {"out": None if out is None else str(out)}
    drift = None if monitor is None else monitor.report()
    found["drift"] = None if drift is None else drift.to_json()
    found["failures"] = [{"file": name, "reason": reason} for name, reason in sorted(source.broken.items())]
    decision.mention_limits(n_flagged)
    if drift is not None and drift.drifted:
        common.warn(_drifted(drift))
    top_rows = worst.rows(source.id_name or "row")
    if as_json:
        common.json_out(found | {"top": top_rows})
    else:
        _show(found, top_rows, decision.told(n_flagged))
        if source.broken:
            shards.tell_set_aside(source.broken, "picture", rest="are named with --json")
    if source.broken:
        raise typer.Exit(1)


def _drifted(drift: "Drift") -> str:
    """What differs from the training rows, the farthest first."""
    found = [str(shift) for shift in drift.found]
    more = f"; and {len(found) - _MAX_SHIFTS} more" if len(found) > _MAX_SHIFTS else ""
    tests = f"level {common.percent(drift.level)} over {common.counted(len(drift.shifts), 'test')}"
    return f"the rows do not look like the training rows ({tests}): {'; '.join(found[:_MAX_SHIFTS])}{more}."


class _Worst:
    """The highest scores so far; of equal ones the earlier rows."""

    def __init__(self, n_kept: int) -> None:
        self.n_kept = n_kept
        self._heap: list[tuple[float, int, Any, bool, float | None]] = []  # score, minus row number, id, alarm, p

    def add(
        self,
        block: Block,
        scores: "NDArray[np.float64]",
        flagged: "NDArray[np.bool_]",
        p_values: "NDArray[np.float64] | None",
        *,
        first_row: int,
    ) -> None:
        import numpy as np

        n_new = min(self.n_kept, len(scores))
        if n_new == 0:
            return
        candidates = np.argsort(-scores, kind="stable")[:n_new]
        for index in candidates.tolist():
            row = first_row + index
            name = row if block.ids is None else plain_id(block.ids[index])
            p_value = None if p_values is None else float(p_values[index])
            heapq.heappush(self._heap, (float(scores[index]), -row, name, bool(flagged[index]), p_value))
            if len(self._heap) > self.n_kept:
                heapq.heappop(self._heap)

    def rows(self, id_name: str) -> list[dict[str, Any]]:
        """The worst first."""
        return [
            {id_name: name, "score": score, "anomaly": flagged} | ({} if p_value is None else {"p_value": p_value})
            for score, _, name, flagged, p_value in sorted(self._heap, key=lambda kept: kept[:2], reverse=True)
        ]


def _cell(name: str, value: Any) -> object:
    """A value of a top row for people; ids stay as they are."""
    if name == "anomaly":
        return "yes" if value else "no"
    if name in ("score", "p_value"):
        return f"{value:.6g}" if name == "score" else f"{value:.3g}"
    return "" if value is None else value


def _show(found: dict[str, Any], top_rows: list[dict[str, Any]], rule: str) -> None:
    if top_rows:
        id_name, *others = top_rows[0]
        cells = [[_cell(name, row[name]) for name in (id_name, *others)] for row in top_rows]
        title = "The worst row" if len(top_rows) == 1 else f"The {len(top_rows)} worst"
        common.show_table(title, [id_name, *others], cells, right=["score", "p_value"])
    flagged = f"{found['n_flagged']:,} flagged ({common.percent(found['flagged_ratio'])})"
    rows = common.counted(found["n_rows"], "row")
    common.say(f"{rows} scored, {flagged} {rule}.")
    if found["out"]:
        common.say(f"Scores: {found['out']}")
