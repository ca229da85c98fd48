"""What counts as the same score."""

import numpy as np
import pytest

from esad.persist.parity import compare_outputs

SCORES = np.array([-2.0, 1e-5, 1.0, 2.0])


@pytest.mark.parametrize(("change", "holds"), [(0.9e-9, True), (1.1e-9, False)])
def test_the_difference_is_held_against_the_score_however_small(change, holds):
    found = {"score": SCORES + np.array([0, change, 0, 0]), "anomaly": SCORES > 0.5}
    assert compare_outputs(found, SCORES, threshold=0.5).holds is holds


@pytest.mark.parametrize(("change", "holds"), [(0.9e-4, True), (1.1e-4, False)])  # 1 is their usual distance
def test_in_float32_what_scores_usually_differ_by_is_the_least(change, holds):
    found = {"score": SCORES + np.array([0, change, 0, 0]), "anomaly": SCORES > 0.5}
    assert compare_outputs(found, SCORES, threshold=0.5, is_single=True).holds is holds


@pytest.mark.parametrize(("change", "holds"), [(5e-11, True), (2e-10, False)])
def test_a_score_of_exactly_0_may_be_rounded(change, holds):
    scores = np.array([-2.0, 0.0, 1.0, 2.0])
    found = {"score": scores + np.array([0, change, 0, 0]), "anomaly": scores > 0.5}
    assert compare_outputs(found, scores, threshold=0.5).holds is holds


def test_a_score_that_is_no_number_never_holds():
    found = {"score": np.array([1.0, np.nan]), "anomaly": np.array([False, False])}
    assert not compare_outputs(found, np.array([1.0, 2.0]), threshold=3.0).holds
