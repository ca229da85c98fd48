"""Refits: warm where they can be, compared with the old model, kept or rolled back, and files that are never half."""

import copy
import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import esad
from esad import DeepSAD, IsolationForest
from esad.errors import InputError, OutputError
from esad.review.ranking import Ranking
from esad.review.refit import (
    carry_threshold,
    compare_rankings,
    cross_validate,
    describe_loss,
    path_beside,
    refit_detector,
)
from esad.review.training import RefitData, TrainingRows
from esad.train.callbacks import WarmStart

FOREST = IsolationForest(random_state=0).fit(np.random.default_rng(0).normal(size=(20, 1)))


def labelled(n_rows, *rows):
    y = np.zeros(n_rows, dtype=np.int8)
    y[list(rows)] = -1
    return y


class Steps:
    """Counts the steps of every phase and keeps the weights of the last one's start."""

    def __init__(self):
        self.steps, self.start = {}, None

    def on_start(self, state):
        self.start = {name: value.clone() for name, value in state.objective.state_dict().items()}

    def on_step(self, state):
        self.steps[state.phase] = state.step

    def on_end(self, state):
        pass


def test_a_warm_start_begins_with_the_old_weights_and_is_shorter():
    X = np.random.default_rng(0).normal(size=(80, 3))
    small = {"hidden": [8], "latent": 2, "n_epochs": 6, "random_state": 0}
    old = esad.ESAD(n_members=1, **small).fit(X, labelled(80, 1))
    cold, warm = Steps(), Steps()
    esad.ESAD(n_members=1, **small).fit(X, labelled(80, 1, 2), callbacks=[cold])
    weights = old.objective_.state_dict()
    esad.ESAD(n_members=1, **small).fit(X, labelled(80, 1, 2), callbacks=[WarmStart(weights), warm])
    assert warm.steps[0] == round(cold.steps[0] / 2)
    assert all((warm.start[name] == weights[name]).all() for name in weights)
    assert any((cold.start[name] != weights[name]).any() for name in weights)


def test_phases_before_the_last_are_left_out():
    X = np.random.default_rng(0).normal(size=(80, 3))
    small = {"hidden": (8,), "latent": 2, "n_epochs": 2, "pretrain_epochs": 3, "random_state": 0}
    old = DeepSAD(**small).fit(X, labelled(80, 1))
    warm = Steps()
    new = DeepSAD(**small).fit(X, labelled(80, 1, 2), callbacks=[WarmStart(old.objective_.state_dict()), warm])
    assert list(warm.steps) == [1]
    assert np.isfinite(new.anomaly_score(X)).all()


def test_weights_that_do_not_fit_are_refused_and_the_refit_begins_anew():
    X = np.random.default_rng(0).normal(size=(80, 3))
    small = {"n_members": 1, "hidden": [8], "latent": 2, "n_epochs": 2, "random_state": 0}
    old = esad.ESAD(**small).fit(X, labelled(80, 1))
    with pytest.raises(InputError, match="do not fit"):
        esad.ESAD(**small).fit(X[:, :2], labelled(80, 1), callbacks=[WarmStart(old.objective_.state_dict())])
    new, warm = refit_detector(old, X[:, :2], labelled(80, 1), warm=True)
    assert not warm
    assert new.n_features_in_ == 2
    assert refit_detector(old, X, labelled(80, 1), warm=True)[1]
    assert not refit_detector(old, X, labelled(80, 1), warm=False)[1]
    nothing_known = esad.ESAD(**small).fit(X)
    assert not refit_detector(nothing_known, X, labelled(80, 1), warm=True)[1]
    assert refit_detector(nothing_known, X, np.zeros(80, np.int8), warm=True)[1]


@pytest.mark.parametrize("kind", ["held out", "cross", "given", None])
def test_a_new_model_is_calibrated_as_the_old_one_was(kind):
    X = np.random.default_rng(0).normal(size=(100, 2))
    small = {"n_members": 2, "hidden": [4], "latent": 2, "n_epochs": 1, "random_state": 0}
    old = esad.ESAD(**small).fit(X, calibration_ratio=0.2 if kind == "held out" else None)
    if kind == "cross":
        old.calibrate()
    elif kind == "given":
        old.calibrate(X[:30])
    new, _ = refit_detector(old, X, labelled(100, 3), warm=True)
    found = None if new.calibration_ is None else new.calibration_.kind
    assert found == (None if kind == "given" else kind)


def by_rate(detector, X):
    detector.fit_threshold(false_alarm_rate=0.1)


def by_labels(detector, X):
    detector.fit_threshold(from_labels=True)


def by_alpha(detector, X):
    detector.calibrate(alpha=0.15, pollution_ratio=0.05)


def by_given_rows(detector, X):
    detector.calibrate(X[:50], alpha=0.1)


def by_given_labels(detector, X):
    detector.fit_threshold(X[:50], contamination=0.2)


def by_hand(detector, X):
    detector.offset_ -= 0.25


def as_an_older_file(detector, X):
    detector.applied_ = None


@pytest.mark.parametrize(
    ("set_it", "words"),
    [
        (lambda detector, X: None, ""),
        (by_rate, "as before: at most 10 % false alarms."),
        (by_labels, "as before: where the labels are parted best."),
        (by_alpha, "as before: at most 15 % false alarms."),
        (by_given_rows, "on rows that are not here: the new one raises as many alarms"),
        (by_given_labels, "on rows that are not here: the new one raises as many alarms"),
        (by_hand, "by hand: the new one raises as many alarms"),
        (as_an_older_file, "does not say how its threshold was set: the new one raises as many"),
    ],
)
def test_a_threshold_is_set_again_in_the_same_way(set_it, words, tmp_path):
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = labelled(200, 1, 2)
    detector = esad.ESAD(n_members=2, hidden=[4], latent=2, n_epochs=2, random_state=0).fit(X, y)
    set_it(detector, X)
    detector.save(tmp_path / "m.esad")
    old = Ranking.of(esad.load(tmp_path / "m.esad"), X)
    y[[3, 4]] = -1
    new = Ranking.of(refit_detector(old.detector, X, y, warm=True)[0], X)
    own = new.detector.threshold_
    assert words in carry_threshold(old, new)
    fresh = esad.ESAD(**new.detector.get_params())
    fresh.__dict__.update(vars(new.detector))
    if "as before" in words:  # the same call on the new model gives the same threshold
        set_it(fresh, X)
        assert new.detector.threshold_ == fresh.threshold_
        assert set_it is by_labels or fresh.threshold_ != own
        assert str(new.detector.applied_) == str(old.detector.applied_)
    elif words:
        assert new.is_alarm.sum() == old.is_alarm.sum()
    else:
        assert new.detector.threshold_ == own
    gone = set_it is by_given_rows
    assert ("has no p-values" in describe_loss(old, new)) == gone
    if set_it is by_alpha:
        assert new.detector.calibration_.pollution_ratio == 0.05


@given(
    before=st.lists(st.floats(-5, 5), min_size=2, max_size=12),
    after=st.lists(st.integers(-3, 3), min_size=12, max_size=12),
    threshold=st.floats(-6, 6),
)
def test_as_many_alarms_as_before_unless_scores_are_equal(before, after, threshold):
    old, new = ranking(before), ranking(after[: len(before)])
    old.detector.offset_, old.detector.applied_ = -threshold, None
    carry_threshold(old, new)
    n_before, n_after = int(old.is_alarm.sum()), int(new.is_alarm.sum())
    assert n_after <= n_before
    ties = sum(score == new.detector.threshold_ for score in new.scores)
    assert n_before <= n_after + ties


def ranking(scores):
    detector = copy.copy(FOREST)
    detector.offset_ = -float(np.quantile(scores, 0.9))
    return Ranking(detector, np.asarray(scores, dtype=float), None)


def test_the_comparison_is_that_of_plain_ranks():
    rng = np.random.default_rng(0)
    old, new = ranking(rng.random(50)), ranking(rng.random(50))
    y = labelled(50, 4, 9)
    y[[1, 2, 3]] = 1
    found = compare_rankings(old, new, y)
    ranks = [{row: place for place, row in enumerate(np.argsort(-one.scores), 1)} for one in (old, new)]
    assert found["top"]["new"] == sorted(range(50), key=lambda row: ranks[1][row])[:10]
    assert found["alarms"]["both"] == int(
        ((old.scores > old.detector.threshold_) & (new.scores > new.detector.threshold_)).sum()
    )
    risen = [row for row in range(50) if ranks[1][row] <= 10 and ranks[1][row] < ranks[0][row]]
    assert found["rose"] == sorted(risen, key=lambda row: ranks[1][row] / ranks[0][row])[:10]
    fallen = [row for row in range(50) if ranks[0][row] <= 10 and ranks[1][row] > ranks[0][row]]
    assert found["fell"] == sorted(fallen, key=lambda row: -ranks[1][row] / ranks[0][row])[:10]
    assert found["median_rank"]["anomaly"]["old"] == np.median([ranks[0][4], ranks[0][9]])
    right = (
        sum(ranks[1][row] <= ranks[0][row] for row in (4, 9)),
        sum(ranks[1][row] >= ranks[0][row] for row in (1, 2, 3)),
    )
    assert found["moved"] == {"anomaly": {"right": right[0], "n": 2}, "normal": {"right": right[1], "n": 3}}
    same = compare_rankings(old, old, np.zeros(50, np.int8))
    assert (same["rose"], same["fell"], same["correlation"]) == ([], [], pytest.approx(1.0))
    assert same["median_rank"]["normal"] == {"old": None, "new": None}


def test_cross_validation_sees_what_labels_bring():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 6))
    X[:, 0] *= 4  # far out in the first column is normal
    odd = np.arange(290, 300)
    X[odd, 1] = 2.0  # what is odd does not stand out by itself
    X[odd, 0] = 0.0
    now = labelled(300, *odd)
    detector = esad.ESAD(n_members=1, hidden=[16], latent=4, n_epochs=40, random_state=0).fit(X)
    found = cross_validate(detector, RefitData.of(X, now, TrainingRows(np.zeros(300, np.int8))))
    assert found["n_folds"] == 5
    assert found["now"]["auc"] > found["then"]["auc"] + 0.1
    assert found["now"]["auc_normal"] is None
    with pytest.raises(InputError, match="two labelled anomalies"):
        cross_validate(detector, RefitData.of(X, labelled(300, 1), TrainingRows(now)))


def test_trees_join_once_an_anomaly_is_known():
    X = np.random.default_rng(0).normal(size=(120, 3))
    X[:6] += 4.0
    first = esad.Committee(n_members=1, hidden=[8], latent=2, n_epochs=2, n_trees=20, random_state=0).fit(X)
    assert set(first.judges_) == {"esad"}
    new, _ = refit_detector(first, X, labelled(120, *range(6)), warm=True)
    assert set(new.judges_) == {"esad", "bagged_trees"}


@pytest.mark.parametrize("method", [pytest.param("forest", marks=pytest.mark.extra), "esad"])
def test_refit_compare_keep_and_roll_back(make_session, open_page, kit, method):
    session = make_session(method)
    ann = open_page(session).enter("ann")
    first = session.model.read_bytes()
    before = session.ranking.scores.copy()
    for number in range(kit.n_odd):
        ann.post("/api/judgements", json={"request": str(number), "row": kit.n_rows - 1 - number, "verdict": "anomaly"})
    assert ann.post("/api/refit").json()["status"] in ("training", "ready")

    def validated():
        found = ann.get("/api/state").json()["refit"]
        assert found["status"] in ("training", "ready"), found
        return found["status"] == "ready" and (found["validated"] or found["reason"]) and found

    found = kit.wait_for(validated)
    assert not found["warm"]  # the first model knew no anomaly
    assert found["validated"]["n_folds"] == 5
    assert found["remarks"] == []
    lines = ann.get("/api/comparison").json()
    assert [line["new"] for line in lines["top"]["new"]] == list(range(1, 11))
    assert session.model.read_bytes() == first  # nothing changes until it is kept
    assert (session.ranking.scores == before).all()

    generation = ann.get("/api/state").json()["generation"]
    assert ann.post("/api/refit/keep").status_code == 200
    state = ann.get("/api/state").json()
    assert (state["n_new"], state["generation"], state["model"]["can_roll_back"]) == (0, generation + 1, True)
    assert path_beside(session.model, "previous").read_bytes() == first
    assert session.model.read_bytes() != first
    assert (esad.load(session.model).anomaly_score(session.dataset.X) == session.ranking.scores).all()
    assert esad.load(session.model).label_counts_.n_anomaly == kit.n_odd

    kept = session.model.read_bytes()
    assert ann.post("/api/refit/roll-back").status_code == 200
    assert session.model.read_bytes() == first
    assert path_beside(session.model, "rolled-back").read_bytes() == kept
    assert (session.ranking.scores == before).all()
    state = ann.get("/api/state").json()
    assert (state["n_labelled"], state["n_new"]) == (kit.n_odd, kit.n_odd)  # labels stay


def test_pictures_have_an_expected_gain_too_and_a_refit_goes_before_it(make_session, kit, monkeypatch):
    session = make_session("pictures")
    for row in range(4):
        session.judge(f"a{row}", row, "ann", "anomaly")
    shares = set()
    kit.wait_for(lambda: shares.add(session.state("ann")["estimated"]) or session.gain_estimator.gain)
    assert all(share is None or 0 <= share <= 1 for share in shares)
    gain = session.state("ann")["gain"]
    assert gain["n_next"] == 10
    assert gain["low"] <= gain["auc"] <= gain["high"]
    kit.wait_for(lambda: not session.gain_estimator.is_busy)
    session.ranking.detector.set_params(n_epochs=100_000)
    for row in range(10, 20):
        session.judge(f"n{row}", row, "ann", "normal")
    kit.wait_for(lambda: session.gain_estimator.progress is not None)
    assert session.gain_estimator.is_busy
    session.start_refit()
    kit.wait_for(lambda: not session.gain_estimator.is_busy)
    assert session.state("ann")["gain"] == gain  # of the labels before: it stays
    session.stop_refit()
    assert session.gain_estimator.is_busy  # due at once


def test_a_new_model_can_be_dropped(make_session, kit):
    session = make_session()
    first = session.model.read_bytes()
    session.judge("r", 119, "ann", "anomaly")
    session.start_refit()
    kit.wait_for(lambda: session.refit_state()["status"] == "ready")
    session.stop_refit()
    assert session.refit_state() == {"status": "none"}
    assert session.model.read_bytes() == first
    assert not path_beside(session.model, "previous").exists()


@pytest.mark.parametrize("full", ["the labels' disk", "the model's disk"])
def test_a_full_disk_while_a_model_is_kept_loses_no_model(make_session, kit, monkeypatch, full):
    session = make_session()
    files = [session.model, path_beside(session.model, "previous")]
    files[1].write_bytes(b"one before")
    before = [file.read_bytes() for file in files]
    session.judge("r", 119, "ann", "anomaly")
    session.start_refit()
    kit.wait_for(lambda: session.refit_state()["status"] == "ready")
    with monkeypatch.context() as patched:
        if full == "the labels' disk":
            session.store._database.execute("pragma query_only = on")
        else:
            patched.setattr(type(session.ranking.detector), "save", _fill_disk)
        with pytest.raises(OutputError):
            session.keep()
    session.store._database.execute("pragma query_only = off")
    assert [file.read_bytes() for file in files] == before
    session.keep()
    assert files[1].read_bytes() == before[0] != files[0].read_bytes()


def _fill_disk(self, path, **options):
    raise OSError(errno.ENOSPC, "No space left on device", str(path))


def test_only_the_refit_that_was_looked_at_is_kept_or_dropped(make_session, open_page, kit):
    """Another reviewer may have dropped it and begun anew."""
    session = make_session()
    ann = open_page(session).enter("ann")
    first = session.model.read_bytes()
    session.judge("r", 119, "ann", "anomaly")
    numbers = []
    for _ in range(2):
        session.start_refit()
        kit.wait_for(lambda: session.refit_state()["status"] == "ready")
        numbers.append(ann.get("/api/comparison").json()["number"])
    assert session.refit_state()["number"] == numbers[1] != numbers[0]
    for wish in ("keep", "drop"):
        answer = ann.post(f"/api/refit/{wish}?number={numbers[0]}")
        assert answer.status_code == 422
        assert "no longer" in answer.json()["error"]["message"]
    assert ann.post("/api/refit/keep?number=x").status_code == 422
    assert (session.refit_state()["status"], session.model.read_bytes()) == ("ready", first)
    assert ann.post(f"/api/refit/keep?number={numbers[1]}").status_code == 200
    assert session.model.read_bytes() != first
    assert ann.post(f"/api/refit/drop?number={numbers[1]}").status_code == 422


def test_a_training_can_be_stopped_and_one_that_fails_says_why(make_session, kit, monkeypatch):
    session = make_session("esad")
    session.ranking.detector.set_params(n_epochs=100_000)
    session.start_refit()
    with pytest.raises(InputError, match="under way"):
        session.start_refit()
    refit = session._refit
    session.stop_refit()
    refit.stop(wait=20)
    assert refit.status == "stopped"
    session.ranking.detector.set_params(n_epochs="many")
    session.start_refit()
    kit.wait_for(lambda: session.refit_state()["status"] == "failed")
    assert "n_epochs" in session.refit_state()["message"]
