"""Writes the numbers in README.md, its picture and docs/benchmarks.md from the stored runs and what the paper prints.

Run it after measuring: `python tools/numbers_docs.py`. A test compares. A table, or the curves of the picture, stands
between `<!-- numbers: NAME -->` and `<!-- end -->`, where NAME is that of a function below.
"""

import functools
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "README.md", ROOT / "docs" / "benchmarks.md", ROOT / "docs" / "images" / "labels.svg")
sys.path.insert(0, str(ROOT / "benchmarks"))

from runs import RESULTS, mean_and_error  # noqa: E402  # the benchmarks are scripts, not a package
from tables import FOLDER, Store, by_table, differences, paired, part_of  # noqa: E402

# What is compared, and what each has.
METHODS = {
    "committee": ("**`Committee`**", "5 networks, 320 trees"),
    "bagged_trees": ("**`BaggedTrees`**", "320 trees"),
    "esad": ("**`ESAD`**", "5 networks"),
    "pu_bagging": ("PU bagging of extra trees", "60 bags of 8 trees"),
    "extra_trees": ("extra trees", "300 trees"),
    "random_forest": ("random forest", "300 trees"),
    "hgb": ("HistGradientBoosting", "100 rounds"),
    "devnet": ("DevNet (DeepOD)", "1 network"),
    "rosas": ("RoSAS (DeepOD)", "1 network"),
    "deep_sad_five": ("Deep SAD (ours)", "5 networks"),
    "deepsad": ("Deep SAD (DeepOD)", "1 network"),
    "iforest": ("IsolationForest", "100 trees, no labels"),
}
IN_README = [name for name in METHODS if name not in ("random_forest", "rosas", "deepsad")]
CURVES = {"committee": ("esad fit", -10), "extra_trees": ("extra trees", 22), "iforest": ("IsolationForest", 0)}
LABELS = {"1%": "1 % labelled", "3": "3 labelled", "10": "10 labelled", "30": "30 labelled"}
ODDS = ("arrhythmia", "cardio", "satellite", "satimage-2", "shuttle", "thyroid")
ODDS_BARS = (82.5, 98.8, 92.0, 99.8, 99.5, 99.5)
PICTURES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
RATIOS = {0.0: "nothing", 0.01: "1 %", 0.05: "5 %", 0.1: "10 %", 0.2: "20 %"}
PICTURE_ROWS = {  # title: variants of the experiment, the first that was run for all classes; the paper's name
    "ESAD": (("ESAD", "ESAD, the paper's widths"), "ESAD"),
    "reconstruction alone": (("ESAD, reconstruction alone",), "ESAD"),
    "Deep SAD": (("Deep SAD", "Deep SAD, Fashion-MNIST's network"), "Deep SAD"),
}


def render(page: str) -> str:
    """The page with every table between its marks written anew."""

    def written(found: re.Match[str]) -> str:
        return f"<!-- numbers: {found[1]} -->\n{TABLES[found[1]]()}<!-- end -->"

    return re.sub(r"<!-- numbers: (\w+) -->\n.*?<!-- end -->", written, page, flags=re.DOTALL)


def lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of Markdown."""
    return "".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows))


# ---------------------------------------------------------------------- tables of others

STORE = Store(FOLDER)
ALL = STORE.tables()
SETS = {
    "OddBench": ALL["oddbench"],
    "of these, no say": part_of(ALL, "last")["oddbench"],
    "ADBench": ALL["adbench"],
}


@functools.cache
def means(method: str, labels: str, measure: str) -> dict[str, float]:
    """Mean over the seeds for every table that a method was run on."""
    return by_table(STORE, method, labels, [table for some in ALL.values() for table in some], measure)


def both(method: str, labels: str, tables: Sequence[str]) -> str:
    """AUC / AP: means over tables of their means over seeds; with how many tables where some are missing."""
    found = [[value for table, value in means(method, labels, m).items() if table in tables] for m in ("auc", "ap")]
    if not found[0]:
        return ""
    text = " / ".join(f"{np.mean(values):.1f}" for values in found)
    n_known = sum(table in tables for table in means("committee", labels, "auc"))
    return text if len(found[0]) == n_known else f"{text} ({len(found[0])} tables)"


def n_seeds(*methods: str, labels: str = "1%") -> str:
    """How many seeds every table has, with each of some methods."""
    seeds = [{seed for one, _, seed, its in STORE.runs if (one, its) == (method, labels)} for method in methods]
    return str(len(set.intersection(*seeds)))


def ahead(method: str, labels: str, measure: str, *, of: str = "committee") -> str:
    """By how much a method is beaten over all tables, with a 95 % interval and tables won and lost."""
    found = paired(differences(STORE, of, method, labels, [table for some in ALL.values() for table in some], measure))
    if method == of or found is None:
        return ""
    return f"{found['mean']:+.2f} ± {found['half']:.2f} ({found['won']} : {found['lost']})"


def measured(labels: str) -> list[str]:
    """The methods that were run with so many labels."""
    return [name for name in METHODS if means(name, labels, "auc")]


def tables_readme() -> str:
    """What a visitor wants to know."""
    rows = [[METHODS[m][0], *(both(m, "1%", some) for some in SETS.values())] for m in IN_README if m in measured("1%")]
    return lines(["AUC / average precision, %", "100 tables of OddBench", "50 of these", "12 of ADBench"], rows)


def tables_all() -> str:
    """All methods with one per cent labelled."""
    rows = [[*METHODS[m], n_seeds(m), *(both(m, "1%", some) for some in SETS.values())] for m in measured("1%")]
    return lines(["AUC / AP, %", "has", "seeds", *SETS], rows)


def tables_paired() -> str:
    """The committee against every other, over all tables."""
    rows = [
        [
            METHODS[method][0],
            LABELS[labels],
            n_seeds(method, "committee", labels=labels),
            *(ahead(method, labels, m) for m in ("auc", "ap")),
        ]
        for labels in LABELS
        for method in measured(labels)
        if method != "committee"
    ]
    return lines(["`Committee` against", "", "seeds", "AUC", "AP"], rows)


def tables_by_labels() -> str:
    """All methods with 3, 10 and 30 labels, and none."""
    columns = [(labels, name) for labels in ("3", "10", "30", "none") for name in ("OddBench", "ADBench")]
    head = [f"{name}, {'no' if labels == 'none' else labels} labels" for labels, name in columns]
    rows = [
        [METHODS[method][0], *(both(method, labels, SETS[name]) for labels, name in columns)]
        for method in METHODS
        if any(both(method, labels, SETS[name]) for labels, name in columns)
    ]
    return lines(["AUC / AP, %", *head], rows)


def labels_curves() -> str:
    """The curves of docs/images/labels.svg: mean average precision on OddBench by the number of labelled anomalies."""
    drawn = ""
    for name, (title, below) in CURVES.items():
        known = [(number, means(name, labels, "ap")) for number, labels in enumerate(("none", "3", "10", "30"))]
        aps = [(number, np.mean([found[table] for table in SETS["OddBench"]])) for number, found in known if found]
        marks = "".join(
            f'<circle cx="{_x(number)}" cy="{_y(ap)}" r="4"/>'
            f'<text x="{_x(number)}" y="{_y(ap, below)}">{ap:.0f} %</text>'
            for number, ap in aps
        )
        if len(aps) == 1:  # learns nothing from labels
            aps, marks, title = [*aps, (3, aps[0][1])], "", f"{title} {aps[0][1]:.0f} %"
        line = " ".join(f"{_x(number)},{_y(ap)}" for number, ap in aps)
        end = f'<text class="name" x="{_x(3) + 20}" y="{_y(aps[-1][1], 5)}">{title}</text>'
        drawn += f'<g class="{name}"><polyline points="{line}"/>{marks}{end}</g>\n'
    return drawn


def _x(number: int) -> int:
    return 90 + 155 * number


def _y(ap: float, below: float = 0) -> str:
    return f"{300 - 3.5 * ap + below:.1f}"


# ---------------------------------------------------------------------- the paper's data


@functools.cache
def stored(name: str) -> list[dict[str, Any]]:
    """The lines of a store of experiments."""
    text = (ROOT / "experiments" / "results" / name).read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@functools.cache
def papers_values() -> list[dict[str, Any]]:
    """What the paper prints."""
    return list(json.loads((ROOT / "experiments" / "published.json").read_text(encoding="utf-8"))["values"])


def published(table: str, data: str, variant: str = "ESAD", **axes: float) -> dict[str, float]:
    """The one value of the paper, with its spread where it has one."""
    wanted = {f"scenario.{name}": value for name, value in axes.items()}
    (found,) = (
        one
        for one in papers_values()
        if (one["variant"], one["table"], one["data"]) == (variant, table, data)
        and wanted.items() <= one["axes"].items()
    )
    return dict(found)


@functools.cache
def odds_aucs(method: str) -> tuple[list[Any], list[float]]:
    """AUC in % on the six ODDS tables: a method's with its defaults, one for each seed, and what the paper prints."""
    plain = {"kind": "table", "labelled_ratio": 0.01, "pollution_ratio": 0.0, "test_ratio": 0.4}
    wanted = {"method": method, "settings": {}, "scenario": plain, "choose": {}}
    runs = [run for run in stored("tables.jsonl") if wanted.items() <= run["description"].items()]
    aucs = {run["description"]["data"]: 100 * np.array(run["auc"]) for run in runs}
    return [aucs[name] for name in ODDS], [published("table3_classic", name)["mean"] for name in ODDS]


def odds() -> str:
    """Ours on the six ODDS tables."""
    rows = []
    for method, title in (("committee", "Committee"), ("bagged_trees", "BaggedTrees"), ("esad", "ESAD")):
        aucs, papers = odds_aucs(method)
        rows.append([f"**`{title}`**", *("{:.1f} ± {:.1f}".format(*mean_and_error(values)) for values in aucs)])
    rows += [["the paper", *map(str, papers)], ["bar for `ESAD`", *map(str, ODDS_BARS)]]
    return lines(["AUC, %; ten seeds", *ODDS], rows)


def odds_readme() -> str:
    """The same in a sentence."""
    behind = []
    for method in ("committee", "esad"):
        aucs, papers = odds_aucs(method)
        ahead = np.array([np.mean(values) for values in aucs]) - papers
        behind.append(f"behind what the paper prints on {(ahead < 0).sum()}, by {-ahead.min():.1f} points at most")
    return (
        "On [the paper's six tables](docs/benchmarks.md#odds-tables) `Committee` is {},\n"
        "and ahead on the others; `ESAD` alone is {}.\n"
    ).format(*behind)


def pictures_on_a_cpu() -> str:
    """Two classes of Fashion-MNIST."""
    runs = json.loads((RESULTS / "images_fmnist" / "esad.json").read_text(encoding="utf-8"))
    rows = []
    for table, title, bar in (("normal 1, labelled 2", "trousers", "97"), ("normal 8, labelled 9", "bags", "85")):
        aucs = [run["auc"] for run in runs if run["table"] == table]
        rows.append([title, "{:.1f} ± {:.1f}".format(*mean_and_error(aucs)), bar])
    return lines(["normal", "AUC, %; 3 seeds", "bar"], rows)


def picture_aucs(variants: Sequence[str], data: str, ratio: float) -> list[float]:
    """AUC in % of a point of scenario (i), one for each normal class, by the variant that was run for most of them."""
    name = "labelled_ratio_cifar10" if data == "cifar10" else "labelled_ratio_grey"
    known = tomllib.loads((ROOT / "experiments" / f"{name}.toml").read_text(encoding="utf-8"))["variants"]
    scenario = {"kind": "images", "labelled_offset": 1, "labelled_ratio": ratio}
    found = []
    for variant in (one for title in variants for one in known if one["name"] == title):
        wanted = {"data": data, "method": variant["method"], "settings": variant["settings"], "choose": {}}
        told = [(run["description"], run["auc"]) for run in stored("pictures.jsonl")]
        runs = [(one["scenario"], aucs) for one, aucs in told if wanted.items() <= one.items()]
        drawn = [aucs for its, aucs in runs if {k: v for k, v in its.items() if k != "normal_class"} == scenario]
        found.append([100 * auc for aucs in drawn for auc in aucs])
    return max(found, key=len, default=[])


def picture_cell(title: str, data: str, ratio: float) -> str:
    """Mean AUC over the normal classes and how far it is from the paper's."""
    variants, name = PICTURE_ROWS[title]
    aucs = picture_aucs(variants, data, ratio)
    if len(aucs) < 10:
        return f"{len(aucs)} of 10 run" if aucs else "not run"
    paper = published("table1_labelled_ratio", data, name, labelled_ratio=ratio)["mean"]
    return f"{np.mean(aucs):.1f}, {np.mean(aucs) - paper:+.1f}"


def pictures_readme() -> str:
    """Three ratios beside the paper's."""
    rows = []
    for data, name in PICTURES.items():
        cells = []
        for title in PICTURE_ROWS:
            cut = [picture_cell(title, data, ratio).partition(",")[0] for ratio in (0.0, 0.01, 0.05)]
            cells.append(" / ".join("\u2013" if "run" in one else one for one in cut))
        papers = [published("table1_labelled_ratio", data, labelled_ratio=ratio)["mean"] for ratio in (0.0, 0.01, 0.05)]
        rows.append([name, *cells, " / ".join(map(str, papers))])
    return lines(["AUC, %", *PICTURE_ROWS, "ESAD in the paper"], rows)


def pictures_all() -> str:
    """All ratios, with the distance from the paper."""
    rows = [
        [f"{title}, {RATIOS[ratio]}", *(picture_cell(title, data, ratio) for data in PICTURES)]
        for title in PICTURE_ROWS
        for ratio in RATIOS
    ]
    return lines(["labelled", *PICTURES.values()], rows)


TABLES: dict[str, Callable[[], str]] = {
    one.__name__: one
    for one in (
        tables_readme,
        tables_all,
        tables_paired,
        tables_by_labels,
        labels_curves,
        odds,
        odds_readme,
        pictures_on_a_cpu,
        pictures_readme,
        pictures_all,
    )
}


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
