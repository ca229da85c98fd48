"""Evaluation against scikit-learn and by hand, and what it refuses."""

import json

import numpy as np
import pytest
from scipy.stats import norm
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


@pytest.mark.parametrize(("n_anomaly", "shift"), [(4, 1.0), (4, 3.0), (60, 1.0)])
def test_intervals_cover_the_true_auc_about_as_often_as_they_say_with_few_anomalies_too(n_anomaly, shift):
    rng = np.random.default_rng(1)
    truth = np.arange(200) < n_anomaly
    true_auc = norm.cdf(shift / 2**0.5)
    covered = []
    for _ in range(300):
        low, high = evaluate(rng.normal(size=200) + shift * truth, truth, level=0.9).intervals["auc"]
        covered.append(low <= true_auc <= high)
    assert np.mean(covered) > 0.86


def test_the_ends_of_an_interval_solve_its_equation():
    scores, truth = np.arange(12.0), np.isin(np.arange(12), [5, 9, 11])
    found = evaluate(scores, truth)
    m, n, z = 3, 9, norm.ppf(0.975)
    for a in found.intervals["auc"]:
        variance = a * (1 - a) / (m * n) * (1 + ((m + n) / 2 - 1) * ((1 - a) / (2 - a) + a / (1 + a)))
        assert abs(found.auc - a) == pytest.approx(z * variance**0.5)
    share, reach = found.average_precision, z / (m * found.average_precision * (1 - found.average_precision)) ** 0.5
    odds = share / (1 - share) * np.exp([-reach, reach])
    assert found.intervals["average_precision"] == pytest.approx(tuple(odds / (1 + odds)))


@pytest.mark.parametrize(("scores", "best"), [([0, 0.1, 0.2, 1, 2], 1.0), ([5, 4, 3, 1, 2], 0.0)])
def test_few_rows_never_are_certain(scores, best):
    found = evaluate(scores, [0, 0, 0, 1, 1])
    assert found.auc == best
    for name, estimate in (("auc", found.auc), ("average_precision", found.average_precision)):
        low, high = found.intervals[name]
        assert low <= estimate <= high
        assert high - low > 0.3


def test_intervals_can_be_left_out(problem):
    assert evaluate(*problem, intervals=False).intervals == {}


@pytest.mark.parametrize("old", [{"n_bootstrap": 0}, {"n_bootstrap": 50}, {"random_state": 1}])
def test_old_names_work_and_name_the_new_one(problem, old):
    with pytest.warns(DeprecationWarning, match="intervals=False") as warned:
        found = evaluate(*problem, **old)
    assert warned[0].filename == __file__
    assert found == evaluate(*problem, intervals=0 not in old.values())


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


@pytest.mark.parametrize("options", [{"level": 1.0}, {"level": 0.0}, {"ks": (0,)}])
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
    found = evaluate([0.1, 0.9, 0.2], ["ok", "fraud", "ok"], anomaly_value="fraud", intervals=False)
    assert found.auc == 1.0
