"""When to stop is found in a pilot; the real training then sees every label."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.errors import TrainingError
from esad.score.splits import corrected_error
from esad.train import stopping
from esad.train.objective import HELD_OUT
from esad.train.stopping import choose_step, split_labels


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(60, 3)), rng.normal(3, 1, size=(8, 3))]
    return X, np.r_[np.zeros(60, int), -np.ones(8, int)]


@given(st.integers(2, 20), st.integers(0, 10), st.integers(1, 50), st.integers(0, 99))
def test_every_split_holds_out_anomalies_and_keeps_some(n_anomaly, n_normal, n_unlabelled, seed):
    y = np.repeat(np.array([-1, 1, 0], dtype=np.int8), [n_anomaly, n_normal, n_unlabelled])
    seen = split_labels(y, seed=seed)
    assert len({tuple(np.bincount(row + 1, minlength=4)) for row in seen}) == 1
    for row in seen:
        assert (row == -1).any()
        assert (y[row == HELD_OUT] == -1).any()
        assert np.array_equal(row[row != HELD_OUT], y[row != HELD_OUT])


@given(st.lists(st.lists(st.floats(0, 1), min_size=5, max_size=5), min_size=1, max_size=6))
def test_a_chosen_step_is_ahead_of_the_end_by_two_errors(aucs):
    steps, values = list(range(10, 10 * len(aucs) + 10, 10)), np.array(aucs)
    step = choose_step(steps, values)
    leads = [row - values[-1] for row in values]
    clear = [lead.mean() > 2 * corrected_error(lead, test_size=stopping.TEST_SIZE) for lead in leads]
    if step is None:
        assert not any(clear)
    else:
        best = steps.index(step)
        assert clear[best]
        assert leads[best].mean() == max(lead.mean() for lead, is_clear in zip(leads, clear, strict=True) if is_clear)


@pytest.mark.parametrize("method", ["esad", "deep_sad", "classifier"])
def test_a_pilot_without_a_verdict_leaves_every_bit_of_the_training(rows, method, monkeypatch):
    looked = []
    monkeypatch.setattr(stopping, "choose_step", lambda steps, aucs: looked.append((steps, aucs.shape)))
    plain, watched = (tiny(method, early_stopping=way).fit(*rows) for way in (False, "splits"))
    np.testing.assert_array_equal(plain.anomaly_score(rows[0]), watched.anomaly_score(rows[0]))
    (steps, shape), n_steps = looked[0], len(next(iter(plain.loss_curves_.values())))
    assert steps[-1] == n_steps
    assert shape == (len(steps), stopping.N_SPLITS)


@pytest.mark.parametrize("way", [True, "splits"])
def test_a_training_that_diverges_between_two_looks_at_its_loss_says_so(rows, way):
    with pytest.raises(TrainingError, match=r"Training diverged at step \d+ of \d+"):
        tiny("esad", lr=1e30, n_epochs=20, early_stopping=way).fit(*rows)


def test_the_training_stops_where_the_pilot_says(rows, monkeypatch):
    monkeypatch.setattr(stopping, "choose_step", lambda steps, aucs: 2)
    detector = tiny("esad", early_stopping="splits").fit(*rows)
    assert {len(curve) for curve in detector.loss_curves_.values()} == {2}


def test_with_few_labels_there_is_no_pilot(rows, monkeypatch):
    monkeypatch.setattr(stopping, "split_labels", lambda *args, **kwargs: pytest.fail("a pilot began"))
    X, y = rows
    few = np.where(np.arange(68) < 64, 0, y)
    plain, watched = (tiny("esad", early_stopping=way).fit(X, few) for way in (False, "splits"))
    np.testing.assert_array_equal(plain.anomaly_score(X), watched.anomaly_score(X))
