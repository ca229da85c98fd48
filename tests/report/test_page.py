"""The page as a whole: very long cells are folded, and nothing of them is lost."""

import pandas as pd

from esad import IsolationForest
from esad.detectors.opening import Block
from esad.detectors.scored_file import Worst
from esad.report.explained import explain_worst
from esad.report.findings import Findings
from esad.report.page import write_page


def test_a_very_long_cell_is_folded():
    X = pd.DataFrame({"size": range(40), "text": ["short", "other"] * 20})
    forest = IsolationForest(random_state=0).fit(X)
    odd = X[:1].assign(text="x" * 20_000)
    scores = forest.anomaly_score(odd)
    worst = Worst(1)
    worst.add(Block(odd, None, None, 1), scores)
    page = write_page(
        Findings(
            detector=forest,
            model_name="m",
            data_name="d",
            scores=scores,
            explained=explain_worst(forest, worst),
        )
    )
    assert "19,840 more characters" in page
    assert page.count("x" * 160 + " ") == 1
    assert "x" * 19_840 + "</details>" in page
