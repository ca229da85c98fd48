"""The page as a whole: very long cells are folded and nothing of them is lost; rows are told apart."""

import pandas as pd
import pytest

from esad import IsolationForest
from esad.report.findings import collect_findings
from esad.report.page import write_page


@pytest.fixture
def forest():
    return IsolationForest(random_state=0).fit(pd.DataFrame({"size": range(40), "text": ["short", "other"] * 20}))


def test_a_very_long_cell_is_folded(forest, tmp_path):
    pd.DataFrame({"size": [0], "text": ["x" * 20_000]}).to_csv(tmp_path / "odd.csv", index=False)
    page = write_page(collect_findings(forest, tmp_path / "odd.csv"))
    assert "19,840 more characters" in page
    assert page.count("x" * 160 + " ") == 1
    assert "x" * 19_840 + "</details>" in page


def test_ids_that_do_not_tell_rows_apart_come_with_the_row_number(forest, tmp_path):
    rows = pd.DataFrame({"name": ["a", "a", "b"], "size": [0, 99, 1], "text": "short"})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    page = write_page(collect_findings(forest, tmp_path / "rows.csv", id_column="name", top=1))
    assert "name a (row 1)" in page
