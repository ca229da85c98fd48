"""`esad score` warns, once and at the end, when new rows do not look like the training rows."""

from pathlib import Path

import numpy as np
import pytest

from esad.io.files import TableFiles

FIXTURES = Path(__file__).parent.parent / "fixtures" / "models" / "0.1.0"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A model, rows like those it was trained on, and rows of which one column has moved."""
    from esad.cli.app import run

    folder, rng = tmp_path_factory.mktemp("drift"), np.random.default_rng(0)
    made = {"train": rng.normal(size=(500, 3)), "like": rng.normal(size=(300, 3))}
    made["moved"] = rng.normal([0, 1, 0], 1, size=(300, 3))
    for name, rows in made.items():
        lines = ["a,b,c", *(",".join(f"{value:.4f}" for value in row) for row in rows)]
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    fit = ["fit", str(folder / "train.csv"), "--method", "iforest", "--set", "n_trees=20", "--quiet"]
    assert run([*fit, "--out", str(folder / "model.esad")]) == 0
    return folder


def test_rows_like_the_training_rows_raise_no_word(esad, data, tmp_path):
    done = esad("score", data / "model.esad", data / "like.csv", "--out", tmp_path / "s.csv", "--json")
    assert (done.code, done.err) == (0, "")
    assert done.json["drift"] == {"drifted": False, "level": 0.05, "min_distance": 0.05, "n_tests": 3, "shifts": []}


@pytest.mark.parametrize("batch_rows", [1000, 17])
def test_a_moved_column_is_named_in_one_warning_with_test_and_level(esad, data, tmp_path, monkeypatch, batch_rows):
    opened = TableFiles.batches
    monkeypatch.setattr(TableFiles, "batches", lambda *a, **kw: opened(*a, **kw | {"batch_rows": batch_rows}))
    done = esad("score", data / "model.esad", data / "moved.csv", "--out", tmp_path / "s.csv", "--json")
    assert done.code == 0
    assert done.err.count("\n") == 1
    assert (
        "warning: the rows do not look like the training rows (level 5.0 % over 3 tests): 'b' (Kolmogorov" in done.err
    )
    (shift,) = done.json["drift"]["shifts"]
    assert (shift["column"], shift["what"], shift["test"]) == ("b", "values", "Kolmogorov-Smirnov")
    assert 0.3 < shift["distance"] < 0.5
    assert (tmp_path / "s.csv").exists()


def test_many_moved_columns_are_not_all_listed(esad, tmp_path):
    rng = np.random.default_rng(0)
    for name, centre in (("train", 0), ("new", 3)):
        header = ",".join(f"c{k}" for k in range(9))
        np.savetxt(tmp_path / f"{name}.csv", rng.normal(centre, 1, (80, 9)), delimiter=",", header=header, comments="")
    fit = ("fit", tmp_path / "train.csv", "--method", "iforest", "--quiet", "--out", tmp_path / "m.esad")
    assert esad(*fit).code == 0
    done = esad("score", tmp_path / "m.esad", tmp_path / "new.csv")
    assert done.err.endswith("; and 4 more.\n")
    assert "Expected of rows like the training rows: " in done.out


def test_models_of_older_files_score_without_a_word(esad, tmp_path):
    data = tmp_path / "d.csv"
    data.write_text("a,b,c,d\n" + "1,2,red,true\n" * 30)
    done = esad("score", FIXTURES / "iforest.esad", data, "--json")
    assert done.code == 0
    assert "look like" not in done.err
    assert done.json["drift"] is None
