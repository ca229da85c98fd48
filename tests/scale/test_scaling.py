"""The numbers of docs/scaling.md are the stored ones, and exponents are those of the curve."""

import importlib
import json
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "scaling.py"


@pytest.fixture
def benchmark(monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    return importlib.import_module


def test_the_page_has_the_stored_numbers(benchmark):
    shown = benchmark("scaling")
    page = shown.PAGE.read_text(encoding="utf-8")
    stored = json.loads((SCRIPT.parent / "results" / "scaling.json").read_text())
    assert page == shown.page(page, stored), "Run: python benchmarks/scaling.py plot"


def test_exponents_are_those_of_a_power_and_the_interval_holds_it(benchmark):
    sizes, factors = (8, 32, 128, 512), (1.0, 1.1, 0.9, 1.0)
    points = [
        {"what": "fit", "axis": "columns", "value": size, "busy": 3 * size**1.5 * factor, "mib": None}
        for size, factor in zip(sizes, factors, strict=True)
    ]
    found = benchmark("scaling_growth").exponents(points)
    assert list(found) == ["fit busy by columns"]
    known = found["fit busy by columns"]
    assert known["exponent"] == pytest.approx(1.5, abs=0.05)
    assert known["interval"][0] < 1.5 < known["interval"][1]
    assert known["last"] > 1.5
