"""The recipe for Spark in docs/scoring-at-scale.md gives the scores that the library gives."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyarrow import parquet

from esad import load

PAGE = Path(__file__).resolve().parents[2] / "docs" / "scoring-at-scale.md"

pytestmark = [
    pytest.mark.extra,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java"),
]


def test_the_recipe_scores_every_row_as_the_library_does(tmp_path):
    pytest.importorskip("pyspark")
    made, recipe = (re.search(rf"```{kind}\n(.*?)```", PAGE.read_text(), re.DOTALL)[1] for kind in ("python", "py"))
    script = tmp_path / "recipe.py"
    script.write_text(made + recipe)
    environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    rows = parquet.read_table(tmp_path / "spark-scores")
    detector = load(tmp_path / "model.esad")
    scores = detector.anomaly_score(rows.select(["size", "weight"]))
    assert rows.num_rows == 2000
    assert rows["score"].to_pylist() == scores.tolist()
    assert rows["anomaly"].to_pylist() == (scores > detector.threshold_).tolist()
