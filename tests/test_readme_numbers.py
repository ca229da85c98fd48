"""The numbers that the README and docs/benchmarks.md claim are those of the stored runs and of the paper."""

import json
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
ODDS = ("shuttle", "satimage-2", "thyroid", "cardio", "satellite", "arrhythmia")
PICTURES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
RATIOS = (0.0, 0.01, 0.05)


def page(name):
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def stored(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    return json.loads(text) if name.endswith(".json") else [json.loads(line) for line in text.splitlines()]


def mean_and_error(values):
    return f"{np.mean(values):.1f} ± {np.std(values, ddof=1) / len(values) ** 0.5:.1f}"


def adbench(method, measure):
    """Mean over the tables, with its standard error over the seeds."""
    runs = stored(f"benchmarks/results/tables_adbench/{method}.json")
    assert len(runs) == 45
    return mean_and_error([np.mean([run[measure] for run in runs if run["seed"] == seed]) for seed in range(3)])


def published(table, data, variant="ESAD", **axes):
    found = [
        one["mean"]
        for one in stored("experiments/published.json")["values"]
        if one["variant"] == variant
        and one["table"] == table
        and one["data"] == data
        and axes.items() <= one["axes"].items()
    ]
    assert len(found) == 1
    return found[0]


@pytest.mark.parametrize(
    ("method", "title"),
    [
        ("esad", "**ESAD**, default"),
        ("devnet", "DevNet (DeepOD 0.4.1)"),
        ("deepsad", "Deep SAD (DeepOD 0.4.1)"),
        ("hgb", "HistGradientBoosting (scikit-learn 1.9.1)"),
        ("devnet_repaired", "DevNet, repaired"),
        ("iforest", "IsolationForest (scikit-learn 1.9.1)"),
    ],
)
def test_development_tables(method, title):
    auc, ap = adbench(method, "auc"), adbench(method, "ap")
    assert f"| {title} | {auc} | {ap} |" in page("docs/benchmarks.md")
    plain = " / ".join(value.split(" ± ")[0] for value in (auc, ap))
    claims = {
        "esad": f"| **{auc} / {ap}** |",
        "devnet": f"| DevNet {auc} / {ap} |",
        "deepsad": f"Deep SAD {plain}, ",
        "hgb": f"HistGradientBoosting {plain}, ",
        "iforest": f"Isolation Forest {plain} |",
    }
    assert claims.get(method, "") in page("README.md")


def of_tables(method, labels="1%", last=None):
    """AUC / AP over OddBench: means over its tables, the last so many by name, of their means over the seeds."""
    runs = [run for run in stored(f"benchmarks/results/tables/{method}.jsonl") if run["collection"] == "oddbench"]
    runs = [run for run in runs if run["labels"] == labels]
    names = sorted({run["table"] for run in runs})
    assert len(names) == 100
    means = [
        np.mean([np.mean([run[measure] for run in runs if run["table"] == name]) for name in names[-(last or 100) :]])
        for measure in ("auc", "ap")
    ]
    return " / ".join(f"{mean:.1f}" for mean in means)


@pytest.mark.parametrize(
    "method", ["committee", "bagged_trees", "esad", "extra_trees", "random_forest", "hgb", "iforest"]
)
def test_tables_of_others(method):
    """All of OddBench, and the half that had no say in any setting: the last by name."""
    assert f" | {of_tables(method)} | {of_tables(method, last=50)} | " in page("docs/benchmarks.md")
    if method in ("committee", "bagged_trees", "esad", "extra_trees"):
        title = {"committee": "`Committee`", "bagged_trees": "`BaggedTrees`", "esad": "`ESAD`"}.get(
            method, "extra trees"
        )
        readme = page("README.md").replace("**", "")
        assert f"{title} {of_tables(method)}" in readme
        assert f"{title} {of_tables(method, last=50)}" in readme


@pytest.mark.parametrize("method", ["committee", "bagged_trees"])
@pytest.mark.parametrize("labels", ["3", "10", "30"])
def test_tables_of_others_by_labels(method, labels):
    assert f" {of_tables(method, labels)} |" in page("docs/benchmarks.md")


def test_odds_tables():
    plain = {"kind": "table", "labelled_ratio": 0.01, "pollution_ratio": 0.0, "test_ratio": 0.4}
    wanted = {"method": "esad", "settings": {}, "scenario": plain, "choose": {}}
    runs = {
        run["description"]["data"]: 100 * np.array(run["auc"])
        for run in stored("experiments/results/tables.jsonl")
        if wanted.items() <= run["description"].items()
    }
    assert {len(auc) for auc in runs.values()} == {10}
    assert ", ".join(f"{name} {runs[name].mean():.1f}" for name in ODDS) in page("README.md")
    printed = ", ".join(f"{published('table3_classic', name)}" for name in ODDS)
    assert f"the paper: {printed} (" in page("README.md")
    for name in ODDS:
        assert mean_and_error(runs[name]) in page("docs/benchmarks.md")


def test_pictures_on_a_cpu():
    runs = stored("benchmarks/results/images_fmnist/esad.json")
    for table, title, row in (
        ("normal 1, labelled 2", "trousers normal", "1 (trousers), 2"),
        ("normal 8, labelled 9", "bags normal", "8 (bags), 9"),
    ):
        auc = mean_and_error([run["auc"] for run in runs if run["table"] == table])
        assert f"{title} {auc}" in page("README.md")
        assert f"| {row} | {auc} |" in page("docs/benchmarks.md")


def picture_aucs(method, data, ratio, bound=None):
    """AUC in % of the ten experiments of a point, none where it was not run; ESAD by its mutual information."""
    scenario = {"kind": "images", "labelled_offset": 1, "labelled_ratio": ratio}
    found = [
        100 * auc
        for run in stored("experiments/results/pictures.jsonl")
        if (run["description"]["data"], run["description"]["method"]) == (data, method)
        and run["description"]["settings"].get("mutual_information") == bound
        and not {"augment", "network"} & run["description"]["settings"].keys()  # Deep SAD's first row
        and run["description"]["scenario"].items() >= scenario.items()
        and len(run["description"]["scenario"]) == 4  # and the normal class
        for auc in run["auc"]
    ]
    assert len(found) in (0, 10)
    return found


@pytest.mark.parametrize(("data", "title"), PICTURES.items())
def test_pictures_on_a_gpu(data, title):
    shown = [("esad", "both"), ("esad", None), ("deep_sad", None)]
    ours = [[picture_aucs(method, data, ratio, bound) for ratio in RATIOS] for method, bound in shown]
    printed = [[published("table1_labelled_ratio", data, **{"scenario.labelled_ratio": ratio})] for ratio in RATIOS]
    cells = (" / ".join(f"{np.mean(aucs):.1f}" if aucs else "?" for aucs in row) for row in (*ours, printed))
    assert f"| {title} | {' | '.join(cells)} |" in page("README.md")


@pytest.mark.parametrize(
    ("method", "bound", "variant", "title"),
    [
        ("esad", "both", "ESAD", "ESAD"),
        ("esad", None, "ESAD", "reconstruction alone"),
        ("deep_sad", None, "Deep SAD", "Deep SAD"),
    ],
)
@pytest.mark.parametrize(
    ("ratio", "labelled"), [(0.0, "nothing"), (0.01, "1 %"), (0.05, "5 %"), (0.1, "10 %"), (0.2, "20 %")]
)
def test_picture_tables(method, bound, variant, title, ratio, labelled):
    row = [f"{title}, {labelled}"]
    for data in PICTURES:
        aucs = picture_aucs(method, data, ratio, bound)
        printed = published("table1_labelled_ratio", data, variant, **{"scenario.labelled_ratio": ratio})
        row.append(f"{np.mean(aucs):.1f}, {np.mean(aucs) - printed:+.1f}" if aucs else "not run")
    assert f"| {' | '.join(row)} |" in page("docs/benchmarks.md")
