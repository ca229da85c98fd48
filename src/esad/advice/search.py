"""A handful of recipes tried on the labelled rows; another one than the default only where it is clearly better.

Every recipe sees the same repeated label-aware splits. The held-out labelled anomalies are ranked against all other
held-out rows, and each recipe's AUC is held against the default's, split by split. A recipe is taken if

    mean difference > 2 s sqrt(1 / R + q)

with s the standard deviation of the differences over R splits and q = held-out share / training share, Nadeau and
Bengio's correction for splits that share rows. With too few labelled anomalies nothing is tried and the default stays:
it was chosen on many tables, which is the best criterion known that needs no label.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone

from esad import labels
from esad.advice.crossfit import Part, auc, held_out_scores, label_check, thinned
from esad.data.images import is_images
from esad.data.table import take_rows
from esad.detector import Detector
from esad.errors import InputError
from esad.methods._esad_recipe import resolve
from esad.methods.esad import ESAD
from esad.random import seed_from
from esad.score.splits import LabelAwareSplit, corrected_error

__all__ = ["LENGTHS", "RECIPES", "Search", "Trial", "search"]

DEFAULT: Final = "default"
MIN_ANOMALIES: Final = 5
N_ERRORS: Final = 2.0  # standard errors by which a recipe must be ahead

# What is tried beside the default on tables: changes of `ESAD`'s parameters.
RECIPES: Final[dict[str, dict[str, Any]]] = {
    "little input noise": {"input_noise": 0.1},
    "much input noise": {"input_noise": 1.0},
    "slow": {"lr": 2e-3},
    "reconstruction counts more": {"norm_weight": 1.0},
    "norm counts more": {"norm_weight": 5.0},
}
LENGTHS: Final = {"a third as long": 1 / 3, "twice as long": 2.0}  # early stopping, and its opposite


@dataclass(frozen=True)
class Trial:
    """How one recipe did.

    Attributes
    ----------
    name : str
        What it is called.
    parameters : dict
        What it changes.
    auc : tuple of float
        AUC of each split.
    ahead : float
        Mean difference to the default.
    error : float
        Standard error of that difference, corrected for splits that share rows.
    """

    name: str
    parameters: dict[str, Any]
    auc: tuple[float, ...]
    ahead: float
    error: float

    @property
    def is_clearly_ahead(self) -> bool:
        """Whether the difference is more than noise."""
        return self.ahead > N_ERRORS * self.error


@dataclass(frozen=True)
class Search:
    """What `search` found.

    Attributes
    ----------
    detector : Detector
        Not fitted; with the parameters chosen.
    chosen : str
        Name of the recipe taken.
    trials : tuple of Trial
        Every recipe, the default first; empty if nothing was tried.
    reason : str
        Why this one, in a sentence.
    """

    detector: Detector
    chosen: str
    trials: tuple[Trial, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        return {"chosen": self.chosen, "reason": self.reason, "trials": [asdict(trial) for trial in self.trials]}


def search(
    detector: Detector,
    X: Any,
    y: ArrayLike | None,
    *,
    recipes: Mapping[str, Mapping[str, Any]] | None = None,
    n_repeats: int = 10,
    test_size: float = 0.3,
    on_trial: Callable[[str, int], None] | None = None,
) -> Search:
    """Choose among a few recipes by the labelled rows.

    Parameters
    ----------
    detector : Detector
        The default; it is not changed.
    X : array, table or pictures
        As for `fit`.
    y : array-like of -1, 0, +1, optional
        Labels; with fewer than five anomalies the default stays.
    recipes : mapping of str to mapping, optional
        Names, and the parameters that each changes. For `ESAD` on tables a handful is known: `RECIPES`, and trainings
        that stop earlier or later than usual; those that change a parameter given to the detector are left out.
    n_repeats : int
        How many splits to draw; every recipe sees the same ones.
    test_size : float
        Share of each kind of label that is held out.
    on_trial : callable, optional
        Called with a recipe's name and its number before it is tried.

    Examples
    --------
    >>> from esad import ESAD
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(100, 2)), np.r_[np.zeros(97, int), -np.ones(3, int)]
    >>> found = search(ESAD(random_state=0), X, y)
    >>> found.chosen, found.reason
    ('default', '3 labelled anomalies are too few to choose by; 5 are needed.')
    """
    checked = label_check(X, y)
    changes = _recipes(detector, X, checked, recipes)
    n_anomaly = labels.counts(checked).n_anomaly
    if n_anomaly < MIN_ANOMALIES:
        reason = f"{n_anomaly} labelled anomalies are too few to choose by; {MIN_ANOMALIES} are needed."
        return Search(clone(detector), DEFAULT, (), reason)
    seed = seed_from(detector.random_state)
    rows = thinned(checked, rng=np.random.default_rng(seed))
    own, checked = take_rows(X, rows), checked[rows]
    splits = list(LabelAwareSplit(n_repeats, test_size=test_size, random_state=seed).split(checked, checked))
    parts = [Part(train, checked[train], test) for train, test in splits]
    trials: list[Trial] = []
    for number, (name, change) in enumerate(changes.items()):
        if on_trial is not None:
            on_trial(name, number)
        scores = held_out_scores(clone(detector).set_params(**change), own, parts, seed=seed)
        aucs = np.array([auc(s, checked[part.test] == labels.ANOMALY) for s, part in zip(scores, parts, strict=True)])
        trials.append(_trial(name, dict(change), aucs, np.array(trials[0].auc) if trials else aucs, test_size))
    return _decided(detector, trials)


def _recipes(
    detector: Detector, X: Any, y: NDArray[np.int8], recipes: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Mapping[str, Any]]:
    """The default, then what is tried beside it; a parameter that the method does not have is an error."""
    if recipes is None:
        if not isinstance(detector, ESAD) or is_images(X):
            raise InputError("There are recipes for ESAD on tables only. Give `recipes`.")
        known, usual = detector.get_params(deep=False), ESAD().get_params(deep=False)
        tried = RECIPES | _lengths(detector, y)
        settled = {name for name, value in known.items() if not _is_same(value, usual[name])}  # the user's choice stays
        return {DEFAULT: {}} | {name: change for name, change in tried.items() if not settled & change.keys()}
    known = detector.get_params(deep=False)
    for name in dict.fromkeys(name for change in recipes.values() for name in change):
        if name not in known:
            raise InputError(
                f"{type(detector).__name__} has no parameter {name!r}. It has: {', '.join(sorted(known))}."
            )
    return {DEFAULT: {}} | {name: change for name, change in recipes.items() if name != DEFAULT}


def _lengths(detector: ESAD, y: NDArray[np.int8]) -> dict[str, dict[str, Any]]:
    """Trainings of other lengths than the detector's own."""
    settings = resolve(detector.get_params(deep=False), (1,), y, "cpu").settings
    n_unlabelled = int(np.count_nonzero(y == labels.UNLABELLED)) or len(y)
    per_epoch = -(-n_unlabelled // min(settings.batch_size, n_unlabelled))
    n_epochs = settings.n_steps / per_epoch
    return {name: {"n_epochs": max(1, round(ratio * n_epochs))} for name, ratio in LENGTHS.items()}


def _is_same(value: Any, other: Any) -> bool:
    return type(value) is type(other) and bool(np.all(value == other))


def _trial(
    name: str, change: dict[str, Any], aucs: NDArray[np.float64], base: NDArray[np.float64], test_size: float
) -> Trial:
    difference = aucs - base
    error = corrected_error(difference, test_size=test_size)
    return Trial(name, change, tuple(aucs.tolist()), float(difference.mean()), error)


def _decided(detector: Detector, trials: list[Trial]) -> Search:
    """The recipe that is furthest ahead among those that are clearly ahead, or the default."""
    clear = [trial for trial in trials[1:] if trial.is_clearly_ahead]
    if not clear:
        return Search(clone(detector), DEFAULT, tuple(trials), "No recipe is ahead of the default by more than noise.")
    best = max(clear, key=lambda trial: trial.ahead)
    reason = f"{best.name}: AUC {best.ahead:+.3f} ± {best.error:.3f} against the default on held-out labels."
    return Search(clone(detector).set_params(**best.parameters), best.name, tuple(trials), reason)
