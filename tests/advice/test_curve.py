"""The learning curve counts labels as it says, and its estimate follows from the lines through it."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import tiny

from esad.advice import curve
from esad.advice.curve import extrapolate, learning_curve
from esad.errors import InputError, LabelError


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(80, 3)), rng.normal(3, 1, size=(8, 3))]
    return X, np.r_[np.ones(6, int), np.zeros(74, int), -np.ones(8, int)]


def test_points_use_a_third_two_thirds_and_all_labels_of_the_training_part(rows, monkeypatch):
    seen = []

    def scores(detector, X, parts, *, seed, callbacks):
        seen.append([tuple(np.bincount(part.y + 1, minlength=3).tolist()) for part in parts])
        return [np.arange(len(part.test), dtype=float) for part in parts]

    monkeypatch.setattr(curve, "score_held_out", scores)
    found = learning_curve(tiny("esad"), *rows, n_repeats=2)
    assert [(point.n_anomaly, point.n_normal) for point in found.points] == [(2, 1), (4, 3), (6, 4)]
    assert seen == [[(2, 63, 1)] * 2, [(4, 59, 3)] * 2, [(6, 56, 4)] * 2]  # what loses its label is unlabelled


def test_a_real_curve_is_plain_json_and_repeats_itself(rows):
    detector = tiny("esad", n_members=1)
    first, second = (learning_curve(detector, *rows, n_next=5, n_repeats=3) for _ in range(2))
    assert first == second
    plain = json.loads(json.dumps(first.to_json()))
    assert plain["gain"]["n_next"] == 5
    assert plain["gain"]["low"] <= plain["gain"]["auc"] <= plain["gain"]["high"]


@given(
    st.floats(0.5, 0.7),
    st.floats(0, 0.05),
    st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=6),
    st.integers(1, 50),
)
def test_a_line_without_noise_is_prolonged_exactly(level, slope, shifts, n_next):
    n_labels = np.array([3.0, 6.0, 9.0])
    aucs = np.array([level + shift + slope * np.log(n_labels / 9) for shift in shifts])
    found = extrapolate(n_labels, aucs, n_now=12, n_next=n_next)
    room = 1 - (level + np.mean(shifts))
    assert found.auc == pytest.approx(min(slope * np.log((12 + n_next) / 12), room), abs=1e-9)
    assert found.high - found.low == pytest.approx(0, abs=1e-6)


def test_noise_widens_the_interval_and_a_falling_line_promises_no_loss():
    n_labels, rng = np.array([3.0, 6.0, 9.0]), np.random.default_rng(0)
    quiet, loud = (0.7 - 0.05 * np.log(n_labels) + s * rng.normal(size=(6, 3)) for s in (0.001, 0.05))
    first, second = (extrapolate(n_labels, aucs, n_now=12, n_next=12) for aucs in (quiet, loud))
    assert first.auc == second.auc == 0
    assert second.high - second.low > 10 * (first.high - first.low)


def test_the_width_is_the_stated_one():
    """Eq. of the module, by hand: slopes 0.1 and 0.2 per log 2, no noise beside the lines."""
    aucs = np.array([[0.5, 0.6], [0.5, 0.7]])
    found = extrapolate(np.array([2.0, 4.0]), aucs, n_now=8, n_next=8)
    spread = np.std([0.1, 0.2], ddof=1) * np.sqrt(1 / 2 + 0.25 / 0.75)
    assert found.auc == pytest.approx(0.15)
    assert found.high - found.auc == pytest.approx(1.2816 * 0.6 * spread, rel=1e-6)
    assert found.auc - found.low == pytest.approx(found.high - found.auc)


def test_too_few_labels_or_none_to_come_are_refused(rows):
    X, y = rows
    with pytest.raises(LabelError, match="4 labelled anomalies"):
        learning_curve(tiny("esad"), X, np.r_[y[:-5], 0, 0, 0, 0, 0])
    with pytest.raises(InputError, match="n_next"):
        learning_curve(tiny("esad"), X, y, n_next=0)
