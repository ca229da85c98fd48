"""Whole models through `esad.load`: a forged file is refused with EsadError or gives a detector that works.

The container alone is tested in test_bundle.py; here the checksum is always valid and the contents lie.
"""

import copy
import signal
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import tiny

import esad
from esad import registry
from esad.errors import EsadError, ModelFileError
from esad.methods.esad.recipe import SINCE_0_1
from esad.persist import bundle

resource = pytest.importorskip("resource", reason="memory limits need a Unix system")

SMALL = {"hidden": (4, 4), "n_epochs": 1, "pretrain_epochs": 1, "n_trees": 3, "n_samples": 16}
ROOM = 2**30  # bytes that loading and scoring a forged model of a few kilobytes may map beyond what is in use
SECONDS = 30
HOSTILE = [
    None,
    True,
    -1,
    0,
    2,
    10**9,
    10**18,
    -(10**30),
    10**400,
    -0.5,
    1e308,
    "",
    "x",
    "cuda",
    "../../x",
    "a\0b",
    "\ud800",
    [],
    {},
    [[]],
    [10**9] * 3,
]

Model = tuple[dict[str, Any], dict[str, np.ndarray], Any]


class HangError(BaseException):
    """Not an Exception, so that nothing on the way can take it for a fault of the file."""


DIFFERENT = ("esad", "committee", "bagged_trees", "deep_sad", "dif", "iforest_hybrid", "ocsvm", "ss_dgm", "ssad")


def table() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "amount": rng.normal(size=40),
            "wide": np.geomspace(1, 1e6, 40),
            "open": rng.integers(0, 2, 40).astype(bool),
            "colour": rng.choice(["red", "green", "blue"], 40),
            "day": pd.date_range("2024-01-01", periods=40, freq="31h"),
        }
    )
    frame.loc[3, "amount"] = np.nan
    frame.loc[5, "colour"] = None
    return frame


def pictures() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (12, 16, 16), dtype=np.uint8)


def is_different(name: str, kind: str) -> bool:
    """Whether its files hold what no other's do; the committee on pictures is ESAD alone."""
    return name in DIFFERENT and (name, kind) != ("committee", "images")


def models() -> list[Any]:
    """Every method with every kind of input it takes; those whose files hold what others' hold too are slow tests."""
    return [
        pytest.param((name, kind), id=f"{name}-{kind}", marks=() if is_different(name, kind) else pytest.mark.extra)
        for name in registry.method_names()
        for kind in registry.method(name).takes
    ]


@pytest.fixture(scope="module", params=models())
def model(request, tmp_path_factory) -> Model:
    """A saved model's manifest and tensors, and rows to score."""
    name, kind = request.param
    X = table() if kind == "table" else pictures()
    y = np.zeros(len(X), dtype=int)
    y[:2], y[2:4] = -1, 1
    detector = tiny(name, **SMALL).fit(X, y, calibration_ratio=0.25)
    path = tmp_path_factory.mktemp("saved") / "model.esad"
    detector.save(path)
    manifest, tensors = bundle.read(path)
    return {key: value for key, value in manifest.items() if key not in bundle._STATED}, tensors, X[:6]


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """Neither hang nor take much memory: both end the test."""

    def hang(*_: object) -> None:
        raise HangError

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGALRM, hang)
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome(path: Path, manifest: dict[str, Any], tensors: dict[str, np.ndarray], X: Any) -> str:
    """Write, load and score a forged model: "accepted", "refused", or what went wrong."""
    bundle.write(path, manifest, tensors)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # forged numbers may overflow; in use that warns
            detector = load_strictly(path)
            scores = detector.anomaly_score(X)
            if detector.calibration_ is not None:
                detector.p_value(X)
    except EsadError:
        return "refused"
    except (Exception, HangError) as error:
        return repr(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return "accepted" if scores.shape == (len(X),) and np.isfinite(scores).all() else f"scores {scores}"


def load_strictly(path: Path) -> Any:
    """Load; an error must be one line and come before anything large was tried."""
    try:
        return esad.load(path)
    except EsadError as error:
        assert len(str(error).splitlines()) == 1
        cause: BaseException | None = error
        while cause is not None:
            assert not isinstance(cause, MemoryError | RecursionError), f"refused too late: {cause!r}"
            assert "allocate" not in str(cause), f"refused too late: {cause!r}"
            cause = cause.__cause__ or cause.__context__
        raise


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place in a JSON value; of a long list only the first two and the last."""
    yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, 1, len(value) - 1} & set(range(len(value)))):
            yield from places(value[index], (*path, index))


def own_places(manifest: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
    """The places that a method reads itself; inputs are read alike for all, so one method stands for the others."""
    for place in places(manifest):
        if place and (place[0] != "inputs" or manifest["method"] == "esad"):
            yield place


def few_of_a_kind(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The first two tensors of every kind: a deep network has dozens that are read alike."""
    kinds: dict[tuple[str, int], int] = {}
    chosen = {}
    for name, value in tensors.items():
        kind = (name.split(".")[0] + name.rpartition(".")[2], value.ndim)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kinds[kind] <= 2:
            chosen[name] = value
    return chosen


def objects(value: Any) -> Iterator[tuple[Any, ...]]:
    """The places that hold JSON objects."""
    for place in places(value):
        inner = value
        for key in place:
            inner = inner[key]
        if isinstance(inner, dict):
            yield place


def changed(
    manifest: dict[str, Any], place: tuple[Any, ...], *, new: Any = None, remove: bool = False
) -> dict[str, Any]:
    """A copy with one place replaced or removed."""
    forged = copy.deepcopy(manifest)
    node: Any = forged
    for key in place[:-1]:
        node = node[key]
    if remove:
        del node[place[-1]]
    else:
        node[place[-1]] = new
    return forged


def test_unchanged_contents_are_accepted(model, tmp_path):
    assert outcome(tmp_path / "model.esad", *model) == "accepted"


def test_missing_parts_of_the_manifest_are_refused(model, tmp_path):
    manifest, tensors, X = model
    # A constructor argument may be absent, its default stands in, as may what older files lack; notes are the user's.
    optional = [
        place
        for place in places(manifest)
        if place[:1] in (("notes",), ("row_sketch",))
        or (len(place) > 1 and place[0] == "parameters")
        or (place and place[-1] in {*SINCE_0_1, "applied", "chosen_by", "forecast"})
    ]
    required = [place for place in places(manifest) if place and place not in optional]
    outcomes = {
        place: outcome(tmp_path / "model.esad", changed(manifest, place, remove=True), tensors, X) for place in required
    }
    assert {place: found for place, found in outcomes.items() if found != "refused"} == {}


one_in = pytest.mark.parametrize("one_in", [11, pytest.param(1, marks=pytest.mark.extra, id="all")])


def share(values: Sequence[Any], number: int, one_in: int) -> Sequence[Any]:
    """One in so many of the values, others for the next place, so that all are met within a few places."""
    return values[number % one_in :: one_in]


@one_in
def test_hostile_values_in_the_manifest_never_crash(model, tmp_path, one_in):
    manifest, tensors, X = model
    outcomes = {
        (place, repr(value)[:40]): outcome(tmp_path / "model.esad", changed(manifest, place, new=value), tensors, X)
        for number, place in enumerate(own_places(manifest))
        # Parameters are many and only stored.
        for value in share(HOSTILE, number, min(4 * one_in, len(HOSTILE)) if place[0] == "parameters" else one_in)
    }
    assert_never_crashed(outcomes)


def test_unknown_parts_of_the_manifest_never_crash(model, tmp_path):
    manifest, tensors, X = model
    forged = {place: changed(manifest, (*place, "unknown"), new=1) for place in objects(manifest)}
    assert_never_crashed(
        {place: outcome(tmp_path / "model.esad", changes, tensors, X) for place, changes in forged.items()}
    )


def assert_never_crashed(outcomes: dict[Any, str]) -> None:
    assert {key: found for key, found in outcomes.items() if found not in ("accepted", "refused")} == {}
    assert "refused" in outcomes.values()


def hostile_tensors(value: np.ndarray) -> Iterator[np.ndarray]:
    """Another shape, another type, another content."""
    yield value[None]
    yield value.ravel()[:-1]
    yield np.zeros((0, *value.shape[1:]), value.dtype)
    yield np.concatenate([value.ravel(), value.ravel()])
    for dtype in (np.float64, np.float32, np.int64, np.int32, np.int8, np.uint8, np.bool_):
        with np.errstate(invalid="ignore"):
            yield value.astype(dtype)
    fills = (np.nan, np.inf, -1e300, 0.0) if value.dtype.kind == "f" else (-1, 0, 1, 100, 2**31 - 1, -(2**31))
    for fill in fills:
        with np.errstate(over="ignore"):
            yield np.full(value.shape, np.asarray(fill).astype(value.dtype))


@one_in
def test_hostile_tensors_never_crash(model, tmp_path, one_in):
    manifest, tensors, X = model
    outcomes = {
        (name, number): outcome(tmp_path / "model.esad", manifest, {**tensors, name: forged}, X)
        for place, (name, value) in enumerate(few_of_a_kind(tensors).items())
        for number, forged in share(list(enumerate(hostile_tensors(value))), place, one_in)
    }
    assert_never_crashed(outcomes)


@one_in
def test_missing_and_foreign_tensors_are_refused(model, tmp_path, one_in):
    manifest, tensors, X = model
    forged = {"foreign": {**tensors, "foreign": np.zeros(3)}, "none": {}}
    for name in tensors if one_in == 1 else few_of_a_kind(tensors):
        rest = {other: value for other, value in tensors.items() if other != name}
        forged[f"renamed {name}"] = {**rest, f"x{name}": tensors[name]}
        if ".curves." not in name:  # for plots only
            forged[f"without {name}"] = rest
    outcomes = {key: outcome(tmp_path / "model.esad", manifest, changes, X) for key, changes in forged.items()}
    assert {key: found for key, found in outcomes.items() if found != "refused"} == {}


@settings(max_examples=15)
@given(data=st.data())
def test_several_changes_at_once_never_crash(model, tmp_path_factory, data):
    manifest, tensors, X = model
    for _ in range(data.draw(st.integers(2, 5))):
        place = data.draw(st.sampled_from([place for place in places(manifest) if place]))
        manifest = changed(manifest, place, new=data.draw(st.sampled_from(HOSTILE)))
    path = tmp_path_factory.getbasetemp() / "several.esad"
    assert outcome(path, manifest, tensors, X) in ("accepted", "refused")


@settings(max_examples=15)
@given(data=st.data())
def test_flipped_and_cut_files_are_refused(model, tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "flipped.esad"
    bundle.write(path, *model[:2])
    content = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(content) - 1))
    content[position] ^= data.draw(st.integers(1, 255))
    for damaged in (content, content[:position]):
        path.write_bytes(damaged)
        with pytest.raises(ModelFileError, match=r"flipped\.esad"):
            esad.load(path)


def test_a_model_of_one_kind_is_not_read_as_another(model, tmp_path):
    manifest, tensors, X = model
    names = {*registry.method_names(), "unknown", "esad.loss", "os", "..errors", ""} - {manifest["method"]}
    outcomes = {name: outcome(tmp_path / "model.esad", {**manifest, "method": name}, tensors, X) for name in names}
    assert set(outcomes.values()) == {"refused"}
