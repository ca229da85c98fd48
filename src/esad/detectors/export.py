"""From a fitted detector to a file that runs without esad, checked against the detector before it is kept."""

import os
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

import esad
from esad import registry
from esad.core.arrays import Arrays
from esad.core.atomic import atomic_path, check_writable
from esad.core.text import first_line
from esad.detectors.base import Detector
from esad.errors import EsadError, InputError
from esad.persist.formats import FORMATS
from esad.persist.graph import ScoreGraph, trace_graph
from esad.persist.parity import TOLERANCE, Parity, compare_outputs, random_data
from esad.preprocess.inputs import read_rows
from esad.table.table import Table

__all__ = ["FORMATS", "describe", "export"]

FORMAT_VERSION = 1  # of what the files take and give, and of their description


def export(
    detector: Detector,
    path: str | os.PathLike[str],
    *,
    format: str = "onnx",
    X: Any = None,
    on_stage: Callable[[str], object] | None = None,
) -> Parity:
    """Write a detector with its preprocessing, members, threshold and calibration to one file that runs without esad.

    The file is read again and asked for the scores of random rows and of `X`. It is kept only if they are the
    library's to 1e-4.

    Parameters
    ----------
    detector : Detector
        Fitted.
    path : str or path-like
        The file to write.
    format : {"onnx", "torch"}
        ONNX, for onnxruntime, with a named input for every column; needs the extra `export`. Or a torch program
        (.pt2), for `torch.export.load`, which takes categories as codes. docs/export.md has what goes in and out.
    X : rows or pictures, optional
        Real data to compare on as well.
    on_stage : callable, optional
        Told what is done now, in a word or two, for those who wait.

    Returns
    -------
    Parity
        How many rows were compared, and how far apart the scores were at most.

    Raises
    ------
    InputError
        The method or its precision cannot be exported, or the scores are not the same.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from esad import DeepSAD
    >>> X = np.random.default_rng(0).normal(size=(100, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export(DeepSAD(n_epochs=2, random_state=0).fit(X), f"{folder}/model.pt2", format="torch", X=X).holds
    True
    """
    check_is_fitted(detector)
    if format not in FORMATS:
        raise InputError(f"`format` must be one of {', '.join(FORMATS)}. Got {format!r}.")
    if not detector.can_export:
        raise InputError(f"{type(detector).__name__} cannot be exported: {detector.not_exported}.")
    kind = FORMATS[format]
    kind.check_installed()
    check_writable(path)
    here = detector._on_cpu()
    graph = ScoreGraph(here.inputs_, here._terms_module(), threshold=here.threshold_, calibration=here.calibration_)
    name = type(detector).__name__
    rows = [random_data(here.inputs_)] + ([] if X is None else [_align(here, X)])
    tell = on_stage or (lambda stage: None)
    with atomic_path(path) as temporary:
        try:
            tell("tracing")
            program = trace_graph(graph.eval())
            tell("writing")
            kind.write(program, here.inputs_, temporary, describe(here, format))
            tell("comparing scores")
            run = kind.read(temporary, here.inputs_)
            parity = _join_parities([_compare_scores(here, data, run(data)) for data in rows])
        except (EsadError, OSError, MemoryError):
            raise
        except Exception as error:  # exporter and runtime raise errors of many kinds, all about what they cannot do
            raise InputError(f"This {name} cannot be exported to {format}: {first_line(error)[:300]}") from error
        if not parity.holds:
            raise InputError(
                f"This {name} cannot be exported to {format}: of {parity.n_rows:,} rows scores differ from the "
                f"library's by up to {parity.difference:.1e} ({TOLERANCE:g} is allowed), and "
                f"{parity.n_decided_otherwise:,} are decided otherwise. Nothing was written.{_advice(here)}"
            )
    return parity


def _advice(detector: Detector) -> str:
    """What can be done where the library's own scores have too few digits."""
    if detector.inputs_.kind == "table" and getattr(detector, "precision", "float64") in ("auto", "float32"):
        return " Fit it with precision='float64', which leaves more digits."
    return ""


def describe(detector: Detector, format: str) -> dict[str, Any]:
    """What an exported file says about itself."""
    calibration = detector.calibration_
    outputs = {"score": "float64", "anomaly": "bool"} | ({} if calibration is None else {"p_value": "float64"})
    return {
        "export_version": FORMAT_VERSION,
        "esad_version": esad.__version__,
        "method": registry.method_name(type(detector)),
        "threshold": detector.threshold_,
        "terms": list(detector._contributions(detector.inputs_.typical[None])),
        "inputs": FORMATS[format].describe_inputs(detector.inputs_),
        "outputs": [{"name": name, "type": kind} for name, kind in outputs.items()],
        "n_calibration_rows": 0 if calibration is None else calibration.n_rows,
        "data_fingerprint": detector.fingerprint_,
    }


def _align(detector: Detector, X: Any) -> Table | NDArray[Any]:
    """Data in the form of training, or an error that says what is wrong with it."""
    data = read_rows(X)
    detector.inputs_.rows_of(data)
    return detector.inputs_.describe(data) if isinstance(data, Table) else data


def _compare_scores(detector: Detector, data: Table | NDArray[Any], found: Arrays) -> Parity:
    rows = detector.inputs_.rows_of(data)
    calibration = detector.calibration_
    is_cross = calibration is not None and calibration.is_cross
    return compare_outputs(
        found,
        detector.score_rows(rows),
        threshold=detector.threshold_,
        calibration=calibration,
        by_member=detector.member_scores(rows) if is_cross else None,
        is_single=detector.inputs_.kind == "images",
    )


def _join_parities(parts: list[Parity]) -> Parity:
    return Parity(
        sum(part.n_rows for part in parts),
        max(part.difference for part in parts),
        sum(part.n_decided_otherwise for part in parts),
    )
