"""Methods held against each other: the same splits for all, honest figures, reasons instead of crashes."""

import json
import time

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from support import SMALL, methods, tiny

from esad.advice.compare import MethodResult, compare
from esad.errors import InputError, LabelError, SchemaError, TrainingError
from esad.methods.esad import ESAD
from esad.methods.iforest import IsolationForest
from esad.score.metrics import evaluate
from esad.score.splits import LabelAwareSplit

TINY = {"esad": {"n_members": 1, "n_epochs": 2, "hidden": (8,), "latent": 2}}


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(80, 3)), rng.normal(5, 1, size=(6, 3))]
    return X, np.r_[np.zeros(78, int), 1, 1, -np.ones(6, int)]


def test_all_methods_are_compared_by_default(rows):
    small = {name: {key: SMALL[key] for key in tiny(name).get_params() if key in SMALL} for name in methods()}
    found = compare(*rows, n_repeats=1, parameters=small)
    compared = [result for result in found.results if result.reason is None]
    assert {result.method for result in compared} == set(methods())
    assert found.n_test_anomaly == 2
    precisions = [result.mean("average_precision") for result in compared]
    assert precisions == sorted(precisions, reverse=True)


def test_figures_are_those_of_the_label_aware_splits(rows):
    X, y = rows
    found = compare(X, y, methods=["iforest"], n_repeats=2, test_size=0.4, random_state=3).results[0]
    expected = []
    for train, test in LabelAwareSplit(2, test_size=0.4, random_state=3).split(X, y):
        scores = IsolationForest(random_state=3).fit(X[train], y[train]).anomaly_score(X[test])
        expected.append(evaluate(scores, (y[test] == -1).astype(int), intervals=False).auc)
    assert found.auc == pytest.approx(expected)
    assert found.spread("auc") == pytest.approx(np.std(expected, ddof=1))
    assert min(found.fit_seconds) > 0
    assert found.text("auc") == f"{np.mean(expected):.3f} ± {np.std(expected, ddof=1):.3f}"


def test_one_split_has_no_spread():
    assert MethodResult("esad", auc=(0.5,)).text("auc") == "0.500"


def test_the_same_seed_gives_the_same_figures(rows):
    some = ["esad", "iforest", "bagged_trees"]
    first, second = (compare(*rows, methods=some, n_repeats=2, parameters=TINY) for _ in range(2))
    assert [result.auc for result in first.results] == [result.auc for result in second.results]


@pytest.mark.parametrize(
    "make",
    [list, pd.DataFrame, lambda X: pl.DataFrame(X), lambda X: pa.table({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2]})],
)
def test_tables_of_any_library_give_the_same(rows, make):
    X, y = rows
    data = [list(row) for row in X] if make is list else make(X)
    found, expected = (compare(table, y, methods="iforest", n_repeats=1) for table in (data, X))
    assert found.results[0].auc == expected.results[0].auc


def test_text_and_gaps_are_compared_too():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"word": rng.choice(["a", "b", None], 60), "number": [np.nan, *rng.normal(size=59)]})
    table.loc[50:, "word"] = "c"
    found = compare(table, [0] * 50 + [-1] * 10, methods=["iforest"], n_repeats=1)
    assert found.results[0].reason is None


DUE = ["2024-02-29", "2024-03-01"] * 30


@pytest.mark.parametrize(
    "X",
    [
        pd.DataFrame({"due": [*DUE[:59], "soon"]}),
        pa.table({"due": ["soon", *DUE[:59]]}),
        pd.DataFrame({"mixed": [1, 2, 3] * 19 + [4, 5, "x"]}),
        [{"size": 1.0}] * 59 + [{"size": 1.0, "colour": "red"}],
        {"size": list(range(60)), "colour": ["red", "blue"] * 30},
    ],
)
@pytest.mark.filterwarnings("ignore:Column 'due' is nearly all dates")
def test_columns_are_what_all_rows_say_whatever_a_split_holds(X):
    found = compare(X, [0] * 50 + [-1] * 10, methods=["iforest"], n_repeats=4)
    assert found.results[0].reason is None


def test_masked_cells_are_missing_in_every_split():
    values = np.random.default_rng(0).normal(size=(60, 1))
    values[50:] = 100.0
    masked = np.ma.array(values, mask=values == 100.0)
    gaps = np.where(masked.mask, np.nan, values)
    found, expected = (compare(X, [0] * 50 + [-1] * 10, methods=["iforest"], n_repeats=2) for X in (masked, gaps))
    assert found.results[0].auc == expected.results[0].auc


def test_text_that_is_probably_meant_otherwise_is_mentioned_once():
    texts = [[f"{value}", "a"] for value in np.random.default_rng(0).normal(size=60)]
    with pytest.warns(UserWarning, match="Column 'x0' holds numbers as text") as told:
        compare(texts, [0] * 50 + [-1] * 10, methods=["iforest"], n_repeats=2)
    assert len(told) == 1


def test_a_method_that_cannot_take_the_data_is_listed_with_the_reason():
    pictures = np.random.default_rng(0).integers(0, 255, (20, 16, 16)).astype(np.uint8)
    y = [0] * 16 + [-1] * 4
    settings = {"esad": {"n_epochs": 1, "hidden": (4, 4, 4, 4), "latent": 4}}
    found = compare(pictures, y, methods=["tlsad", "esad"], n_repeats=1, parameters=settings)
    reasons = {result.method: result.reason for result in found.results}
    assert reasons["esad"] is None
    assert "TLSAD needs `reference`" in reasons["tlsad"]
    assert found.results[-1].method == "tlsad"


def test_a_training_that_fails_is_a_reason_and_a_defect_is_not(rows, monkeypatch):
    def diverge(*args, **kwargs):
        raise TrainingError("it diverged")

    monkeypatch.setattr(ESAD, "_fit_rows", diverge)
    found = compare(*rows, methods=["esad", "iforest"], n_repeats=1)
    assert {result.method: result.reason for result in found.results}["esad"] == "it diverged"
    monkeypatch.setattr(ESAD, "_fit_rows", lambda *args, **kwargs: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        compare(*rows, methods=["esad"], n_repeats=1)


def test_every_fit_is_announced(rows):
    heard = []
    compare(
        *rows, methods=["iforest", "iforest"], n_repeats=3, on_fit=lambda name, number: heard.append((name, number))
    )
    assert heard == [("iforest", 0), ("iforest", 1), ("iforest", 2)]


def test_every_method_has_its_first_split_before_any_has_its_second(rows):
    heard = []
    compare(*rows, methods=["esad", "iforest"], n_repeats=2, parameters=TINY, on_fit=lambda *fit: heard.append(fit))
    assert heard[0] == ("iforest", 0)  # what is quick
    assert sorted(heard[:2]) == [("esad", 0), ("iforest", 0)]
    assert sorted(heard[2:]) == [("esad", 1), ("iforest", 1)]


def test_a_training_is_broken_off_when_the_time_is_up(rows):
    endless = {"esad": {"n_members": 1, "n_epochs": 10**6, "hidden": (8,), "latent": 2}}
    found = compare(*rows, methods=["esad", "iforest"], n_repeats=1, parameters=endless, max_seconds=4)
    assert [result.method for result in found.results] == ["iforest", "esad"]
    assert found.results[1].reason == "it was not ready on any split within 4 seconds."


def test_what_there_is_no_time_for_is_said(rows):
    clock = []

    def wait(name, number):
        clock.append(name)
        while len(clock) == 2 and time.perf_counter() - started < 1:  # the second fit uses the time up
            time.sleep(0.01)

    started = time.perf_counter()
    found = compare(*rows, methods=["iforest"], n_repeats=200, on_fit=wait, max_seconds=1)
    assert found.shortened == found.results
    assert 0 < len(found.results[0].auc) < 200
    assert found.to_json()["max_seconds"] == 1


@pytest.mark.parametrize("method", ["bagged_trees", "committee"])
def test_what_needs_labels_is_compared_like_others(rows, method):
    quick = {"committee": {"n_members": 1, "n_epochs": 2, "hidden": (8,), "latent": 2, "n_trees": 20}}
    (found,) = compare(*rows, methods=[method], n_repeats=2, parameters=quick).results
    assert found.reason is None
    assert found.mean("auc") > 0.9


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"methods": ["nonsense"]}, InputError, "Unknown method"),
        ({"methods": []}, InputError, "at least"),
        ({"n_repeats": 0}, InputError, "n_splits"),
        ({"test_size": 1.5}, InputError, "test_size"),
    ],
)
def test_what_cannot_be_is_refused(rows, changes, error, words):
    with pytest.raises(error, match=words):
        compare(*rows, **changes)


def test_two_labelled_anomalies_are_needed(rows):
    with pytest.raises(LabelError, match="two labelled anomalies"):
        compare(rows[0], [0] * 85 + [-1])


def test_results_are_plain_json(rows):
    found = compare(*rows, methods=["iforest"], n_repeats=2)
    plain = json.loads(json.dumps(found.to_json()))
    assert plain["results"][0]["auc_mean"] == pytest.approx(found.results[0].mean("auc"))
    assert plain["n_repeats"] == 2


def test_doubled_column_names_are_refused_in_our_words(rows):
    X, y = rows
    with pytest.raises(SchemaError, match="Column names must differ"):
        compare(pd.DataFrame(X, columns=["a", "b", "a"]), y)


@pytest.mark.parametrize("bad", [[1.0, 2.0], np.zeros((86, 2), dtype=complex), "a table"])
def test_what_no_method_could_use_is_an_error_before_the_training(rows, bad):
    with pytest.raises(InputError):
        compare(bad, rows[1], on_fit=lambda *args: pytest.fail("the training began"))


def test_a_comparison_shows_itself_as_a_table_with_what_was_left_out(rows):
    found = compare(*rows, methods=["iforest", "geom"], n_repeats=2)
    title, heads, forest, *left_out = str(found).split("\n")
    assert (title, heads.split()[0], forest.split()[0]) == (found.title, "method", "iforest")
    assert "geom was left out" in left_out[0]
    page = found._repr_html_()
    assert page.count("<tr>") == 2  # the head and the one method that could be used
    assert "2 splits, 2 labelled anomalies among" in page
    assert "geom was left out: " in page
