"""Running experiments: resumed after a kill, shared, bounded in time; failures do not stop the others."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from esad import ESAD
from esad.bench import tables
from esad.bench.execute import draw_rows, execute, execute_stack
from esad.bench.grid import Cell, Place, read_experiment
from esad.bench.run import CellFailure, run
from esad.bench.store import Result, ResultStore
from esad.cli.app import run as esad
from esad.errors import InputError

EXPERIMENT = """
name = "tiny"
title = "A tiny experiment"
data = ["breast_cancer", "wine"]
seeds = 4
published = "made-up"

[scenario]
kind = "table"
labelled_ratio = 0.05

[[variants]]
name = "Forest"
method = "iforest"
settings = { n_trees = 5 }
"""
CELL = {"method": "iforest", "settings": {"n_trees": 5}, "scenario": {"kind": "table", "labelled_ratio": 0.05}}


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tiny.toml"
    path.write_text(EXPERIMENT)
    return path


def cells_of(file):
    return [cell for _, cell in read_experiment(file).cells()]


def test_pictures_cannot_be_drawn_from_a_table():
    cell = Cell("iforest", "wine", {"kind": "images", "labelled_offset": 1, "labelled_ratio": 0.1}, 0)
    with pytest.raises(InputError, match="has no classes"):
        draw_rows(cell)


def test_a_result_is_what_a_fit_by_hand_gives():
    from sklearn.metrics import average_precision_score, roc_auc_score

    from esad import IsolationForest, registry
    from esad.datasets import scenario

    drawn = scenario.table(registry.load_data_set("wine"), labelled_ratio=0.05, seed=3)
    forest = IsolationForest(n_trees=5, random_state=3).fit(drawn.X_train, drawn.y_train)
    scores = forest.anomaly_score(drawn.X_test)
    found = execute(Cell(data="wine", seed=3, **CELL))
    assert found.auc == pytest.approx(roc_auc_score(drawn.truth_test, scores))
    assert found.ap == pytest.approx(average_precision_score(drawn.truth_test, scores))


@pytest.mark.parametrize("method", ["iforest", "esad"])
def test_the_same_cell_twice_is_bit_equal(method):
    settings = {"n_trees": 5} if method == "iforest" else {"n_epochs": 2, "n_members": 2}
    cell = Cell(method, "wine", {"kind": "table", "labelled_ratio": 0.05}, 1, settings)
    one, two = execute(cell), execute(cell)
    assert (one.auc, one.ap, one.curves, one.data) == (two.auc, two.ap, two.curves, two.data)


def test_finished_cells_are_not_run_again(file, tmp_path):
    with ResultStore(tmp_path / "s.db") as store:
        assert run(cells_of(file), store).n_done == 8
        assert run(cells_of(file), store).n_done == 0


def test_a_failure_is_told_and_the_others_run(tmp_path):
    good = Cell(data="wine", seed=0, **CELL)
    bad = Cell("iforest", "wine", {"kind": "table", "labelled_ratio": 7}, 0)
    worse = Cell("iforest", "wine", {"kind": "table", "labelled": 0.1}, 0)
    with ResultStore(tmp_path / "s.db") as store:
        outcome = run([bad, worse, good], store)
        assert outcome.n_done == 1
        assert [type(failure) for failure in outcome.failures] == [CellFailure, CellFailure]
        assert store.claim(bad.name)  # given back


def test_a_spent_budget_starts_nothing_new(file, tmp_path):
    with ResultStore(tmp_path / "s.db") as store:
        outcome = run(cells_of(file), store, budget=-1.0)
        assert (outcome.n_done, outcome.n_left) == (0, 8)
        assert run(cells_of(file), store, budget=600.0).n_done == 8


def test_an_interrupted_run_says_what_is_done(file, tmp_path, monkeypatch, capsys):
    def interrupt(done):
        raise KeyboardInterrupt

    monkeypatch.setattr("esad.cli.bench._describe_result", interrupt)  # called when the first cell is done
    assert esad(["bench", "run", str(file), "--store", str(tmp_path / "s.db")]) == 130
    assert capsys.readouterr().err == "interrupted: 1 cell of 8 done. The same command goes on.\n"


def test_arguments_chosen_on_test_labels_are_judged_by_the_others():
    cell = Cell(data="breast_cancer", seed=0, choose={"n_trees": [1, 20]}, **CELL | {"settings": {}})
    plain = Cell(data="breast_cancer", seed=0, **CELL)
    assert execute(cell).n_test < execute(plain).n_test


@pytest.mark.parametrize("method", ["ocsvm", "ocsvm_hybrid"])
def test_the_chosen_arguments_are_those_of_the_best_fit(method):
    """By hand: gamma first at the default nu, then nu at that gamma, each on a tenth of the test rows."""
    from sklearn.metrics import roc_auc_score

    from esad import registry
    from esad.bench import execute as runs
    from esad.datasets import scenario

    choose = {"gamma": [0.001, 0.1, 10.0], "nu": [0.05, 0.5]}
    settings = {"n_epochs": 3} if method == "ocsvm_hybrid" else {}
    cell = Cell(method, "breast_cancer", CELL["scenario"], 0, settings, choose)
    drawn = scenario.table(registry.load_data_set("breast_cancer"), labelled_ratio=0.05, seed=0)
    seen = runs._choose_seen(drawn.truth_test, 0)

    def auc(rows, **arguments):
        detector = registry.method(method)(random_state=0, **settings, **arguments).fit(drawn.X_train, drawn.y_train)
        return roc_auc_score(drawn.truth_test[rows], detector.anomaly_score(drawn.X_test[rows]))

    gamma = max(choose["gamma"], key=lambda value: auc(seen, gamma=value))
    nu = max(choose["nu"], key=lambda value: auc(seen, gamma=gamma, nu=value))
    assert execute(cell).auc == pytest.approx(auc(~seen, gamma=gamma, nu=nu))


def test_a_killed_run_goes_on_with_what_is_unfinished(file, tmp_path):
    """kill -9 while workers are busy; the second run finishes the rest, and every result is there once."""
    file.write_text(EXPERIMENT.replace("seeds = 4", "seeds = 60").replace("n_trees = 5", "n_trees = 20"))
    store = tmp_path / "s.db"
    command = [sys.executable, "-m", "esad", "bench", "run", str(file), "--store", str(store)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        time.sleep(0.05)
        if store.exists() and (n_done := len(ResultStore(store).finished_cells())) >= 5:
            break
    process.send_signal(signal.SIGKILL)
    process.wait()
    with ResultStore(store) as opened:
        n_done = len(opened.finished_cells())
        assert 5 <= n_done < 120
        outcome = run(cells_of(file), opened, n_jobs=1)
        assert outcome.n_done == 120 - n_done
        assert not outcome.failures


def test_two_runs_share_a_store(file, tmp_path):
    file.write_text(EXPERIMENT.replace("seeds = 4", "seeds = 30"))
    store = tmp_path / "s.db"
    command = [sys.executable, "-m", "esad", "bench", "run", str(file), "--store", str(store), "--json"]
    other = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with ResultStore(store) as opened:
        while not opened.finished_cells():  # until the other is at work
            assert other.poll() is None
            time.sleep(0.01)
        n_here = run(cells_of(file), opened).n_done
        assert json.loads(other.communicate()[0])["done"] == 60 - n_here
        assert len(opened.finished_cells()) == 60


def test_the_report_sets_the_papers_figure_beside_ours(file, tmp_path, capfd):
    values = [
        {"table": "made-up", "variant": "Forest", "data": "wine", "axes": {}, "mean": 50.0, "std": 1.0},
        {"table": "made-up", "variant": "Oracle", "data": "wine", "axes": {}, "mean": 100.0, "std": None},
    ]
    (tmp_path / "published.json").write_text(json.dumps({"values": values}))
    store = tmp_path / "s.db"
    assert esad(["bench", str(file), "--store", str(store), "--subset", "data=wine"]) == 0
    out = tmp_path / "tables.md"
    assert esad(["bench", "report", str(file), "--store", str(store), "--out", str(out)]) == 0
    capfd.readouterr()
    with ResultStore(store) as opened:
        aucs = [100 * result.auc for result in opened.results()]
    text = out.read_text()
    assert f"**{np.mean(aucs):.1f}** ± {np.std(aucs, ddof=1):.1f}" in text
    assert f"*50.0 ± 1.0, {np.mean(aucs) - 50:+.1f}*" in text
    assert "| Oracle | " in text
    assert "| not run; *100.0* |" in text
    first = f"The tables below ask for {2 * len(aucs)} trainings; {len(aucs)} of them were run.\n"
    assert text.partition("-->\n\n")[2].startswith(first)
    assert "prints 2 values for these experiments. 1 of them were measured here, 1 with every training" in text
    (tmp_path / "published.json").write_text(json.dumps({"values": values[:1]}))
    assert esad(["bench", "report", str(file), "--store", str(store), "--out", str(out)]) == 0
    assert "prints 1 values for these experiments. All of them were measured here." in out.read_text()
    capfd.readouterr()
    assert esad(["bench", "report", str(file), "--store", str(store), "--json"]) == 0
    figures = {(one["variant"], one["data"]): one for one in json.loads(capfd.readouterr().out)["experiments"]["tiny"]}
    assert figures["Forest", "wine"]["auc"] == pytest.approx(np.mean(aucs))
    assert figures["Forest", "breast_cancer"]["n_finished"] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["run", "none.toml"], "Cannot read the experiment 'none.toml': no such file"),
        (["FILE", "--budget", "soon"], "--budget must be a time"),
        (["FILE", "--subset", "seed"], "--subset must be NAME=VALUE"),
        (["report", "FILE", "--store", "none.db"], "There is no store"),
        (["merge", "STORE", "none.db"], "There is no store"),
    ],
)
def test_bad_input_is_one_line(file, tmp_path, monkeypatch, capfd, words, said):
    monkeypatch.chdir(tmp_path)
    words = [{"FILE": str(file), "STORE": str(tmp_path / "s.db")}.get(word, word) for word in words]
    assert esad(["bench", *words]) == 2
    shown = capfd.readouterr().err
    assert said in shown
    assert shown.count("\n") == 1


@pytest.fixture
def shipped():
    return Path(__file__).resolve().parents[2] / "experiments"


def test_the_experiment_with_the_papers_settings_has_them(shipped):
    (variant,) = read_experiment(shipped / "as_published.toml").variants
    y = np.zeros(100, dtype=np.int8)
    y[:3] = -1
    ours, papers = (detector.recipe_for((5,), y) for detector in (ESAD(**variant.settings), ESAD.as_published()))
    assert ours == papers


def test_every_experiment_that_ships_can_be_read(shipped):
    published = tables.PaperFigures(shipped / "published.json")
    for path in shipped.glob("*.toml"):
        experiment = read_experiment(path)
        assert experiment.name == path.stem
        places = {place for place, _ in experiment.cells()}
        if experiment.published:
            assert any(published.find(experiment.published, place)[0] is not None for place in places)


STACK = {"scenario": {"kind": "table", "labelled_ratio": 0.05}, "stack": 3}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("esad", {"n_members": 2, "n_epochs": 4}),
        ("deep_sad", {"n_epochs": 4, "pretrain_epochs": 4}),
        ("deep_svdd", {"boundary": "soft", "n_epochs": 4, "pretrain_epochs": 4}),
        ("autoencoder", {"n_epochs": 4}),
        ("classifier", {"n_epochs": 4}),
        ("ss_dgm", {"variant": "m1+m2", "n_epochs": 4}),
        ("iforest_hybrid", {"n_epochs": 4, "n_trees": 20}),
        ("ocsvm_hybrid", {"n_epochs": 4}),
        ("ssad_hybrid", {"n_epochs": 4}),
    ],
)
def test_seeds_side_by_side_are_the_seeds_alone(method, settings):
    choose = {"gamma": [0.5, 4.0]} if method == "ssad_hybrid" else {}
    stacked = [Cell(method, "wine", seed=seed, settings=settings, choose=choose, **STACK) for seed in range(3)]
    for cell, found in zip(stacked, execute_stack(stacked), strict=True):
        alone = execute(replace(cell, stack=0))
        assert found.cell == cell.name
        assert found.data == alone.data
        assert found.n_test == alone.n_test
        assert (found.auc, found.ap) == pytest.approx((alone.auc, alone.ap), abs=2e-3)


def test_a_cell_of_a_stack_is_bit_equal_whatever_else_is_missing():
    settings = {"n_epochs": 2, "pretrain_epochs": 1}
    cells = [Cell("deep_sad", "wine", seed=seed, settings=settings, **STACK) for seed in range(3)]
    whole, alone = execute_stack(cells), execute_stack(cells[1:2])
    assert (whole[1].auc, whole[1].ap, whole[1].curves) == (alone[0].auc, alone[0].ap, alone[0].curves)


def test_a_method_that_cannot_stack_runs_one_by_one(tmp_path):
    cells = [Cell("iforest", "wine", seed=seed, settings={"n_trees": 3}, **STACK) for seed in range(3)]
    with ResultStore(tmp_path / "s.db") as store:
        assert run(cells, store).n_done == 3


def test_the_text_export_makes_the_same_tables_and_merges(file, tmp_path, capfd):
    store, text, again = tmp_path / "s.db", tmp_path / "s.jsonl", tmp_path / "again.db"
    assert esad(["bench", str(file), "--store", str(store)]) == 0
    assert esad(["bench", "export", str(store), "--out", str(text)]) == 0
    assert len(text.read_text().splitlines()) == 2  # a line per data set, seeds within
    assert esad(["bench", "merge", str(again), str(text)]) == 0
    reports = []
    for source in (store, text, again):
        capfd.readouterr()
        assert esad(["bench", "report", str(file), "--store", str(source)]) == 0
        reports.append(capfd.readouterr().out)
    assert reports[0] == reports[1] == reports[2]
    assert esad(["bench", "export", str(again), "--out", str(tmp_path / "twice.jsonl")]) == 0
    assert (tmp_path / "twice.jsonl").read_text() == text.read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"seed": [1]}', "\x00\x01"])
def test_a_text_that_holds_no_results_is_refused(text, file, tmp_path, capfd):
    (tmp_path / "s.jsonl").write_text(text)
    assert esad(["bench", "report", str(file), "--store", str(tmp_path / "s.jsonl")]) == 2
    assert "does not hold results" in capfd.readouterr().err


def test_methods_along_an_axis_are_a_table_of_methods_by_levels(file, tmp_path):
    experiment = read_experiment(file)
    places = [Place(name, "wine", (("scenario.labelled_ratio", level),)) for name in "ABC" for level in (0.0, 0.1)]
    found = [tables.Figure(place, (), (), (), 4, 90.0) for place in places]
    found[1] = replace(found[1], aucs=(95.0, 93.0), aps=(1.0, 1.0), seconds=(1.0, 1.0))
    text = tables.to_markdown(experiment, found)
    assert "### wine" in text
    assert "| | labelled ratio 0.0 | 0.1 | trained |" in text
    assert "| A | - (90.0) | **94.0** (90.0, +4.0) | 0/4 · 2/4 |" in text
    assert "| B | - (90.0) | - (90.0) | not run |" in text


def test_a_table_says_what_was_trained_on_a_cpu_what_stands_in_for_imagenet_and_the_note(tmp_path):
    path = tmp_path / "pictures.toml"
    path.write_text(
        """
name = "pictures"
title = "Pictures"
data = ["digits"]
seeds = 2
note = "A note."
scenario = { kind = "images", normal_class = 1, labelled_offset = 1, labelled_ratio = 0.1 }
variants = [
    { name = "ADGAN", method = "adgan" },
    { name = "TLSAD", method = "tlsad", settings = { reference = "digits" } },
]
"""
    )
    experiment = read_experiment(path)
    values = {"auc": 0.9, "ap": 0.5, "fit_seconds": 1.0, "score_seconds": 1.0, "n_train": 1, "n_test": 1}
    results = [
        Result(cell.name, cell.describe(), code="", data="", machine={"gpu": "a GPU" if gpu else None}, **values)
        for (_, cell), gpu in zip(experiment.cells(), (True, False, True, True), strict=True)
    ]
    text = tables.to_markdown(experiment, tables.collect_figures(experiment, results, tables.PaperFigures(None)))
    assert "automatic networks and steps are smaller: ADGAN (1 of 2). A note.\n" in text
    assert "‡ Learns from digits besides, a stand-in for ImageNet" in text
    assert "| TLSAD ‡ | **90.0**" in text
    on_gpu = tables.collect_figures(experiment, results[2:], tables.PaperFigures(None))
    assert "CPU" not in tables.to_markdown(experiment, on_gpu)
