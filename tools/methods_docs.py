"""Writes the tables of docs/methods.md: the methods from the registry, the results from the stored runs.

Run it after adding a method or measuring one: `python tools/methods_docs.py`. A test compares.
"""

import json
from pathlib import Path
from statistics import fmean, stdev

from esad import registry
from esad.data.sources.odds import NAMES as TABLES

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "methods.md"
RESULTS = ROOT / "benchmarks" / "results"

# Variants that are not simply a method with its default settings.
TITLES = {
    "deep_svdd_one_class": "`DeepSVDD` one-class",
    "deep_svdd_soft": "`DeepSVDD` soft",
    "ss_dgm_m2": "`SSDGM` m2",
    "ss_dgm_m1_m2": "`SSDGM` m1+m2",
    "ocsvm_chosen": "`OCSVM` †",
    "ocsvm_hybrid_chosen": "`OCSVMHybrid` †",
    "ssad_chosen": "`SSAD` †",
    "ssad_hybrid_chosen": "`SSADHybrid` †",
}
# The paper's tables, AUC in %; it takes the better of two variants and prints one figure for both.
PAPER_TABLES = {
    "esad": (85.2, 98.8, 92.5, 99.9, 99.1, 99.6),
    "deep_sad": (75.9, 95.0, 91.5, 99.9, 98.4, 98.6),
    "deep_svdd": (74.6, 84.8, 79.8, 98.3, 86.3, 72.0),
    "ss_dgm": (50.3, 66.2, 57.4, 99.2, 97.9, 72.7),
    "ssad_hybrid": (78.3, 86.3, 86.9, 96.8, 97.7, 95.3),
}
PAPER_PICTURES = {"cae": 90.2, "deep_svdd_one_class": 89.2, "deep_svdd_soft": 89.2, "deep_sad": 90.0}


def render(page: str) -> str:
    """The page with everything between its marks written anew."""
    for mark, write in {"methods": methods, "odds": six_tables, "fmnist": pictures}.items():
        begin, end = f"<!-- {mark}:begin -->\n", f"<!-- {mark}:end -->"
        before, _, rest = page.partition(begin)
        page = before + begin + write() + end + rest.partition(end)[2]
    return page


def methods() -> str:
    """A line for every method."""
    lines = ["| method | class | takes | learns from | what it is |", "| --- | --- | --- | --- | --- |"]
    for name in registry.method_names():
        method = registry.method(name)
        used = ", ".join(f"{kind}\\*" if kind in method.labels_needed else kind for kind in method.labels_used)
        lines.append(f"| `{name}` | `{method.__name__}` | {', '.join(method.takes)} | {used} | {method.summary} |")
    return "\n".join(lines) + "\n"


def six_tables() -> str:
    """AUC / AP and fit seconds of every variant on every table."""
    lines = [f"| | {' | '.join(TABLES)} |", "| --- |" + " --- |" * len(TABLES)]
    runs = {path.stem: json.loads(path.read_text()) for path in (RESULTS / "methods_odds").glob("*.json")}
    for name in sorted(runs, key=_place):
        cells = [_cell([run for run in runs[name] if run["table"] == table]) for table in TABLES]
        lines.append(f"| {_title(name)} | {' | '.join(cells)} |")
        paper = [method for method in PAPER_TABLES if _is_last_of(name, method, set(runs))]
        lines += [f"| *the paper* | {' | '.join(f'*{auc}*' for auc in PAPER_TABLES[method])} |" for method in paper]
    return "\n".join(lines) + "\n"


def pictures() -> str:
    """Mean AUC over the normal classes."""
    path = RESULTS / "methods_fmnist.json"
    runs = [run for run in json.loads(path.read_text()) if not run["settings"]] if path.exists() else []
    lines = ["| | AUC | runs | the paper |", "| --- | --- | --- | --- |"]
    titles = TITLES | {"cae": "`Autoencoder` (CAE)", "deep_sad": "`DeepSAD`"}
    for variant in dict.fromkeys(run["variant"] for run in runs):
        aucs = [run["auc"] for run in runs if run["variant"] == variant]
        figure = f"{fmean(aucs):.1f} ± {stdev(aucs):.1f}"
        lines.append(f"| {titles[variant]} | {figure} | {len(aucs)} | {PAPER_PICTURES[variant]} |")
    return "\n".join(lines) + "\n"


def _title(variant: str) -> str:
    return TITLES.get(variant) or f"`{registry.method_classes()[variant]}`"


def _place(variant: str) -> tuple[int, str]:
    """ESAD first, then by method; what was chosen on test labels comes after the default."""
    return (0 if variant == "esad" else 1, variant)


def _is_last_of(variant: str, method: str, variants: set[str]) -> bool:
    """Whether the paper's line for a method comes after this variant."""
    return variant == max((name for name in variants if name == method or name.startswith(f"{method}_")), default=None)


def _cell(runs: list[dict[str, float]]) -> str:
    if not runs:
        return ""
    aucs = [run["auc"] for run in runs]
    error = f" ± {stdev(aucs) / len(aucs) ** 0.5:.1f}" if len(aucs) > 1 else ""
    seconds = fmean(run["fit_s"] for run in runs)
    fewer = f", {len(runs)} seeds" if len(runs) < 10 else ""
    return f"{fmean(aucs):.1f}{error} / {fmean(run['ap'] for run in runs):.1f}, {seconds:.1f} s{fewer}"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
