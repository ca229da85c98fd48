"""The method for data where nobody asked for one."""

import pytest

from esad.labels import LabelCounts
from esad.registry import choose_method


@pytest.mark.parametrize(
    ("kind", "n_anomaly", "parameters", "method"),
    [
        ("table", 1, (), "committee"),
        ("table", 40, ("n_members", "n_trees"), "committee"),
        ("table", 0, (), "committee"),
        ("images", 40, (), "esad"),
        ("table", 40, ("lambda_norm",), "esad"),
    ],
)
def test_tables_get_the_committee(kind, n_anomaly, parameters, method):
    counts = LabelCounts(n_anomaly=n_anomaly, n_unlabelled=100, n_normal=0)
    found, reason = choose_method(kind, counts, parameters=parameters)
    assert found == method
    assert reason.endswith(".")
