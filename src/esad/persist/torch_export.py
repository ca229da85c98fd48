"""Export as a torch program (.pt2), which `torch.export.load` reads without esad."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from esad.persist.interface import group_inputs, split_groups
from esad.preprocess.inputs import Inputs

__all__ = ["FACTS_FILE", "check_installed", "describe_inputs", "reader", "write"]

FACTS_FILE = "esad.json"  # beside the program, inside the file

describe_inputs = group_inputs


def check_installed() -> None:
    """Nothing: esad itself needs torch."""


def write(program: Any, inputs: Inputs, path: Path, facts: dict[str, Any]) -> None:
    """Write one file with the program and, as JSON, what is known about it."""
    whole = io.BytesIO()  # on a full disk torch's own writer ends the process
    torch.export.save(program, whole, extra_files={FACTS_FILE: json.dumps(facts)})
    path.write_bytes(whole.getbuffer())


def reader(path: Path, inputs: Inputs) -> Callable[[Any], dict[str, NDArray[Any]]]:
    """The written file as a function from aligned data to its outputs."""
    with path.open("rb") as file:
        run = torch.export.load(file).module()

    def outputs(data: Any) -> dict[str, NDArray[Any]]:
        with torch.inference_mode():
            found = run(*(torch.from_numpy(given) for given in split_groups(inputs, data)))
        return {name: value.numpy() for name, value in found.items()}

    return outputs
