"""p-values of fitted detectors: every method offers them, they hold their level, they are saved with the model."""

import inspect

import numpy as np
import pandas as pd
import pytest
from support import methods, small_labels, tiny

import esad
from esad import ESAD, IsolationForest
from esad.core.random import draw_calibration
from esad.detectors.deep import DeepDetector
from esad.errors import InputError
from esad.preprocess.inputs import Inputs


@pytest.mark.parametrize("name", methods())
def test_every_method_calibrates_on_rows_held_out_of_the_training(name, rows, tmp_path):
    X, y = rows
    detector = tiny(name).fit(X, y, calibration_ratio=0.25)
    n_held_out = round(0.25 * int((y == 0).sum()))
    assert detector.calibration_.n_rows == n_held_out
    assert len(detector.training_scores_) == len(X) - n_held_out
    assert detector.label_counts_.n_anomaly == int((y < 0).sum())  # labels are all kept for the training
    found = detector.p_value(X)
    np.testing.assert_array_equal(found, detector.calibration_.p_values(detector.anomaly_score(X)))
    assert ((found >= 1 / (n_held_out + 1)) & (found <= 1)).all()
    detector.save(tmp_path / "model.esad")
    loaded = esad.load(tmp_path / "model.esad")
    np.testing.assert_array_equal(loaded.p_value(X), found)
    loaded.save(tmp_path / "again.esad")
    assert (tmp_path / "again.esad").read_bytes() == (tmp_path / "model.esad").read_bytes()


@pytest.mark.filterwarnings("ignore:Column 'due' is nearly all dates")
def test_a_column_is_what_all_rows_say_those_held_out_too():
    X = pd.DataFrame({"due": ["soon", "later", *["2024-02-29", "2024-03-01"] * 20]})
    detectors = [tiny("iforest", random_state=seed).fit(X, calibration_ratio=0.5) for seed in range(4)]
    assert {detector.inputs_.schema.kinds for detector in detectors} == {("category",)}


@pytest.mark.parametrize("name", methods("images"))
def test_pictures_calibrate_too(name):
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 200, size=(30, 10, 10), dtype=np.uint8)
    labels = small_labels(name, 30)
    detector = tiny(name, hidden=(3, 3), n_epochs=1).fit(pictures, labels, calibration_ratio=0.5)
    assert detector.calibration_.n_rows == round(0.5 * (30 if labels is None else int((labels == 0).sum())))
    assert (detector.p_value(pictures) > 0).all()


def test_rows_held_out_change_nothing_in_the_training_but_their_absence(rows):
    X, y = rows
    detector = IsolationForest(n_trees=10, random_state=0).fit(X, y, calibration_ratio=0.3)
    moved = X.copy()
    held_out = np.flatnonzero(draw_calibration(y.astype(np.int8), 0.3, 0))
    moved[held_out] *= 1e6
    again = IsolationForest(n_trees=10, random_state=0).fit(moved, y, calibration_ratio=0.3)
    np.testing.assert_array_equal(again.anomaly_score(X), detector.anomaly_score(X))
    assert again.threshold_ == detector.threshold_


def test_a_real_detector_holds_its_level_within_the_binomial_band():
    rng = np.random.default_rng(3)
    n_draws, n_new, alpha, hits = 120, 20, 0.1, 0
    for seed in range(n_draws):
        X = rng.standard_t(4, size=(120 + n_new, 3))
        forest = IsolationForest(n_trees=5, n_samples=32, random_state=seed).fit(X[:120], calibration_ratio=0.5)
        hits += int((forest.p_value(X[120:]) <= alpha).sum())
    # Rows that share a calibration set flag together: the variance is that of a beta-binomial with 60 rows.
    spread = np.sqrt(n_draws * n_new * alpha * (1 - alpha) * (1 + (n_new - 1) / 62))
    expected = n_draws * n_new * 6 / 61
    assert abs(hits - expected) < 4 * spread


def test_calibrate_with_rows_sets_the_threshold_to_the_asked_rate():
    rng = np.random.default_rng(0)
    forest = IsolationForest(n_trees=20, random_state=0).fit(rng.normal(size=(300, 3)))
    before = forest.threshold_
    forest.calibrate(rng.normal(size=(500, 3)))
    assert forest.threshold_ == before  # no rate was asked for
    forest.calibrate(rng.normal(size=(999, 3)), alpha=0.05)
    new = rng.normal(size=(4000, 3))
    np.testing.assert_array_equal(forest.predict(new) == -1, forest.p_value(new) <= 0.05)
    assert 0.03 < np.mean(forest.predict(new) == -1) < 0.07
    assert forest.calibrate(alpha=0.2).calibration_.n_rows == 999  # without rows: those that are known
    assert 0.16 < np.mean(forest.predict(new) == -1) < 0.24


def test_known_anomalies_are_left_out_and_hidden_ones_can_be_cut_off():
    rng = np.random.default_rng(0)
    forest = IsolationForest(n_trees=20, random_state=0).fit(rng.normal(size=(300, 3)))
    kept_apart = np.r_[rng.normal(size=(180, 3)), rng.normal(9, 1, size=(20, 3))]
    y = np.repeat([0, -1], [180, 20])
    odd = [[7.0, 7.0, 7.0]]
    polluted = forest.calibrate(kept_apart).p_value(odd)[0]
    cleaned = forest.calibrate(kept_apart, y).p_value(odd)[0]
    assert forest.calibration_.n_rows == 180
    cut = forest.calibrate(kept_apart, pollution_ratio=0.1).p_value(odd)[0]
    assert forest.calibration_.n_rows == 180
    assert cleaned == cut == 1 / 181 < polluted
    for other in (0.0, 0.05):
        with pytest.raises(InputError, match=r"cut off before .* pollution_ratio=0\.1 to keep"):
            forest.calibrate(pollution_ratio=other)


def test_rows_that_were_cut_off_are_alarms_in_the_forecast():
    rng = np.random.default_rng(0)
    forest = IsolationForest(n_trees=20, random_state=0).fit(rng.normal(size=(300, 3)))
    forest.calibrate(rng.normal(size=(500, 3)), pollution_ratio=0.1, alpha=0.05)  # though none of them is an anomaly
    assert (forest.forecast_.n_rows, forest.forecast_.n_alarms) == (500, 50 + 22 - 1)
    low, high = forest.forecast_.alarm_interval
    assert low < np.mean(forest.predict(rng.normal(size=(2000, 3))) == -1) < high


def test_what_was_cut_off_once_is_not_cut_off_again():
    rng = np.random.default_rng(0)
    forest = IsolationForest(n_trees=20, random_state=0).fit(rng.normal(size=(300, 3)))
    forest.calibrate(rng.normal(size=(200, 3)), pollution_ratio=0.1)
    kept = forest.calibration_.parts[0]
    forest.calibrate(pollution_ratio=0.1, alpha=0.05)
    np.testing.assert_array_equal(forest.calibration_.parts[0], kept)


def counted(method, calls, n_rows):
    """A method that notes its name whenever it is called with so many rows."""

    def called(self, rows, *args, **kwargs):
        if (rows.n_rows if hasattr(rows, "n_rows") else len(rows)) == n_rows:
            calls.append(method.__name__)
        return method(self, rows, *args, **kwargs)

    return called


class TestCross:
    """Nothing is held out: training rows are compared member by member."""

    def test_members_are_compared_with_the_rows_they_have_not_seen(self, tmp_path):
        rng = np.random.default_rng(0)
        X = rng.normal(size=(200, 4))
        detector = tiny("esad", n_members=3).fit(X).calibrate()
        assert (detector.calibration_.kind, detector.calibration_.n_rows) == ("cross", 60)
        assert [len(part) for part in detector.calibration_.parts] == [20, 20, 20]
        new = rng.normal(size=(50, 4))
        found = detector.p_value(new)
        by_member = detector.member_scores(detector.rows_of(new))
        np.testing.assert_allclose(by_member.mean(axis=0), detector.anomaly_score(new), rtol=1e-5, atol=1e-5)
        unseen = detector.training_unseen_by_
        above = sum((detector.training_scores_[unseen == k] >= by_member[k][:, None]).sum(axis=1) for k in range(3))
        np.testing.assert_allclose(found, (1 + above) / 61)
        detector.save(tmp_path / "model.esad")
        np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").p_value(new), found)

    @pytest.mark.parametrize("name", ["ocsvm", "iforest_hybrid", "deep_svdd"])
    def test_methods_that_leave_rows_out_can_do_it(self, name, rows):
        detector = tiny(name).fit(*rows).calibrate(alpha=0.5)
        assert detector.calibration_.kind == "cross"
        assert ((detector.p_value(rows[0]) > 0) & (detector.p_value(rows[0]) <= 1)).all()

    @pytest.mark.parametrize("name", ["esad", "committee", "deep_svdd", "ocsvm", "iforest_hybrid"])
    def test_scores_and_p_values_of_rows_come_from_one_pass(self, name, rows, monkeypatch):
        X, y = rows
        detector = tiny(name).fit(X, y).calibrate()
        wanted = detector.anomaly_score(X), detector.p_value(X)
        passes = []
        for owner, method in ((Inputs, "rows_of"), (DeepDetector, "_run_blocks")):
            monkeypatch.setattr(owner, method, counted(getattr(owner, method), passes, len(X)))
        for found, expected in zip(detector.score_with_p_values(X), wanted, strict=True):
            np.testing.assert_array_equal(found, expected)
        assert sorted(passes) == sorted(set(passes))

    def test_the_level_is_about_the_one_asked_for(self):
        rng = np.random.default_rng(5)
        hits, n_draws, n_new = 0, 60, 20
        for seed in range(n_draws):
            X = rng.normal(size=(100 + n_new, 3))
            detector = tiny("ocsvm", random_state=seed).fit(X[:100]).calibrate()
            hits += int((detector.p_value(X[100:]) <= 0.2).sum())
        assert 0.1 < hits / (n_draws * n_new) < 0.3

    def test_a_method_that_sees_every_row_says_so(self, rows):
        with pytest.raises(InputError, match="This IsolationForest has seen all of its training rows"):
            tiny("iforest").fit(*rows).calibrate()

    def test_a_loaded_detector_says_that_it_needs_rows(self, rows, tmp_path):
        tiny("esad").fit(*rows).save(tmp_path / "model.esad")
        with pytest.raises(InputError, match="no training scores"):
            esad.load(tmp_path / "model.esad").calibrate()


def test_p_values_without_a_calibration_are_refused(rows):
    with pytest.raises(InputError, match="p-values need a calibration"):
        tiny("iforest").fit(*rows).p_value(rows[0])


def test_too_few_rows_for_the_asked_level_leave_everything_as_it_was(rows):
    X, y = rows
    detector = tiny("iforest").fit(X, y, calibration_ratio=0.5)
    before, calibration = detector.threshold_, detector.calibration_
    with pytest.raises(InputError, match=r"`alpha` of 0\.001 needs at least 999 calibration rows\. Got 50"):
        detector.calibrate(X[:50], alpha=0.001)
    assert (detector.threshold_, detector.calibration_) == (before, calibration)


@pytest.mark.parametrize("ratio", [0, 1, -0.2, 1.5, "half", True, np.nan])
def test_wrong_shares_are_refused(ratio, rows):
    with pytest.raises(InputError, match="`calibration_ratio` must be above 0 and below 1"):
        tiny("iforest").fit(rows[0], calibration_ratio=ratio)


@pytest.mark.parametrize("ratio", [0.01, 0.99])
def test_shares_that_leave_nothing_are_refused(ratio):
    with pytest.raises(InputError, match="Both need one at least"):
        tiny("iforest").fit(np.arange(20.0).reshape(10, 2), calibration_ratio=ratio)


def test_a_share_that_leaves_one_row_to_train_on_is_refused_with_the_reason():
    with pytest.raises(InputError, match=r"leaves 1 rows to calibrate with and 1 .* a training two of any kind"):
        tiny("iforest").fit([[1.0], [2.0]], calibration_ratio=0.5)


@pytest.mark.parametrize("alpha", [0, 1, -1, np.nan, "low", True])
def test_wrong_levels_are_refused(alpha, rows):
    with pytest.raises(InputError, match="`alpha` must be above 0 and below 1"):
        tiny("iforest").fit(rows[0]).calibrate(rows[0], alpha=alpha)


def test_a_new_fit_forgets_the_calibration(rows):
    detector = tiny("iforest").fit(*rows, calibration_ratio=0.5).fit(*rows)
    assert detector.calibration_ is None


def test_solving_anew_forgets_the_calibration_and_the_training_scores(rows):
    X, y = rows
    solved = tiny("ocsvm_hybrid").fit(X, y, calibration_ratio=0.2).solve(X, y)
    assert solved.calibration_ is None
    for set_anew in (solved.calibrate, lambda: solved.fit_threshold(contamination=0.1)):
        with pytest.raises(InputError, match="has no training scores"):
            set_anew()


def test_categories_that_only_held_out_rows_have_do_not_matter():
    frame = pd.DataFrame(
        {"size": np.arange(40.0), "colour": [f"only {row}" if row % 2 else "red" for row in range(40)]}
    )
    assert np.isfinite(tiny("iforest").fit(frame, calibration_ratio=0.5).p_value(frame)).all()


def test_probabilities_need_labelled_anomalies_apart_and_are_kept_in_the_file(rows, tmp_path):
    X, y = rows
    detector = tiny("iforest").fit(X)
    assert not hasattr(detector, "predict_proba")
    for calibrated in (detector, detector.calibrate(X)):
        with pytest.raises(InputError, match=r"calibrate\(X, y\) with rows that training has not seen"):
            calibrated.predict_proba(X)
    detector.calibrate(X, np.where(y < 0, "anomaly", "")).save(tmp_path / "model.esad")
    found = detector.predict_proba(X)
    assert found.shape == (len(X), 2)
    np.testing.assert_allclose(found.sum(axis=1), 1.0)
    assert found[y < 0, 0].mean() > found[y >= 0, 0].mean()
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").predict_proba(X), found)
    higher = detector.calibrate(X, y, anomaly_ratio=0.5).predict_proba(X)[:, 0]
    assert (higher >= found[:, 0]).all()


def test_probabilities_are_a_method_with_rows_to_give():
    assert list(inspect.signature(ESAD.predict_proba).parameters) == ["self", "X"]
    assert "labelled rows of both kinds" in inspect.getdoc(ESAD.predict_proba)


def test_probabilities_do_not_outlive_the_rows_that_they_were_learned_from(rows):
    X, y = rows
    detector = tiny("iforest").fit(X).calibrate(X, y)
    found = detector.predict_proba(X)
    np.testing.assert_array_equal(detector.calibrate(alpha=0.1).predict_proba(X), found)  # of the same rows: they stay
    assert not hasattr(detector.calibrate(pollution_ratio=0.2), "predict_proba")


def test_a_share_of_anomalies_that_nothing_is_learned_from_is_refused(rows):
    X, y = rows
    detector = tiny("iforest").fit(X)
    for given in ({"X": X}, {"X": X, "y": np.maximum(y, 0)}, {}):
        with pytest.raises(InputError, match="`anomaly_ratio` needs labelled anomalies"):
            detector.calibrate(X, y).calibrate(**given, anomaly_ratio=0.1)
