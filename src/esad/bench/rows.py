"""The rows of a cell: its data set, loaded once, drawn by the scenario that it names."""

import threading
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from esad import registry
from esad.bench.grid import Cell
from esad.datasets import scenario
from esad.datasets.dataset import Dataset
from esad.datasets.scenario import Scenario
from esad.errors import InputError

__all__ = ["drawn_rows"]

_loading = threading.Lock()


def drawn_rows(cell: Cell) -> Scenario:
    """The rows of a cell, by the scenario it names."""
    arguments = dict(cell.scenario)
    kind = arguments.pop("kind")
    dataset = _loaded(cell.data)
    try:
        if kind == "images":
            return _drawn_pictures(dataset, cell.seed, **arguments)
        draws: dict[str, Callable[..., Scenario]] = {
            "table": scenario.table,
            "natural": scenario.natural,
            "given": scenario.given,
        }
        return draws[kind](dataset, seed=cell.seed, **arguments)
    except TypeError as error:
        raise InputError(f"The scenario {kind!r} cannot use {arguments}: {error}.") from error


def _drawn_pictures(
    dataset: Dataset,
    seed: int,
    *,
    labelled_offset: int | None = None,
    n_labelled_classes: int | None = None,
    **rest: Any,
) -> Scenario:
    """Labelled anomalies of the class `labelled_offset` after the normal one, or of classes drawn by the seed."""
    classes = () if dataset.classes is None else dataset.classes
    normal = rest.get("normal_class", 0)
    if labelled_offset is not None:
        others = np.setdiff1d(classes, [normal]).tolist()
        rest["labelled_classes"] = (others[(normal + labelled_offset - 1) % len(others)],)
    elif n_labelled_classes == 0:
        rest["labelled_ratio"] = 0.0
    elif n_labelled_classes is not None:
        rest["labelled_classes"] = scenario.pick_classes(
            classes, normal_class=normal, n_classes=n_labelled_classes, seed=seed
        )
    return scenario.images(dataset, seed=seed, **rest)


def _loaded(name: str) -> Dataset:
    with _loading:  # once, though several threads ask
        return _load_once(name)


@cache
def _load_once(name: str) -> Dataset:
    dataset: Dataset = registry.load_data_set(name)
    return dataset
