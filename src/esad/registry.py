"""Methods and data sets, found by folder: a new one is one new file; and the method where the user names none.

A method is a module or package in `esad/methods` whose `__all__` begins with a detector class; a family of data sets is
a module in `esad/datasets/sources` with `NAMES` and `load(name)`, and where its data do not ship with a package
`files(name)`, the places in the data folder where a set may lie, and, for those that it lists in `GETS`,
`get(name, folder, report)`.
Names are read without importing anything heavy.
"""

import ast
import importlib
import importlib.util
import inspect
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from esad.core.text import hint
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.labels import LabelCounts


def _modules(package: str) -> dict[str, Path]:
    """Public modules and packages in a package, {name: file}, without importing them."""
    spec = importlib.util.find_spec(package)
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    files = {path.stem: path for folder in folders for path in folder.glob("*.py")}
    files |= {path.parent.name: path for folder in folders for path in folder.glob("*/__init__.py")}
    return {name: files[name] for name in sorted(files) if not name.startswith("_")}


def _constant(path: Path, name: str) -> tuple[str, ...]:
    """The literal strings of a module-level assignment `name = [...]`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            return tuple(ast.literal_eval(node.value))  # type: ignore[attr-defined]
    return ()


@cache
def method_classes() -> dict[str, str]:
    """Class name of every method's detector, {module name: class name}.

    Examples
    --------
    >>> method_classes()["esad"]
    'ESAD'
    """
    return {name: _constant(path, "__all__")[0] for name, path in _modules("esad.methods").items()}


def method_names() -> tuple[str, ...]:
    """Names of all methods, ESAD first."""
    return tuple(sorted(method_classes(), key=lambda name: (name != "esad", name)))


def methods_for(kind: str) -> tuple[str, ...]:
    """Names of the methods that take "table" or "images"; imports them all.

    Examples
    --------
    >>> "geom" in methods_for("table"), "geom" in methods_for("images")
    (False, True)
    """
    return tuple(name for name in method_names() if kind in method(name).takes)


def method(name: str, *, parameters: Iterable[str] = ()) -> type[Any]:
    """The detector class of a method; it is an error if that lacks one of the parameters.

    Examples
    --------
    >>> method("iforest").__name__
    'IsolationForest'
    """
    if name not in method_classes():
        names = method_names()
        raise InputError(f"Unknown method {name!r}.{hint(name, names)} There are: {', '.join(names)}.")
    detector: type[Any] = getattr(importlib.import_module(f"esad.methods.{name}"), method_classes()[name])
    known = inspect.signature(detector).parameters
    for parameter in parameters:
        if parameter not in known:
            has = ", ".join(sorted(known))
            raise InputError(
                f"The method {name!r} has no parameter {parameter!r}.{hint(parameter, known)} It has: {has}."
            )
    return detector


def choose_method(kind: str, counts: "LabelCounts", *, parameters: Collection[str] = ()) -> tuple[str, str]:
    """The method with the best mean ranking in benchmarks/tables.py on such data, and the reason in a sentence.

    That is the committee or ESAD. Without a labelled anomaly the committee is ESAD alone. It is taken all the same, so
    that trees join as soon as a refit knows one.

    Parameters
    ----------
    kind : {"table", "images"}
    counts : LabelCounts
        Of the training rows.
    parameters : collection of str
        Names of parameters that the method must have, because somebody has set them.

    Examples
    --------
    >>> from esad.labels import LabelCounts
    >>> choose_method("table", LabelCounts(n_anomaly=5, n_unlabelled=900, n_normal=0))[0]
    'committee'
    >>> choose_method("images", LabelCounts(n_anomaly=5, n_unlabelled=900, n_normal=0))
    ('esad', 'Trees cannot see pictures.')
    """
    from esad.core import processes  # which takes torch

    if kind == "images":
        return "esad", "Trees cannot see pictures."
    if not processes.current().is_alone:
        return "esad", "Several processes cannot grow trees together."
    missing = sorted(set(parameters) - set(method("committee")().get_params()))
    if missing:
        return "esad", f"The committee has no parameter {missing[0]!r}."
    if not counts.n_anomaly:
        return "committee", "Without a labelled anomaly ESAD judges alone; trees join it once one is known."
    return "committee", "ESAD and trees together rank tables with labelled anomalies better than ESAD alone."


def describe_method(name: str) -> dict[str, Any]:
    """What a method is, takes and learns from, as plain values.

    Examples
    --------
    >>> describe_method("iforest")["takes"]
    ['table', 'images']
    """
    detector = method(name)
    return {
        "name": name,
        "class": detector.__name__,
        "takes": list(detector.takes),
        "labels_used": list(detector.labels_used),
        "labels_needed": list(detector.labels_needed),
        "summary": detector.summary,
    }


def method_name(detector_class: type[Any]) -> str:
    """The name under which `method` knows a detector class.

    Examples
    --------
    >>> method_name(method("iforest"))
    'iforest'
    """
    return detector_class.__module__.removeprefix("esad.methods.").partition(".")[0]


@cache
def _sources() -> dict[str, str]:
    """{data set name: source module}."""
    families = _modules("esad.datasets.sources").items()
    return {name: family for family, path in families for name in _constant(path, "NAMES")}


def data_set_names() -> dict[str, str]:
    """All data sets, {name: family}."""
    return dict(_sources())


def data_set_source(name: str) -> ModuleType:
    """The module that knows a data set.

    Examples
    --------
    >>> data_set_source("cardio").__name__
    'esad.datasets.sources.odds'
    """
    if name not in _sources():
        raise InputError(f"Unknown data set {name!r}.{hint(name, _sources())} There are: {', '.join(_sources())}.")
    return importlib.import_module(f"esad.datasets.sources.{_sources()[name]}")


def load_data_set(name: str) -> Any:
    """Load a data set by name, as an `esad.datasets.dataset.Dataset`.

    Examples
    --------
    >>> load_data_set("breast_cancer").X.shape
    (569, 30)
    """
    return data_set_source(name).load(name)
