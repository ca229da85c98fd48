"""Results as text: one line of JSON per family of cells that differ in their seed, small enough for a repository.

Loss curves stay in the store. What is read back makes the same tables and figures.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from esad.bench.grid import Cell
from esad.bench.store import Result
from esad.errors import DataFileError

__all__ = ["read_results", "to_text"]

SHARED = ("n_train", "n_test", "code", "machine")  # the same for all seeds of one run
BY_SEED = ("auc", "ap", "fit_seconds", "score_seconds", "data", "finished")
FOR_FIGURES = ("test_auc", "map ")  # how curves begin that come along
DIGITS = {"auc": 6, "ap": 6, "fit_seconds": 3, "score_seconds": 3}


def to_text(results: Iterable[Result]) -> str:
    """All results, sorted, so that the same results give the same text."""
    families: dict[str, dict[str, Any]] = {}
    for result in sorted(results, key=lambda result: (_family(result), result.description["seed"])):
        values = asdict(result)
        line = families.setdefault(_family(result), json.loads(_family(result)) | {"seed": []})
        line["seed"].append(result.description["seed"])
        for name in BY_SEED:
            value = round(values[name], DIGITS[name]) if name in DIGITS else values[name]
            line.setdefault(name, []).append(value)
        line.setdefault("curves", []).append(_for_figures(result))
    for line in families.values():
        if not any(line["curves"]):
            del line["curves"]
    return "".join(json.dumps(line, sort_keys=True) + "\n" for line in families.values())


def read_results(path: str | os.PathLike[str]) -> list[Result]:
    """Undo `to_text`, but for the digits and the loss curves that it drops."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        return [result for line in lines if line.strip() for result in _results(json.loads(line))]
    except OSError as error:
        raise DataFileError(f"The results {str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise DataFileError(f"{str(path)!r} does not hold results of esad bench: {error!r}.") from error


def _family(result: Result) -> str:
    """Everything but the seed and what depends on it."""
    description = {name: value for name, value in result.description.items() if name != "seed"}
    return json.dumps({"description": description} | {name: getattr(result, name) for name in SHARED}, sort_keys=True)


def _for_figures(result: Result) -> dict[str, list[float]]:
    kept = {name: curve for name, curve in result.curves.items() if name.startswith(FOR_FIGURES)}
    return {name: [round(value, 4) for value in curve] for name, curve in kept.items()}


def _results(line: dict[str, Any]) -> list[Result]:
    shared = {name: line[name] for name in SHARED}
    found = []
    for number, seed in enumerate(line["seed"]):
        description = line["description"] | {"seed": seed}
        own = {name: line[name][number] for name in (*BY_SEED, "curves") if name in line}
        found.append(Result(Cell(**description).name, description, **own, **shared))
    return found
