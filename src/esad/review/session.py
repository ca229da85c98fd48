"""One review without its web page: items, judgements, the model in use, and its replacement by a refit."""

import os
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from esad import labels
from esad.advice.suggest import find_border
from esad.core.arrays import Labels
from esad.detectors.model_file import load
from esad.errors import InputError
from esad.explain.displays import to_pixels, to_png
from esad.io.notes import DataSource, note_sources
from esad.review.dataset import ReviewDataset
from esad.review.gain import JOIN_SECONDS, GainEstimator
from esad.review.judgements import Entry, ImportCounts, Opinion, is_decided, is_disputed, parse_csv, write_csv
from esad.review.queue import BATCH, FILTERS, Queue, Verdicts, filter_rows
from esad.review.ranking import DRAWINGS, Explanations, Ranking
from esad.review.refit import Refit, compare_rankings, has_previous, path_beside, replace_model, restore_previous
from esad.review.store import JudgementStore
from esad.review.training import RefitData, make_training_finder

MAX_LISTED: Final = 500
N_RECENT: Final = 8
_WORDS: Final = {labels.ANOMALY: "anomaly", labels.NORMAL: "normal"}


class ReviewSession:
    """One review of one data set.

    Parameters
    ----------
    dataset : ReviewDataset
    store : JudgementStore
    ranking : Ranking
        The model to begin with, and what it says.
    model : Path
        Its file: what is kept goes there, and the model before it beside it.
    warm : bool
        Whether refits begin with the old weights.
    source : DataSource, optional
        Where the data under review lies: noted in the models that are kept.
    training : Path, optional
        What the model was trained on, where that is not found at the place noted in the model: refits keep it.
    """

    def __init__(
        self,
        dataset: ReviewDataset,
        store: JudgementStore,
        ranking: Ranking,
        model: Path,
        *,
        warm: bool = True,
        source: DataSource | None = None,
        training: Path | None = None,
    ) -> None:
        self.dataset, self.store, self.model = dataset, store, model
        self.warm, self.source = warm, source
        self._find_training = make_training_finder(dataset, store, source, training)
        self.gain_estimator = GainEstimator()
        self.import_progress: tuple[int, int] | None = None  # lines done, of how many
        self.generation = secrets.randbits(40)  # differs in every run, because browsers cache pictures under it
        self._with_cases = len(getattr(ranking.detector, "cases_", ())) > 0
        self._lock = threading.RLock()
        self._refit: Refit | None = None
        self._n_refits = 0
        self._use(ranking)

    @classmethod
    def open(
        cls,
        data: str | os.PathLike[str],
        model: str | os.PathLike[str],
        labels: str | os.PathLike[str],
        *,
        training: str | os.PathLike[str] | None = None,
        warm: bool = True,
        **reading: Any,
    ) -> "ReviewSession":
        """Review a file or folder with a model file; judgements are kept in, and gone on with from, the file `labels`.

        Parameters
        ----------
        data, model, labels : str or path-like
        training : str or path-like, optional
            What the model was trained on, where that is not found at the place noted in the model.
        warm : bool
            Whether refits begin with the old weights.
        **reading
            As for `ReviewDataset.from_file`: roles of columns, `skip_broken`, `on_remark`.
        """
        detector = load(model)
        dataset = ReviewDataset.from_file(Path(data), detector, **reading)
        return cls(
            dataset,
            JudgementStore.of(Path(labels), dataset),
            Ranking.of(detector, dataset.X),
            Path(model),
            warm=warm,
            source=DataSource.of(data),
            training=None if training is None else Path(training),
        )

    def _use(self, ranking: Ranking) -> None:
        """Go on with a model."""
        self.explanations = Explanations(ranking, self.dataset)
        threshold = ranking.detector.threshold_
        where = find_border(ranking.scores, self.labels(), threshold=threshold, n=BATCH)
        if where is None and ranking.detector.label_counts_.n_anomaly:
            where = threshold  # the anomalies that the model knows are not among these rows
        self.queue = Queue(ranking.scores, border=where, rows_of=self.explanations.rows_of)
        self.queue.prepare(self._find_open(self.store.judgements.verdicts()))
        _ = ranking.histogram, ranking.ranks  # kept from now on: the first page need not wait for them
        self.generation += 1
        self.training = self._find_training(ranking.detector)

    @property
    def ranking(self) -> Ranking:
        """Return the ranking by the model in use."""
        return self.explanations.ranking

    def close(self) -> None:
        """End what runs in the background, and let go of the journal."""
        if self._refit is not None:
            self._refit.stop(wait=JOIN_SECONDS)
        self.gain_estimator.close()
        self.explanations.close()
        self.store.close()

    def labels(self) -> Labels:
        """Labels to train with: those of the file, and what the reviewers agree on."""
        return self.store.judgements.labels(self.dataset.known)

    # ------------------------------------------------------------------ judgements

    def judge(self, request: str, row: int, reviewer: str, verdict: str) -> Opinion:
        """Enter a verdict, and return what the reviewer thought of the row before."""
        with self._lock:
            before = self.store.judgements.opinions(row).get(reviewer, Opinion())
            self.store.judge(request, row, reviewer, verdict)
            self._update_gain()
            return before

    def undo(self, request: str, reviewer: str, *, of: str | None = None) -> Entry | None:
        """Take back the verdict that the request `of` entered, or the last one: the verdict, None if there is none."""
        with self._lock:
            return self.store.undo(request, reviewer, of=of)

    def import_labels(self, text: str, reviewer: str) -> ImportCounts:
        """Enter the judgements of a CSV file."""
        lines = parse_csv(text, self.dataset, reviewer=reviewer)

        def tell(n_done: int) -> None:
            self.import_progress = n_done, len(lines)

        tell(0)
        try:
            with self._lock:
                counts = self.store.import_lines(lines, importer=reviewer, tell=tell)
                self._update_gain()
        finally:
            self.import_progress = None
        return counts

    def export_labels(self) -> str:
        """All judgements as CSV."""
        return write_csv(self.store.judgements, self.dataset)

    def _update_gain(self) -> None:
        if self._refit is None or self._refit.status != "training":
            y = self.labels()
            trained = np.concatenate([self.training.y, y])
            self.gain_estimator.update(
                self.ranking.detector, trained, lambda: RefitData.of(self.dataset.X, y, self.training)
            )

    # ------------------------------------------------------------------ what to show

    def next_items(self, reviewer: str, n: int, have: Sequence[int] = ()) -> list[dict[str, Any]]:
        """The next items of the queue for a reviewer, beside those in hand."""
        with self._lock:
            verdicts = self.store.judgements.verdicts()
            seen = {*have, *(row for row, said in verdicts.items() if reviewer in said)}
            taken = self.queue.take(reviewer, n, is_open=self._find_open(verdicts), have=seen)
            self.explanations.request([one.row for one in taken], first=False)
            y = self.labels()
            return [self._describe_row(one.row, reviewer, y, one.why) for one in taken]

    def _find_open(self, verdicts: Verdicts) -> NDArray[np.bool_]:
        """Return a mask of the rows that neither a reviewer nor the file has labelled."""
        is_open: NDArray[np.bool_] = self.dataset.known == labels.UNLABELLED
        is_open[[row for row, said in verdicts.items() if is_decided(said)]] = False
        return is_open

    def items(self, rows: Sequence[int], reviewer: str) -> list[dict[str, Any]]:
        """Everything to show about some rows; their reasons are looked for before all others."""
        wrong = [row for row in rows if not 0 <= row < self.dataset.n_rows]
        if wrong:
            raise InputError(f"Rows must be between 0 and {self.dataset.n_rows - 1}. Got {wrong[0]}.")
        with self._lock:
            self.explanations.request(rows)
            y = self.labels()
            return [self._describe_row(row, reviewer, y) for row in rows]

    def _describe_row(self, row: int, reviewer: str, y: Labels, why: str | None = None) -> dict[str, Any]:
        """Describe a row: score, reasons, judgements, nearest known cases, all cells."""
        ranking, dataset = self.ranking, self.dataset
        opinions = self.store.judgements.opinions(row)
        said = {name: opinion.verdict for name, opinion in opinions.items() if opinion.verdict}
        others = {name: asdict(opinion) for name, opinion in opinions.items()}
        mine = others.pop(reviewer, None)
        cases = [
            {"row": case.row, "name": dataset.name_of(case.row), "label": _WORDS[case.label], "distance": case.distance}
            for case in self.explanations.nearest(row, y)
        ]
        return {
            "row": row,
            "name": dataset.name_of(row),
            "is_titled": dataset.names is None and dataset.titles is not None,
            "score": float(ranking.scores[row]),
            "rank": int(ranking.ranks[row]),
            "p_value": None if ranking.p_values is None else float(ranking.p_values[row]),
            "is_alarm": bool(ranking.is_alarm[row]),
            "known": _WORDS.get(int(dataset.known[row])),
            "mine": mine,
            # shown only after the reviewer's own verdict, so that second opinions are independent
            "others": others if reviewer in said or is_disputed(said) else {},
            "n_others": len(others),
            "pending": self.explanations.is_pending(row),
            "reasons": None if dataset.cells is None else self.explanations.get(row),
            "drawings": [] if dataset.cells is not None else list(self.explanations.drawings),
            "cells": dataset.cells_of(row),
            "cases": cases,
            "why": why,
            "generation": self.generation,
        }

    def list_rows(self, name: str, reviewer: str, query: str = "") -> dict[str, Any]:
        """List the rows of a filter that hold a text, the most anomalous first, up to a limit."""
        if name not in FILTERS:
            raise InputError(f"There is no filter {name!r}. There are: {', '.join(FILTERS)}.")
        with self._lock:
            ranking = self.ranking
            verdicts = self.store.judgements.verdicts()
            if name == "next":
                rows = ranking.order[(self.labels() == labels.UNLABELLED)[ranking.order]]
            else:
                rows = filter_rows(
                    name,
                    order=ranking.order,
                    is_alarm=ranking.is_alarm,
                    is_open=self._find_open(verdicts),
                    verdicts=verdicts,
                    reviewer=reviewer,
                )
        if query:
            rows = rows[self.dataset.search(query)[rows]]
        entries = [
            {
                "row": row,
                "name": self.dataset.name_of(row),
                "score": float(ranking.scores[row]),
                "verdict": verdicts.get(row, {}).get(reviewer),
            }
            for row in rows[:MAX_LISTED].tolist()
        ]
        return {"total": len(rows), "entries": entries}

    def draw(self, row: int, kind: str) -> bytes:
        """A picture, what the model expects in its place, or where its score comes from, as PNG."""
        if self.dataset.cells is not None or not 0 <= row < self.dataset.n_rows or kind not in DRAWINGS:
            raise InputError("There is no such picture.")
        if kind == "given":
            return to_png(to_pixels(self.explanations.rows_of([row])[0]))
        drawings = self.explanations.get(row, wait=20.0)
        if drawings is None or kind not in drawings:
            raise InputError("There is no heat map of this picture, or no expectation.")
        return bytes(drawings[kind])

    # ------------------------------------------------------------------ state

    def state(self, reviewer: str) -> dict[str, Any]:
        """Return the progress of the review."""
        with self._lock:
            y, ranking, judgements = self.labels(), self.ranking, self.store.judgements
            counts = labels.counts(y)
            gain = self.gain_estimator.gain
            return {
                "title": self.dataset.title,
                "noun": self.dataset.noun,
                "n_rows": self.dataset.n_rows,
                "reviewer": reviewer,
                "reviewers": judgements.reviewers(),
                "generation": self.generation,
                "n_anomaly": counts.n_anomaly,
                "n_normal": counts.n_normal,
                "n_labelled": counts.n_anomaly + counts.n_normal,
                "n_skipped": sum(said.get(reviewer) == "skip" for said in judgements.verdicts().values()),
                "n_disagreements": len(judgements.disagreements()),
                "n_alarms_judged": int((ranking.is_alarm & (y != labels.UNLABELLED)).sum()),
                "n_new": int((y != self.training.y_here).sum()),
                "gain": None if gain is None else asdict(gain),
                "estimating": self.gain_estimator.is_busy,
                "estimated": self.gain_estimator.progress,
                "recent": [
                    {"row": one.row, "name": self.dataset.name_of(one.row), "verdict": one.entry, "by": one.imported_by}
                    for one in judgements.recent(reviewer, N_RECENT)
                ],
                "model": {
                    "name": self.model.name,
                    "method": type(ranking.detector).__name__,
                    "threshold": ranking.detector.threshold_,
                    "n_alarms": int(ranking.is_alarm.sum()),
                    "calibrated": ranking.p_values is not None,
                    "can_roll_back": has_previous(self.model),
                },
                "training": {  # what a refit uses beside the review, and what could not be found again
                    "n_rows": len(self.training.y),
                    "n_labelled": int(np.count_nonzero(self.training.y)),
                    "lost": self.training.lost,
                },
                "histogram": ranking.histogram,
                "refit": self.refit_state(),
            }

    # ------------------------------------------------------------------ refit

    def start_refit(self, *, forget: bool = False) -> None:
        """Train a new model with the labels of now, and with what the old one learned from.

        Where some of that was not found again, `forget` says that it may be lost.
        """
        with self._lock:
            if self.training.lost and not forget:
                raise InputError(
                    f"{self.training.lost} Say that it may be forgotten, or name it with --training or --labels."
                )
            if self._refit is not None and self._refit.status == "training":
                raise InputError("A refit is under way.")
            y = self.labels()
            if not (y == labels.UNLABELLED).any():
                raise InputError("Every row is labelled: there is nothing left to find.")
            self.gain_estimator.cancel()
            self._n_refits += 1
            X = self.dataset.X
            data = RefitData.of(X, y, self.training)
            self._refit = Refit(self.ranking, X, y, data, warm=self.warm, number=self._n_refits)

    def stop_refit(self, number: int | None = None) -> None:
        """End a training, or drop its model: the old one stays in use. With a number: only that refit."""
        with self._lock:
            self._check_number(number)
            if self._refit is not None:
                self._refit.stop()
                self._refit = None
                self._update_gain()

    def refit_state(self) -> dict[str, Any]:
        """Return the progress of a refit and, when it is ready, what it would change."""
        refit = self._refit
        if refit is None:
            return {"status": "none"}
        state: dict[str, Any] = {"status": refit.status, "progress": refit.progress, "message": refit.message}
        state["number"] = refit.number
        if refit.status == "ready":
            counts = refit.old.detector.label_counts_
            state |= {"n_labelled": int(np.count_nonzero(refit.data.y)), "n_rows": len(refit.data.y)}
            state |= {"n_then": counts.n_anomaly + counts.n_normal, "warm": refit.began_warm, "remarks": refit.remarks}
            state |= {"validated": refit.validated, "reason": refit.reason}
        return state

    def comparison(self) -> dict[str, Any]:
        """Old and new ranking, with the names of the rows."""
        refit = self._refit
        if refit is None or refit.new is None:
            raise InputError("There is no new model to compare with. Refit first.")
        old, new, y = refit.old, refit.new, refit.y

        def describe(rows: Sequence[int]) -> list[dict[str, Any]]:
            return [
                {"row": row, "name": self.dataset.name_of(row), "label": _WORDS.get(int(y[row]))}
                | {"old": int(old.ranks[row]), "new": int(new.ranks[row])}
                for row in rows
            ]

        found = compare_rankings(old, new, y)
        found |= {name: describe(found[name]) for name in ("rose", "fell")}
        found["top"] = {name: describe(rows) for name, rows in found["top"].items()}
        return found | {"number": refit.number}

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
            if self._refit is None or self._refit.new is None:
                raise InputError("There is no new model to keep. Refit first.")
            new, y = self._refit.new, self._refit.y
            detector = new.detector
            detector.notes_ = self._note_source(detector.notes_)
            self.store.remember_fit(detector.fingerprint_, y)  # first: should it fail, the files are as they were
            replace_model(self.model, detector, with_cases=self._with_cases)
            self._refit = None
            self.explanations.close()
            self._use(new)
            self._update_gain()

    def _note_source(self, notes: Mapping[str, Any]) -> dict[str, Any]:
        """The notes of a model that was refitted here: the data under review is among what it learned from."""
        if self.source is None:
            return dict(notes)
        reviewed = replace(self.source, judgements=str(self.store.path.absolute()))
        others = self.training.sources
        return note_sources(notes, [reviewed, *others] if self.training.is_first else [*others, reviewed])

    def roll_back(self) -> None:
        """Go back to the model before; the one that is given up stays beside it."""
        with self._lock:
            if not has_previous(self.model):
                raise InputError("There is no model to go back to.")
            ranking = Ranking.of(load(path_beside(self.model, "previous")), self.dataset.X)
            restore_previous(self.model)
            self.stop_refit()
            self.explanations.close()
            self._use(ranking)
