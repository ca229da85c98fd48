"""Writes the tables of docs/methods.md: the methods from the registry, the results from the stored runs.

Run it after adding a method or measuring one: `python tools/methods_docs.py`. A test compares.
"""

import json
from pathlib import Path
from statistics import fmean, stdev

from esad import registry

ROOT = Path(__file__).resolve().parent.parent
PAGES = (ROOT / "docs" / "methods.md",)
RESULTS = ROOT / "benchmarks" / "results"

TITLES = {
    "cae": "`Autoencoder` (CAE)",
    "deep_svdd_one_class": "`DeepSVDD` one-class",
    "deep_svdd_soft": "`DeepSVDD` soft",
    "deep_sad": "`DeepSAD`, gamma_l .01",
}
PAPER_PICTURES = {"cae": 90.2, "deep_svdd_one_class": 89.2, "deep_svdd_soft": 89.2, "deep_sad": 90.0}


def render(page: str) -> str:
    """The page with everything between its marks written anew."""
    for mark, write in {"methods": methods, "fmnist": pictures}.items():
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


def pictures() -> str:
    """Mean AUC over the normal classes."""
    path = RESULTS / "methods_fmnist.json"
    runs = [run for run in json.loads(path.read_text()) if not run["settings"]] if path.exists() else []
    lines = ["| | AUC | runs | the paper |", "| --- | --- | --- | --- |"]
    for variant in dict.fromkeys(run["variant"] for run in runs):
        aucs = [run["auc"] for run in runs if run["variant"] == variant]
        figure = f"{fmean(aucs):.1f} ± {stdev(aucs):.1f}"
        lines.append(f"| {TITLES[variant]} | {figure} | {len(aucs)} | {PAPER_PICTURES[variant]} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
