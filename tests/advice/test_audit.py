"""Wrong labels come first, whichever way they are wrong."""

import json

import numpy as np
import pytest
from support import tiny

from esad import ESAD, registry
from esad.advice.audit import audit_labels
from esad.datasets import scenario
from esad.errors import LabelError


@pytest.fixture(scope="module")
def rows():
    """Two clouds; row 0 is normal but labelled an anomaly, row 209 an anomaly labelled normal."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(200, 3)), rng.normal(6, 1, size=(10, 3))]
    y = np.zeros(210, dtype=int)
    y[200:209], y[1:12] = -1, 1
    y[0], y[209] = -1, 1
    return X, y


@pytest.mark.parametrize("method", ["esad", "iforest"])
def test_planted_wrong_labels_come_first(rows, method):
    X, y = rows
    found = audit_labels(tiny(method, n_members=1, n_epochs=20), X, y, n_repeats=1)
    assert {doubt.row for doubt in found[:2]} == {0, 209}
    assert {doubt.row for doubt in found} == set(np.flatnonzero(y).tolist())
    assert [doubt.suspicion for doubt in found] == sorted((doubt.suspicion for doubt in found), reverse=True)
    assert all(0 <= doubt.suspicion <= 1 and 0 <= doubt.rank <= 1 for doubt in found)
    assert json.loads(json.dumps(found[0].to_json()))["label"] in ("anomaly", "normal")


@pytest.mark.parametrize("seed", [0, 1])
def test_planted_wrong_labels_come_first_on_a_real_table(seed):
    tumours = registry.load_data_set("breast_cancer")
    ratios = {"labelled_ratio": 0.08, "labelled_normal_ratio": 0.08, "pollution_ratio": 0.03}
    part = scenario.table(tumours, **ratios, seed=seed)
    y = part.y_train.copy()
    planted = np.r_[np.flatnonzero(y == -1)[:2], np.flatnonzero(y == 1)[:2]]
    y[planted] *= -1
    found = audit_labels(ESAD(n_members=1, n_epochs=40, random_state=seed), part.X_train, y, n_repeats=1)
    rows = [doubt.row for doubt in found]
    assert len(rows) == 38
    assert rows[0] in planted
    assert len(set(rows[:4]) & set(planted.tolist())) >= 3


@pytest.mark.filterwarnings("ignore:.*1 means normal here")
def test_known_normal_rows_alone_can_be_looked_into(rows):
    X, y = rows
    found = audit_labels(tiny("iforest"), X, np.where(y < 0, 0, y), n_repeats=1)
    assert found[0].row == 209


def test_the_same_seed_gives_the_same_doubts(rows):
    first, second = (audit_labels(tiny("iforest", random_state=3), *rows, n_repeats=1) for _ in range(2))
    assert first == second


@pytest.mark.parametrize(("label", "words"), [(0, "no labels"), (-1, "labels for all rows")])
def test_labels_and_unlabelled_rows_are_needed(rows, label, words):
    with pytest.raises(LabelError, match=words):
        audit_labels(tiny("iforest"), rows[0], np.full(210, label))


def test_a_single_anomaly_is_not_judged_by_a_method_that_would_have_none_left(rows):
    X, lone = rows[0], np.repeat([0, -1], [209, 1])
    with pytest.raises(LabelError, match=r"BaggedTrees cannot learn without a labelled anomaly .* Got one"):
        audit_labels(tiny("bagged_trees"), X, lone)
    assert audit_labels(tiny("iforest"), X, lone, n_repeats=1)
