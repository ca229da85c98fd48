"""The search keeps the default unless another recipe is ahead by more than noise."""

import json

import numpy as np
import pytest
from support import tiny

from esad import BaggedTrees, Committee, evaluate
from esad.advice import search as module
from esad.advice.search import RECIPES, search
from esad.errors import InputError
from esad.methods.esad import ESAD


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(80, 3)), rng.normal(4, 1, size=(10, 3))]
    return X, np.r_[np.zeros(80, int), -np.ones(10, int)]


def pretend(monkeypatch, aucs):
    """Replace training: a recipe's AUC in every split is looked up by its learning rate."""
    monkeypatch.setattr(module, "score_held_out", lambda detector, X, parts, *, seed, whole: aucs[detector.lr])
    monkeypatch.setattr(module, "compute_auc", lambda scores, is_anomaly: scores)


@pytest.mark.parametrize(
    ("other", "chosen"),
    [
        ([0.9, 0.91, 0.92, 0.9], "fast"),  # ahead in every split
        ([0.7, 0.7, 0.7, 0.7], "default"),  # a tie
        ([0.6, 0.6, 0.6, 0.6], "default"),  # behind
        ([1.0, 0.5, 1.0, 0.5], "default"),  # ahead on average, by noise
    ],
)
def test_only_a_clear_lead_wins(rows, monkeypatch, other, chosen):
    pretend(monkeypatch, {"auto": [0.7, 0.7, 0.7, 0.7], 0.1: other})
    found = search(tiny("esad"), *rows, recipes={"fast": {"lr": 0.1}}, n_repeats=4)
    assert found.chosen == chosen
    assert found.detector.lr == (0.1 if chosen == "fast" else "auto")
    assert found.trials[1].ahead == pytest.approx(np.mean(other) - 0.7)
    expected = np.std(np.subtract(other, 0.7), ddof=1) * np.sqrt(1 / 4 + 0.3 / 0.7)
    assert found.trials[1].error == pytest.approx(expected, abs=1e-12)


def test_the_furthest_ahead_wins(rows, monkeypatch):
    pretend(monkeypatch, {"auto": [0.5] * 3, 0.1: [0.8] * 3, 0.2: [0.9] * 3})
    recipes = {"fast": {"lr": 0.1}, "faster": {"lr": 0.2}}
    assert search(tiny("esad"), *rows, recipes=recipes, n_repeats=3).chosen == "faster"


def test_with_too_few_anomalies_the_recipes_that_agree_win(rows, monkeypatch):
    """The default ranks the other way round than all others."""
    rng = np.random.default_rng(0)

    def scores(detector, X, parts, *, seed, whole):
        assert all((part.y == -1).sum() == 4 for part in parts)  # no label is held out
        truths = [X.matrix[part.test, 0] for part in parts]
        sign = -1 if detector.lr == "auto" else 1
        return [sign * truth + 0.1 * rng.normal(size=len(truth)) for truth in truths]

    monkeypatch.setattr(module, "score_held_out", scores)
    X, y = rows[0], np.r_[np.zeros(86, int), -np.ones(4, int)]
    recipes = {f"lr {lr}": {"lr": lr} for lr in (0.1, 0.2, 0.3)}
    found = search(tiny("esad"), X, y, recipes=recipes, n_repeats=5)
    assert found.criterion == "agreement"
    assert found.chosen in recipes
    assert found.trials[0].values[0] < 0 < found.trials[1].values[0]


def test_recipes_that_agree_leave_the_default(rows, monkeypatch):
    rng = np.random.default_rng(0)

    def scores(detector, X, parts, *, seed, whole):
        return [X.matrix[part.test, 0] + 0.1 * rng.normal(size=len(part.test)) for part in parts]

    monkeypatch.setattr(module, "score_held_out", scores)
    found = search(tiny("esad"), rows[0], None, recipes={"a": {"lr": 0.1}, "b": {"lr": 0.2}}, n_repeats=5)
    assert (found.chosen, found.criterion) == ("default", "agreement")


def test_too_few_rows_leave_the_default_and_train_nothing(rows, monkeypatch):
    monkeypatch.setattr(module, "score_held_out", lambda *args, **kwargs: pytest.fail("a training began"))
    found = search(tiny("esad"), rows[0][:19], None)
    assert (found.chosen, found.criterion, found.trials) == ("default", "none", ())
    assert "too few" in found.reason


def test_a_real_search_repeats_itself_and_is_plain_json(rows):
    detector = tiny("esad", n_members=1)
    heard = []
    first = search(detector, *rows, n_repeats=2, on_trial=lambda name, number: heard.append((name, number)))
    second = search(detector, *rows, n_repeats=2)
    assert first.to_json() == second.to_json()
    plain = json.loads(json.dumps(first.to_json()))
    assert [trial["name"] for trial in plain["trials"]] == ["default", *RECIPES]  # n_epochs was given: no other lengths
    assert heard == [(trial["name"], number) for number, trial in enumerate(plain["trials"])]
    assert not hasattr(detector, "offset_")


def test_what_the_user_has_set_is_not_searched(rows, monkeypatch):
    monkeypatch.setattr(module, "score_held_out", lambda detector, X, parts, *, seed, whole: [None] * len(parts))
    monkeypatch.setattr(module, "compute_auc", lambda *args: 0.5)
    tried = {trial.name for trial in search(ESAD(lr=0.01, random_state=0), *rows, n_repeats=2).trials}
    assert "slow" not in tried
    assert {"little input noise", "a third as long", "twice as long"} <= tried


def test_other_lengths_are_shares_of_the_usual_steps(rows):
    X, y = rows
    usual = ESAD().recipe_for(X.shape[1:], y).settings.n_steps
    for name, ratio in module.LENGTHS.items():
        change = module._list_lengths(ESAD(), y.astype(np.int8))[name]
        assert ESAD(**change).recipe_for(X.shape[1:], y).settings.n_steps == round(usual * ratio)


def test_other_lengths_are_those_shares_inside_a_split_too(monkeypatch):
    """With 150 rows an epoch is two batches, in a split of 105 rows it is one."""
    steps = {}

    def remember(detector, X, parts, *, seed, whole):
        change = {} if detector.n_epochs == "auto" else {"n_epochs": detector.n_epochs}
        recipe = ESAD(**change).recipe_for((3,), parts[0].y)
        steps[detector.n_epochs] = recipe.settings.n_steps
        return [None] * len(parts)

    monkeypatch.setattr(module, "score_held_out", remember)
    monkeypatch.setattr(module, "compute_auc", lambda *args: 0.5)
    X, y = np.random.default_rng(0).normal(size=(150, 3)), np.where(np.arange(150) < 8, -1, 0)
    found = search(ESAD(random_state=0), X, y, n_repeats=2)
    assert sorted(steps.values()) == [83, 250, 500]
    for trial in found.trials[-2:]:  # what is taken is for all rows
        n_steps = ESAD(**trial.parameters).recipe_for((3,), y).settings.n_steps
        assert n_steps == pytest.approx(250 * module.LENGTHS[trial.name], abs=1)


def test_a_length_that_whole_epochs_cannot_give_is_not_tried():
    """A million rows: one epoch is 7,813 steps, the default trains 1,000."""
    assert module._list_lengths(ESAD(), np.zeros(1_000_000, dtype=np.int8)) == {}


@pytest.mark.parametrize(
    ("detector", "changes", "words"),
    [
        (tiny("iforest"), {}, "Give `recipes`"),
        (tiny("esad"), {"recipes": {"odd": {"no_such": 1}}}, "no parameter 'no_such'"),
        (tiny("esad"), {"n_repeats": 0}, "n_splits"),
        (tiny("esad"), {"test_size": 2.0}, "test_size"),
    ],
)
def test_what_cannot_be_is_refused(rows, detector, changes, words):
    with pytest.raises(InputError, match=words):
        search(detector, *rows, **changes)


@pytest.mark.parametrize(
    ("lead", "chosen", "method"),
    [
        ({}, "default", Committee),
        ({"BaggedTrees": 0.3}, "trees alone", BaggedTrees),
        ({"ESAD": 0.3}, "ESAD alone", ESAD),
    ],
)
def test_the_committee_is_held_against_its_judges_and_other_lengths(rows, monkeypatch, lead, chosen, method):
    seen = []

    def remember(detector, X, parts, *, seed, whole):
        seen.append((type(detector), detector.get_params().get("n_members"), whole))
        return [0.6 + lead.get(type(detector).__name__, 0.0)] * len(parts)

    monkeypatch.setattr(module, "score_held_out", remember)
    monkeypatch.setattr(module, "compute_auc", lambda scores, is_anomaly: scores)
    found = search(Committee(n_members=3, n_trees=40, random_state=7), *rows, n_repeats=3)
    names = ["default", "ESAD alone", "trees alone", "a third as long", "twice as long"]
    assert [trial.name for trial in found.trials] == names
    others = [(ESAD, 3, True), (BaggedTrees, None, True), (Committee, 3, True), (Committee, 3, True)]
    assert seen == [(Committee, 3, True), *others]  # as many members as will be trained: trees have none
    assert (found.chosen, type(found.detector)) == (chosen, method)
    kept = found.detector.get_params()
    assert kept["random_state"] == 7
    assert kept.get("n_trees", 40) == 40


def test_without_rows_of_both_kinds_the_committee_is_not_held_against_its_judges(rows, monkeypatch):
    monkeypatch.setattr(module, "score_held_out", lambda detector, X, parts, *, seed, whole: [np.arange(9)] * 2)
    monkeypatch.setattr(module, "compute_auc", lambda scores, is_anomaly: 0.5)
    for y in (None, -np.ones(90, dtype=int)):  # nor with nothing else: it is ESAD alone
        found = search(Committee(random_state=0), rows[0], y, n_repeats=2)
        assert [trial.name for trial in found.trials] == ["default", "a third as long", "twice as long"]


def test_where_all_is_set_nothing_is_trained(rows, monkeypatch):
    monkeypatch.setattr(module, "score_held_out", lambda *args, **kwargs: pytest.fail("a training began"))
    found = search(Committee(n_epochs=3, random_state=0), rows[0], None)
    assert (found.chosen, found.trials, found.reason) == ("default", (), "Every recipe changes what has been set.")


def test_a_real_search_with_the_committee_scores_each_judge(rows):
    found = search(tiny("committee"), *rows, n_repeats=2)
    assert [trial.name for trial in found.trials] == ["default", "ESAD alone", "trees alone"]
    assert all(0.5 < value <= 1 for trial in found.trials for value in trial.values)


def test_other_methods_are_searched_with_recipes_of_their_own(rows):
    found = search(tiny("iforest"), *rows, recipes={"many": {"n_trees": 30}}, n_repeats=2)
    assert [trial.name for trial in found.trials] == ["default", "many"]


@pytest.mark.extra
def test_little_noise_is_found_where_noise_drowns_the_anomalies():
    """Three columns repeat three others nearly exactly; an anomaly is off by less than the default's input noise."""
    rng = np.random.default_rng(0)

    def draw(n_rows, n_anomalies):
        first = rng.normal(size=(n_rows, 3))
        X = np.c_[first, first + 0.05 * rng.normal(size=first.shape)]
        X[:n_anomalies, 3] += rng.choice([-0.5, 0.5], n_anomalies)
        return X

    X, y = draw(1000, 30), np.where(np.arange(1000) < 20, -1, 0)
    found = search(ESAD(random_state=0), X, y)
    assert found.chosen == "little input noise"
    X_test, truth = draw(2000, 100), np.arange(2000) < 100
    before, after = (
        evaluate(detector.fit(X, y).anomaly_score(X_test), truth, intervals=False).auc
        for detector in (ESAD(random_state=0), found.detector)
    )
    assert after > before + 0.2
