"""Evaluation against scikit-learn and by hand, and what it refuses."""

import json

import numpy as np
import pytest
from sklearn.ensemble import IsolationForest
from sklearn.metrics import average_precision_score, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from esad.errors import InputError, LabelError
from esad.score.metrics import Confusion, ap_scorer, auc_scorer, evaluate


@pytest.fixture
def problem():
    rng = np.random.default_rng(0)
    truth = np.arange(500) < 50
    return rng.normal(size=500) + 1.5 * truth, truth.astype(int)


def test_values_are_those_of_scikit_learn(problem):
    scores, truth = problem
    found = evaluate(scores, truth)
    assert found.auc == roc_auc_score(truth, scores)
    assert found.average_precision == average_precision_score(truth, scores)
    assert (found.n_rows, found.n_anomaly) == (500, 50)


@pytest.mark.parametrize("as_truth", [lambda t: t, lambda t: 1 - 2 * t, lambda t: np.where(t, "anomaly", "normal")])
def test_every_form_of_truth_gives_the_same(problem, as_truth):
    scores, truth = problem
    assert evaluate(scores, as_truth(truth)) == evaluate(scores, truth)


def test_precision_at_counts_the_highest_scores():
    found = evaluate([5, 4, 3, 2, 1], [1, 0, 1, 0, 0], ks=(1, 2, 3, 100))
    assert found.precision_at == {1: 1.0, 2: 0.5, 3: pytest.approx(2 / 3)}


def test_precision_at_does_not_depend_on_the_order_of_ties():
    scores = [2, 1, 1, 1, 1, 0]
    for truth in ([0, 1, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]):
        assert evaluate(scores, truth, ks=(3,)).precision_at == {3: pytest.approx(2 * 0.25 / 3)}


def test_confusion_counts_scores_above_the_threshold():
    found = evaluate([1, 2, 3, 4, 5], [0, 1, 0, 1, 1], threshold=3)
    assert found.confusion == Confusion(threshold=3, true_alarms=2, false_alarms=0, missed=1, passed=2)
    assert found.confusion.precision == 1.0
    assert found.confusion.recall == pytest.approx(2 / 3)
    assert found.confusion.false_alarm_rate == 0.0


def test_no_alarm_at_all_has_precision_zero():
    assert evaluate([1, 2], [0, 1], threshold=9).confusion.precision == 0.0


def test_without_threshold_there_is_no_confusion(problem):
    assert evaluate(*problem).confusion is None


def test_intervals_hold_the_estimate_and_grow_with_the_level(problem):
    narrow, wide = (evaluate(*problem, level=level) for level in (0.5, 0.99))
    for name, estimate in [("auc", narrow.auc), ("average_precision", narrow.average_precision)]:
        assert 0 <= wide.intervals[name][0] < narrow.intervals[name][0] < estimate
        assert estimate < narrow.intervals[name][1] < wide.intervals[name][1] <= 1


def test_intervals_cover_the_true_auc_about_as_often_as_they_say():
    rng = np.random.default_rng(1)
    truth = np.arange(200) < 60
    true_auc = 0.7602499389065233  # of N(1, 1) against N(0, 1)
    covered = []
    for seed in range(200):
        low, high = evaluate(
            rng.normal(size=200) + truth, truth, n_bootstrap=300, level=0.9, random_state=seed
        ).intervals["auc"]
        covered.append(low <= true_auc <= high)
    assert 0.83 < np.mean(covered) < 0.96


def test_perfect_scores_have_an_interval_of_one_point():
    found = evaluate([0, 0.1, 0.2, 1, 2], [0, 0, 0, 1, 1])
    assert found.intervals == {"auc": (1.0, 1.0), "average_precision": (1.0, 1.0)}


def test_the_same_seed_gives_the_same_intervals(problem):
    assert evaluate(*problem, random_state=5) == evaluate(*problem, random_state=5)
    assert evaluate(*problem, random_state=5).intervals != evaluate(*problem, random_state=6).intervals


def test_bootstrap_can_be_left_out(problem):
    assert evaluate(*problem, n_bootstrap=0).intervals == {}


def test_json_holds_everything(problem):
    plain = json.loads(json.dumps(evaluate(*problem, threshold=1.0).to_json(), allow_nan=False))
    assert set(plain) == {
        *("n_rows", "n_anomaly", "auc", "average_precision", "precision_at", "confusion", "intervals", "level")
    }
    assert plain["precision_at"].keys() == {"10", "50", "100"}
    assert plain["confusion"]["recall"] == pytest.approx(plain["confusion"]["true_alarms"] / 50)
    assert len(plain["intervals"]["auc"]) == 2


@pytest.mark.parametrize("truth", [[0, 0, 0], [1, 1, 1]])
def test_one_kind_of_row_alone_is_refused(truth):
    with pytest.raises(InputError, match="needs anomalies and other rows"):
        evaluate([1, 2, 3], truth)


@pytest.mark.parametrize("scores", [[1, 2], [1, np.nan, 2], [1, np.inf, 2], [[1], [2], [3]]])
def test_unusable_scores_are_refused(scores):
    with pytest.raises(InputError, match="`scores` must"):
        evaluate(scores, [0, 1, 0])


@pytest.mark.parametrize("options", [{"n_bootstrap": -1}, {"level": 1.0}, {"level": 0.0}, {"ks": (0,)}])
def test_impossible_options_are_refused(options):
    with pytest.raises(InputError, match="must be"):
        evaluate([1, 2, 3], [0, 1, 0], **options)


@pytest.fixture
def labelled():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(100, 2)), rng.normal(8, 1, size=(5, 2))]
    return X, np.r_[np.zeros(50), np.ones(50), np.full(5, -1)]


def test_scorers_hold_labelled_anomalies_against_all_other_rows(labelled):
    X, y = labelled
    forest = make_pipeline(StandardScaler(), IsolationForest(random_state=0)).fit(X)
    scores = -forest.score_samples(X)
    assert auc_scorer(forest, X, y) == roc_auc_score(y == -1, scores)
    assert ap_scorer(forest, X, y) == average_precision_score(y == -1, scores)


def test_scorers_take_estimators_that_only_decide(labelled):
    X, y = labelled
    assert auc_scorer(LinearSVC().fit(X, np.where(y == -1, -1, 1)), X, y) == 1.0


@pytest.mark.parametrize("scorer", [auc_scorer, ap_scorer])
def test_scorers_refuse_labels_without_anomalies(labelled, scorer):
    X, _ = labelled
    forest = IsolationForest(random_state=0).fit(X)
    with pytest.raises(InputError, match="Got 0 anomalies"):
        scorer(forest, X, np.zeros(len(X)))
    with pytest.raises(LabelError, match=r"Got \[2\]"):
        scorer(forest, X, np.full(len(X), 2))


def test_truth_may_be_words_with_the_anomaly_value_named():
    found = evaluate([0.1, 0.9, 0.2], ["ok", "fraud", "ok"], anomaly_value="fraud", n_bootstrap=0)
    assert found.auc == 1.0
