"""Tries a handful of recipes on the rows at hand, and leaves the default only for one that is clearly better.

Every recipe sees the same repeated splits. With five labelled anomalies or more, the held-out labelled anomalies are
ranked against all other held-out rows, and the value of a recipe in a split is its AUC. With fewer, no label can be
spared: all of them train, and the value is how well the recipe's ranking of held-out unlabelled rows agrees with the
mean ranking by the other recipes (Spearman's correlation). Good recipes tend to agree, and each bad one errs in its own
way. Agreement does not tell which of two good recipes is better, so a lead in it must be 0.1 at least. The values of a
recipe are compared with those of the default, split by split, and it is taken if

    mean difference > 2 s sqrt(1 / R + q)

with s the standard deviation of the differences over R splits and q = held-out share / training share, Nadeau and
Bengio's correction for splits that share rows.

Recipes of one method are held against each other with one member each. Those of the committee are other lengths of
ESAD's training in it, and each judge alone; as trees have no members, all are trained with as many as they will have.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import rankdata, spearmanr
from sklearn.base import clone
from sklearn.model_selection import ShuffleSplit

from esad import labels
from esad.advice.crossfit import Fold, read_whole, score_held_out, thin_rows
from esad.core.arrays import Floats, Labels, Scores
from esad.core.random import seed_from
from esad.detectors.base import Detector
from esad.errors import InputError
from esad.methods.committee import NETWORKS, TREES, Committee
from esad.methods.esad import ESAD
from esad.preprocess.inputs import is_images
from esad.score.metrics import compute_auc
from esad.score.splits import LabelAwareSplit, corrected_error
from esad.table.table import take_rows

DEFAULT: Final = "default"
MIN_ANOMALIES: Final = 5
MIN_UNLABELLED: Final = 20
N_ERRORS: Final = 2.0  # standard errors by which a recipe must be ahead
MIN_AGREEMENT: Final = 0.1  # lead in agreement below which recipes count as equally good

# What is tried beside the default on tables: changes of `ESAD`'s parameters.
RECIPES: Final[dict[str, dict[str, Any]]] = {
    "little input noise": {"input_noise": 0.1},
    "much input noise": {"input_noise": 1.0},
    "slow": {"lr": 2e-3},
    "reconstruction counts more": {"norm_weight": 1.0},
    "norm counts more": {"norm_weight": 5.0},
}
JUDGES: Final = {"ESAD alone": {"method": NETWORKS}, "trees alone": {"method": TREES}}  # in place of the committee
LENGTHS: Final = {"a third as long": 1 / 3, "twice as long": 2.0}  # early stopping, and its opposite
MAX_ROUNDING: Final = 0.25  # relative error that rounding to whole epochs may cause


@dataclass(frozen=True)
class Trial:
    """How one recipe did.

    Attributes
    ----------
    name : str
        What it is called.
    parameters : dict
        What it changes; "method" where it is another method, with the same parameters as far as it has them.
    values : tuple of float
        AUC of each split, or agreement with the other recipes where labels are too few.
    ahead : float
        Mean difference to the default.
    error : float
        Standard error of that difference, corrected for splits that share rows.
    """

    name: str
    parameters: dict[str, Any]
    values: tuple[float, ...]
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
    criterion : {"auc", "agreement", "none"}
        What the recipes were judged by.
    trials : tuple of Trial
        Every recipe, the default first; empty if nothing was tried.
    reason : str
        Why this one, in a sentence.
    """

    detector: Detector
    chosen: str
    criterion: str
    trials: tuple[Trial, ...]
    reason: str

    def to_json(self) -> dict[str, Any]:
        """Plain values that `json.dumps` takes."""
        trials = [asdict(trial) for trial in self.trials]
        return {"chosen": self.chosen, "criterion": self.criterion, "reason": self.reason, "trials": trials}


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
    """Choose among a few recipes by the labelled rows, or without them where they are too few.

    Parameters
    ----------
    detector : Detector
        The default; it is not changed.
    X : array, table or pictures
        As for `fit`.
    y : array-like of -1, 0, +1, optional
        Labels; with fewer than five anomalies recipes are judged by how well they agree.
    recipes : mapping of str to mapping, optional
        Names, and the parameters that each changes. For `ESAD` on tables a handful is known: `RECIPES`, and trainings
        that stop earlier or later than usual; those that change a parameter given to the detector are left out. For
        `Committee` these are the trainings, and each of its judges alone.
    n_repeats : int
        How many splits to draw; every recipe sees the same ones.
    test_size : float
        Share of each kind of label, or of the unlabelled rows, that is held out.
    on_trial : callable, optional
        Called with a recipe's name and its number before it is tried.

    Examples
    --------
    >>> from esad import ESAD
    >>> X = np.random.default_rng(0).normal(size=(10, 2))
    >>> found = search(ESAD(random_state=0), X, None)
    >>> found.chosen, found.reason
    ('default', '10 unlabelled rows and 0 labelled anomalies are too few to choose by; 20 or 5 are needed.')
    """
    data, checked = read_whole(X, y)
    changes = _list_recipes(detector, data, checked, recipes)
    if len(changes) == 1:
        reason = "Every recipe changes what has been set." if recipes is None else "No recipe was given."
        return Search(clone(detector), DEFAULT, "none", (), reason)
    seed = seed_from(detector.random_state)
    rows = thin_rows(checked, rng=np.random.default_rng(seed))
    own, checked = take_rows(data, rows), checked[rows]
    counts = labels.counts(checked)
    by_labels = counts.n_anomaly >= MIN_ANOMALIES
    if not by_labels and counts.n_unlabelled < MIN_UNLABELLED:
        reason = (
            f"{counts.n_unlabelled} unlabelled rows and {counts.n_anomaly} labelled anomalies are too few "
            f"to choose by; {MIN_UNLABELLED} or {MIN_ANOMALIES} are needed."
        )
        return Search(clone(detector), DEFAULT, "none", (), reason)
    split = _split_labelled if by_labels else _split_unlabelled
    parts = split(checked, n_repeats, test_size, seed)
    tried = _shorten_for_split(detector, changes, parts[0].y) if recipes is None else changes
    whole = recipes is None and isinstance(detector, Committee)
    scores: list[list[Scores]] = []  # of every recipe, for every part
    for number, (name, change) in enumerate(tried.items()):
        if on_trial is not None:
            on_trial(name, number)
        scores.append(score_held_out(_apply_recipe(detector, change), own, parts, seed=seed, whole=whole))
    values = _compute_aucs(scores, parts, checked) if by_labels else _compute_agreements(scores)
    trials = []
    for name, own in zip(tried, values, strict=True):
        ahead = own - values[0]
        error = corrected_error(ahead, test_size=test_size)
        trials.append(Trial(name, dict(changes[name]), tuple(own.tolist()), float(ahead.mean()), error))
    return _choose_recipe(detector, trials, by_labels=by_labels)


def _split_labelled(y: Labels, n_repeats: int, test_size: float, seed: int) -> list[Fold]:
    """Make splits that hold out some labels of each kind."""
    splits = LabelAwareSplit(n_repeats, test_size=test_size, random_state=seed).split(y, y)
    return [Fold(train, y[train], test) for train, test in splits]


def _split_unlabelled(y: Labels, n_repeats: int, test_size: float, seed: int) -> list[Fold]:
    """Make splits that hold out unlabelled rows only."""
    unlabelled = np.flatnonzero(y == labels.UNLABELLED)
    parts = []
    for _, held_out in ShuffleSplit(n_repeats, test_size=test_size, random_state=seed).split(unlabelled):
        train = np.setdiff1d(np.arange(len(y)), unlabelled[held_out])
        parts.append(Fold(train, y[train], np.sort(unlabelled[held_out])))
    return parts


def _compute_aucs(scores: list[list[Scores]], parts: list[Fold], y: Labels) -> Floats:
    """AUC of the held-out anomalies, (recipes, splits)."""
    return np.array(
        [[compute_auc(s, y[part.test] == labels.ANOMALY) for s, part in zip(own, parts, strict=True)] for own in scores]
    )


def _compute_agreements(scores: list[list[Scores]]) -> Floats:
    """Spearman's correlation with the mean ranking by the other recipes, (recipes, splits).

    Examples
    --------
    >>> same, other = np.array([1.0, 2.0, 3.0, 4.0]), np.array([4.0, 3.0, 2.0, 1.0])
    >>> _compute_agreements([[same], [same], [same], [other]]).ravel().tolist()
    [1.0, 1.0, 1.0, -1.0]
    """
    values = np.zeros((len(scores), len(scores[0])))
    for number, of_split in enumerate(zip(*scores, strict=True)):
        ranks = np.array([rankdata(s) for s in of_split])  # (recipes, rows)
        for recipe, own in enumerate(ranks):
            others = (ranks.sum(0) - own) / max(1, len(ranks) - 1)
            is_flat = np.ptp(own) == 0 or np.ptp(others) == 0
            values[recipe, number] = 0.0 if is_flat else spearmanr(own, others).statistic
    return values


def _list_recipes(
    detector: Detector, X: Any, y: Labels, recipes: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, Mapping[str, Any]]:
    """List the default recipe and its alternatives; refuse a parameter that the method does not have."""
    if recipes is None:
        if not isinstance(detector, ESAD | Committee) or is_images(X):
            raise InputError("There are recipes for ESAD and the committee on tables only. Give `recipes`.")
        known, usual = detector.get_params(deep=False), type(detector)().get_params(deep=False)
        if isinstance(detector, ESAD):
            tried = RECIPES | _list_lengths(detector, y)
        else:  # without a known anomaly, or with nothing else, it is ESAD alone
            is_anomaly = y == labels.ANOMALY
            tried = (JUDGES if is_anomaly.any() and not is_anomaly.all() else {}) | _list_lengths(detector, y)
        settled = set()  # what the user has chosen stays
        for name, value in known.items():
            if type(value) is not type(usual[name]) or not np.all(value == usual[name]):
                settled.add(name)
        return {DEFAULT: {}} | {name: change for name, change in tried.items() if not settled & change.keys()}
    known = detector.get_params(deep=False)
    for name in dict.fromkeys(name for change in recipes.values() for name in change):
        if name not in known:
            raise InputError(
                f"{type(detector).__name__} has no parameter {name!r}. It has: {', '.join(sorted(known))}."
            )
    return {DEFAULT: {}} | {name: change for name, change in recipes.items() if name != DEFAULT}


def _apply_recipe(detector: Detector, change: Mapping[str, Any]) -> Detector:
    """A copy with the parameters of a recipe; in place of a committee it may be one of its judges."""
    if isinstance(detector, Committee) and "method" in change:
        return detector.make_judges()[change["method"]]
    changed: Detector = clone(detector).set_params(**change)
    return changed


def _list_lengths(detector: Detector, y: Labels) -> dict[str, dict[str, Any]]:
    """List the recipes that train for a third or twice as many epochs, where rounding to whole epochs allows it."""
    networks = detector.make_judges()[NETWORKS] if isinstance(detector, Committee) else detector
    assert isinstance(networks, ESAD)
    settings = networks.recipe_for((1,), y).settings
    n_unlabelled = int(np.count_nonzero(y == labels.UNLABELLED)) or len(y)
    per_epoch = -(-n_unlabelled // min(settings.batch_size, n_unlabelled))
    exact = {name: ratio * settings.n_steps / per_epoch for name, ratio in LENGTHS.items()}
    return {name: {"n_epochs": round(n)} for name, n in exact.items() if abs(round(n) - n) <= MAX_ROUNDING * n}


def _shorten_for_split(
    detector: Detector, changes: Mapping[str, Mapping[str, Any]], y: Labels
) -> dict[str, Mapping[str, Any]]:
    """Adapt the recipes to the rows of a split, in which an epoch has fewer steps."""
    lengths = _list_lengths(detector, y)
    possible = {name: change for name, change in changes.items() if name not in LENGTHS or name in lengths}
    return {name: lengths.get(name, change) for name, change in possible.items()}


def _choose_recipe(detector: Detector, trials: list[Trial], *, by_labels: bool) -> Search:
    """Choose the best of the recipes that are clearly better than the default, or else the default."""
    criterion, rows = ("auc", "labels") if by_labels else ("agreement", "unlabelled rows")
    least = 0.0 if by_labels else MIN_AGREEMENT
    clear = [trial for trial in trials[1:] if trial.is_clearly_ahead and trial.ahead >= least]
    if not clear:
        reason = f"No recipe is ahead of the default by more than noise ({criterion} on held-out {rows})."
        return Search(clone(detector), DEFAULT, criterion, tuple(trials), reason)
    best = max(clear, key=lambda trial: trial.ahead)
    reason = f"{best.name}: {criterion} {best.ahead:+.3f} ± {best.error:.3f} against the default on held-out {rows}."
    return Search(_apply_recipe(detector, best.parameters), best.name, criterion, tuple(trials), reason)
