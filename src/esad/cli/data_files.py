"""`esad data get` and `esad data status`: data sets from the network, and what is there of them."""

import shlex
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad import registry
from esad.cli import common, options, progress
from esad.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from esad.datasets.download import Report

__all__ = ["GET_EXAMPLE", "STATUS_EXAMPLE", "check_data_set", "get", "is_here", "status"]

GET_EXAMPLE = common.example("esad data get cardio", "esad data get mnist --out my-data")
STATUS_EXAMPLE = common.example("esad data status", "esad data status --json")

Folder = Annotated[
    Path | None,
    typer.Option("--out", "-o", metavar="DIR", help="Data folder; by default ESAD_DATA, or else esad in the cache."),
]


def check_data_set(name: str) -> None:
    """Refuse an unknown data set and name the nearest."""
    known = registry.data_set_names()
    if name not in known:
        raise InputError(f"Unknown data set {name!r}.{common.hint(name, known)} See: esad data")


def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set; see: esad data.", autocompletion=options.complete_data_set)
    ],
    folder: Folder = None,
    as_json: options.Json = False,
) -> None:
    """Download a data set, check it and keep it in the data folder; one made of pictures is made from those there."""
    from esad.datasets import checksums
    from esad.datasets.folder import data_folder, locked

    check_data_set(name)
    source, place = _getter(name), folder or data_folder()
    file = source.files(name)[0]
    path, before = place / file, checksums.state(place, file)
    is_needed = before in ("missing", "damaged")
    if is_needed:
        with locked(place):
            before = checksums.state(place, file)  # another process may have brought it meanwhile
            is_needed = before in ("missing", "damaged")
            if is_needed:
                with _reporting(name, shown=not as_json) as report:
                    source.get(name, place, report)
                checksums.record(place, file)
    n_bytes = path.stat().st_size
    if as_json:
        state = "verified" if is_needed else before
        common.json_out({"name": name, "out": str(path), "n_bytes": n_bytes, "state": state, "written": is_needed})
        return
    common.say(f"{path}: {common.size_text(n_bytes)}, {'written' if is_needed else f'already there ({before})'}")
    if place.absolute() != data_folder().absolute():
        common.say(f"To have it found: export ESAD_DATA={shlex.quote(str(place.absolute()))}")


def _getter(name: str) -> "ModuleType":
    """The module that gets a data set, or why there is none."""
    source = registry.data_set_source(name)
    if not hasattr(source, "files"):
        raise InputError(f"{name} need not be downloaded: it is built in. Try: esad data save {name} --out {name}")
    if name not in getattr(source, "GETS", ()):
        raise InputError(f"{name} cannot be downloaded. Put {source.files(name)[0]} into the data folder.")
    return source


def status(as_json: options.Json = False) -> None:
    """Say which data sets are here, where, how large, and whether they are still what was downloaded."""
    from esad.datasets.folder import data_folder

    folder = data_folder()
    found = [_described(name, folder) for name in registry.data_set_names()]
    if as_json:
        common.json_out({"folder": str(folder), "data_sets": found})
        return
    common.say(f"Data folder: {folder}")
    rows = [
        (
            one["name"],
            one["path"] or "-",
            "-" if one["n_bytes"] is None else common.size_text(one["n_bytes"]),
            one["state"],
            f"esad data get {one['name']}" if one["can_be_got"] and one["state"] in ("missing", "damaged") else "",
        )
        for one in found
    ]
    common.show_table(None, ["data set", "file", "size", "state", "get it with"], rows, right=["size"])
    common.say("verified: as it was downloaded. unrecorded: put there by other means.")


def is_here(name: str) -> bool:
    """Whether a data set can be loaded, as far as its files tell."""
    from esad.datasets.folder import data_folder

    source = registry.data_set_source(name)
    return not hasattr(source, "files") or any((data_folder() / file).exists() for file in source.files(name))


def _described(name: str, folder: Path) -> dict[str, Any]:
    from esad.datasets import checksums

    source = registry.data_set_source(name)
    described: dict[str, Any] = {"name": name, "path": None, "n_bytes": None, "state": "built in"}
    if hasattr(source, "files"):
        file, *others = source.files(name)
        described["state"] = checksums.state(folder, file)
        if described["state"] != "missing":
            described |= {"path": file, "n_bytes": (folder / file).stat().st_size}
        for other in others:
            if described["state"] == "missing" and (folder / other).is_dir():
                described |= {"path": other, "state": "original pictures"}
    return described | {"can_be_got": name in getattr(source, "GETS", ())}


@contextmanager
def _reporting(name: str, *, shown: bool) -> "Iterator[Report]":
    """A bar that follows files and pictures."""
    with progress.bar(shown=shown) as drawn:
        task = drawn.add_task(name, total=None)

        def report(what: str, done: int, total: int | None) -> None:
            drawn.update(task, description=f"{name}: {what}", completed=done, total=total)

        yield report
