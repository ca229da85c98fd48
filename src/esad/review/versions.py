"""The model file and the versions beside it; each of them appears whole or not at all."""

import shutil
from pathlib import Path

from esad.core.atomic import atomic_path
from esad.detectors.base import Detector

__all__ = ["beside", "has_previous", "replace", "roll_back"]


def beside(model: Path, word: str) -> Path:
    """Where another version of a model lies.

    Examples
    --------
    >>> beside(Path("parts.esad"), "previous").name
    'parts.previous.esad'
    """
    return model.with_name(f"{model.stem}.{word}{model.suffix}")


def has_previous(model: Path) -> bool:
    """Whether there is a model to go back to."""
    return beside(model, "previous").exists()


def replace(model: Path, detector: Detector, *, with_cases: bool) -> None:
    """Put a new model in place of the old one, which is kept as the previous one."""
    if model.exists():
        _copy(model, beside(model, "previous"))
    detector.save(model, with_cases=with_cases)


def roll_back(model: Path) -> None:
    """Put the previous model back; the one that is given up is kept as rolled back."""
    previous = beside(model, "previous")
    _copy(model, beside(model, "rolled-back"))
    _copy(previous, model)
    previous.unlink()


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as temporary:
        shutil.copyfile(source, temporary)
