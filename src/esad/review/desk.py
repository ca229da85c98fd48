"""The review itself, without the web: what to show, what was said, which model is in use, and the change to another."""

import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.advice.suggest import border
from esad.detectors.loading import load
from esad.errors import InputError
from esad.explain.drawing import shown, to_png
from esad.review import exchange, versions
from esad.review.judged import Judged, Scored
from esad.review.material import Material
from esad.review.outlook import JOIN_SECONDS, Outlook
from esad.review.queue import BATCH, FILTERS, Queue, filtered
from esad.review.refit import Refit
from esad.review.shown import compared_rows, item
from esad.review.store import Store

__all__ = ["DRAWINGS", "Desk"]

DRAWINGS: Final = ("given", "expected", "heat")
MAX_LISTED: Final = 500
N_RECENT: Final = 8


class Desk:
    """One review of one data set.

    Parameters
    ----------
    material : Material
    store : Store
    scored : Scored
        The model to begin with, and what it says.
    model : Path
        Its file: what is kept goes there, and the model before it beside it.
    warm : bool
        Whether refits begin with the old weights.
    """

    def __init__(self, material: Material, store: Store, scored: Scored, model: Path, *, warm: bool = True) -> None:
        self.material, self.store, self.model = material, store, model
        self.warm = warm
        self.outlook = Outlook()
        self.generation = secrets.randbits(40)  # no other run's: browsers keep pictures under it
        self._with_cases = len(getattr(scored.detector, "cases_", ())) > 0
        self._lock = threading.RLock()
        self._refit: Refit | None = None
        self._n_refits = 0
        self._judged: Judged | None = None
        self._use(scored)

    def _use(self, scored: Scored) -> None:
        """Go on with a model."""
        if self._judged is not None:
            self._judged.close()
        self._judged = Judged(scored, self.material)
        where = border(scored.scores, self.labels(), threshold=scored.detector.threshold_, n=BATCH)
        self.queue = Queue(scored.scores, border=where, rows_of=self.judged.rows_of)
        for row in np.flatnonzero(self.labels()).tolist():
            self.queue.close(row)
        self.queue.prepare()
        _ = scored.histogram, scored.ranks  # kept from now on: the first page need not wait for them
        self.generation += 1
        known = self.store.known_to(scored.detector.fingerprint_)
        self._then = self.material.known if known is None else known  # what the model was trained with

    @property
    def judged(self) -> Judged:
        """The model in use."""
        assert self._judged is not None
        return self._judged

    def close(self) -> None:
        """End what runs in the background, and let go of the journal."""
        if self._refit is not None:
            self._refit.stop()
            self._refit.join(JOIN_SECONDS)
        self.outlook.close()
        self.judged.close()
        self.store.close()

    def labels(self) -> NDArray[np.int8]:
        """Labels to train with: those of the file, and what the reviewers agree on."""
        return self.store.book.labels(self.material.known)

    # ------------------------------------------------------------------ judgements

    def judge(self, request: str, row: int, reviewer: str, verdict: str) -> None:
        """Enter a verdict."""
        with self._lock:
            self.store.judge(request, row, reviewer, verdict)
            if verdict != "skip":
                self.queue.close(row)
            self._look_ahead()

    def undo(self, request: str, reviewer: str) -> int | None:
        """Take the last verdict back; the row it was about."""
        with self._lock:
            entry = self.store.undo(request, reviewer)
            if entry is None:
                return None
            if self.labels()[entry.row] == labels.UNLABELLED:
                self.queue.reopen(entry.row)
            return entry.row

    def import_labels(self, text: str, reviewer: str) -> int:
        """Enter the judgements of a CSV file; how many were new."""
        with self._lock:
            material = self.material
            n_new = exchange.read_csv(text, self.store, material.names, material.id_name, reviewer=reviewer)
            for row in np.flatnonzero(self.labels()).tolist():
                self.queue.close(row)
            self._look_ahead()
            return n_new

    def export_labels(self) -> str:
        """All judgements as CSV."""
        return exchange.write_csv(self.store, self.material.names, self.material.id_name)

    def _look_ahead(self) -> None:
        if self._refit is None or self._refit.status != "training":
            self.outlook.consider(self.judged.scored.detector, self.material.X, self.labels())

    # ------------------------------------------------------------------ what to show

    def next_items(self, reviewer: str, n: int, have: Sequence[int] = ()) -> list[dict[str, Any]]:
        """The next items of the queue for a reviewer, beside those in hand."""
        with self._lock:
            verdicts = self.store.book.verdicts()

            def is_open(row: int) -> bool:
                said = verdicts.get(row, {})
                decided = any(verdict != "skip" for verdict in said.values())
                return not decided and reviewer not in said and self.material.known[row] == labels.UNLABELLED

            taken = self.queue.take(reviewer, n, is_open=is_open, have=have)
            self.judged.want([one.row for one in taken], first=False)
            y = self.labels()
            return [self._item(one.row, reviewer, y, one.why) for one in taken]

    def items(self, rows: Sequence[int], reviewer: str) -> list[dict[str, Any]]:
        """Everything to show about some rows; their reasons are looked for before all others."""
        wrong = [row for row in rows if not 0 <= row < self.material.n_rows]
        if wrong:
            raise InputError(f"Rows must be between 0 and {self.material.n_rows - 1}. Got {wrong[0]}.")
        with self._lock:
            self.judged.want(rows)
            y = self.labels()
            return [self._item(row, reviewer, y) for row in rows]

    def _item(self, row: int, reviewer: str, y: NDArray[np.int8], why: str | None = None) -> dict[str, Any]:
        opinions = self.store.book.opinions(row)
        shown = item(self.judged, opinions, row, reviewer=reviewer, y=y)
        return shown | {"why": why, "generation": self.generation}

    def listed(self, name: str, reviewer: str, query: str = "") -> dict[str, Any]:
        """Rows of a filter that hold a text, the most anomalous first; the first of very many."""
        if name not in FILTERS:
            raise InputError(f"There is no filter {name!r}. There are: {', '.join(FILTERS)}.")
        with self._lock:
            scored, known = self.judged.scored, self.material.known
            verdicts = self.store.book.verdicts()
            if name == "next":
                chosen = (self.labels() == labels.UNLABELLED)[scored.order]
                rows = scored.order[chosen]
            else:
                rows = filtered(
                    name,
                    order=scored.order,
                    is_alarm=scored.is_alarm,
                    known=known,
                    verdicts=verdicts,
                    reviewer=reviewer,
                )
        if query:
            rows = rows[self.material.found(query)[rows]]
        entries = [
            {
                "row": row,
                "name": self.material.called(row),
                "score": float(scored.scores[row]),
                "verdict": verdicts.get(row, {}).get(reviewer),
            }
            for row in rows[:MAX_LISTED].tolist()
        ]
        return {"total": len(rows), "entries": entries}

    def drawing(self, row: int, kind: str) -> bytes:
        """A picture, what the model expects in its place, or where its score comes from, as PNG."""
        if self.material.cells is not None or not 0 <= row < self.material.n_rows or kind not in DRAWINGS:
            raise InputError("There is no such picture.")
        if kind == "given":
            return to_png(shown(self.judged.rows_of([row])[0]))
        explained = self.judged.explained(row, wait=20.0)
        if explained is None:
            raise InputError("There is no heat map of this picture.")
        return explained.drawings[kind]

    # ------------------------------------------------------------------ state

    def state(self, reviewer: str) -> dict[str, Any]:
        """How far the review is."""
        with self._lock:
            y, scored = self.labels(), self.judged.scored
            counts = labels.counts(y)
            recent = self.store.book.recent(reviewer, N_RECENT)
            skipped = sum(said.get(reviewer) == "skip" for said in self.store.book.verdicts().values())
            gain = self.outlook.gain
            return {
                "title": self.material.title,
                "noun": self.material.noun,
                "n_rows": self.material.n_rows,
                "reviewer": reviewer,
                "reviewers": self.store.book.reviewers(),
                "generation": self.generation,
                "n_anomaly": counts.n_anomaly,
                "n_normal": counts.n_normal,
                "n_labelled": counts.n_anomaly + counts.n_normal,
                "n_skipped": skipped,
                "n_disagreements": len(self.store.book.disagreements()),
                "n_new": int((y != self._then).sum()),
                "gain": None if gain is None else asdict(gain),
                "estimating": self.outlook.is_busy,
                "estimated": self.outlook.progress,
                "recent": [
                    {"row": one.row, "name": self.material.called(one.row), "verdict": one.entry} for one in recent
                ],
                "model": {
                    "name": self.model.name,
                    "method": type(scored.detector).__name__,
                    "threshold": scored.detector.threshold_,
                    "n_alarms": int(scored.is_alarm.sum()),
                    "calibrated": scored.p_values is not None,
                    "can_roll_back": versions.has_previous(self.model),
                },
                "histogram": scored.histogram,
                "refit": self.refit_state(),
            }

    # ------------------------------------------------------------------ refit

    def start_refit(self) -> None:
        """Train a new model with the labels of now."""
        with self._lock:
            if self._refit is not None and self._refit.status == "training":
                raise InputError("A refit is under way.")
            y = self.labels()
            if not (y == labels.UNLABELLED).any():
                raise InputError("Every row is labelled: there is nothing left to find.")
            self.outlook.cancel()
            self._n_refits += 1
            refit = Refit(self.judged.scored, self.material.X, self._then, y, self.warm, number=self._n_refits)
            self._refit = refit.start()

    def stop_refit(self, number: int | None = None) -> None:
        """End a training, or drop its model: the old one stays in use. With a number: only that refit."""
        with self._lock:
            self._check_number(number)
            if self._refit is not None:
                self._refit.stop()
                self._refit = None
                self._look_ahead()

    def refit_state(self) -> dict[str, Any]:
        """How far a refit is and, when it is ready, what it would change."""
        refit = self._refit
        if refit is None:
            return {"status": "none"}
        found: dict[str, Any] = {"status": refit.status, "progress": refit.progress, "message": refit.message}
        found["number"] = refit.number
        comparison = refit.comparison
        if comparison is not None:
            counts = {"n_labelled": comparison.y, "n_then": refit.then}
            found |= {name: int(np.count_nonzero(y)) for name, y in counts.items()} | {"warm": comparison.warm}
            found |= {"validated": comparison.validated, "reason": comparison.reason}
            found["remarks"] = comparison.remarks
        return found

    def comparison(self) -> dict[str, Any]:
        """Old and new ranking, with names."""
        refit = self._refit
        if refit is None or refit.comparison is None:
            raise InputError("There is no new model to compare with. Refit first.")
        return compared_rows(refit.comparison, self.material) | {"number": refit.number}

    def _check_number(self, number: int | None) -> None:
        """Refuse to decide on a refit that is no longer there, since another reviewer has decided or begun anew."""
        if number is not None and (self._refit is None or self._refit.number != number):
            raise InputError("This refit is no longer the one under way. Look at what there is now.")

    def keep(self, number: int | None = None) -> None:
        """Use the new model from now on; its file takes the place of the old one, which is kept beside it.

        With a number: only the model of that refit.
        """
        with self._lock:
            self._check_number(number)
            if self._refit is None or self._refit.comparison is None:
                raise InputError("There is no new model to keep. Refit first.")
            comparison = self._refit.comparison
            detector = comparison.new.detector
            versions.replace(self.model, detector, with_cases=self._with_cases)
            self.store.remember_fit(detector.fingerprint_, comparison.y)
            self._refit = None
            self._use(comparison.new)
            self._look_ahead()

    def roll_back(self) -> None:
        """Go back to the model before; the one that is given up stays beside it."""
        with self._lock:
            if not versions.has_previous(self.model):
                raise InputError("There is no model to go back to.")
            scored = Scored.of(load(versions.beside(self.model, "previous")), self.material.X)
            versions.roll_back(self.model)
            self.stop_refit()
            self._use(scored)
