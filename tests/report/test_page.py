"""The page as a whole: very long cells are folded and nothing of them is lost; rows are told apart."""

import re

import numpy as np
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


def test_shares_below_each_other_have_the_same_decimals_and_cells_all_their_digits(tmp_path):
    columns = {f"long_name_{index}": np.random.default_rng(index).normal(size=60) for index in range(7)}
    data = pd.DataFrame(columns | {"amount": 1_000_000.0 + np.arange(60)})
    data.loc[3, "amount"] = 1_234_567.89
    data.to_csv(tmp_path / "rows.csv", index=False)
    forest = IsolationForest(random_state=0).fit(data)
    page = write_page(collect_findings(forest, tmp_path / "rows.csv", top=1))
    shares = re.findall(r'<td class="number">([^<]*\d)</td>', page.partition("<article")[2].partition("</article")[0])
    assert len(shares) == 7  # five columns, the others together, the baseline
    assert len({len(share.partition(".")[2]) for share in shares if share != "0"}) == 1
    assert "1234567.89" in page
    assert "3 other columns" in page
    assert "(baseline)" not in page
