"""`esad data`: data sets by name, from the network, and any of them as files to try every command on."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from esad import registry
from esad.cli import options, output
from esad.cli.options import command, option, shared_option

_Folder = Annotated[
    Path | None, shared_option("--out -o DIR", "Data folder; by default ESAD_DATA, or else esad in the cache.")
]


@command("esad data", "esad data save breast_cancer --out cancer.csv")
def data(context: typer.Context, as_json: options.Json = False) -> None:
    """List the data sets that esad knows by name, and whether they are here."""
    if context.invoked_subcommand is not None:
        return
    from esad.datasets.folder import is_here

    found = [
        {"name": name, "family": family, "available": is_here(name)}
        for name, family in registry.data_set_names().items()
    ]
    if as_json:
        output.print_json({"data_sets": found})
        return
    rows = [(one["name"], one["family"], "yes" if one["available"] else "no") for one in found]
    output.show_table(None, ["data set", "family", "here"], rows)
    output.say("What is not built in is read from the data folder; see: esad data status")
    output.say("Try one with: esad data save breast_cancer --out cancer.csv")


@command(
    "esad data save breast_cancer --out cancer.csv --test-out cancer-test.csv --labels 15",
    "esad data save digits --out digits --test-out digits-test",
)
def save(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set; see: esad data.", autocompletion=options.complete_data_set)
    ],
    out: Path = option(..., "--out -o FILE", "File to write (.csv or .parquet); a folder for pictures."),
    test_out: Path | None = option(
        None, "--test-out FILE", "Keep 40 % of the rows apart for esad evaluate, and write them here."
    ),
    n_labels: int = option(10, "--labels N", "How many anomalies get a label; other rows get none.", min=0),
    normal_class: int = option(0, "--normal-class N", "For pictures: the class that is taken as normal.", min=0),
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Write a data set as files: a table with a label and a truth column, or a folder of pictures."""
    from esad.datasets import saving

    saved = saving.save_data_set(name, out, test_out, n_labels=n_labels, normal_class=normal_class, seed=seed)

    def show() -> None:
        output.say(f"{name}: {saved.description}.")
        output.say(f"{out}: {saved.n_rows:,} to learn from, {n_labels} of them labelled as anomalies")
        if test_out is not None:
            output.say(f"{test_out}: {saved.n_test_rows:,} kept apart to evaluate with")
        columns = [] if saved.is_images else ["--label-column", saving.LABEL, "--ignore", saving.TRUTH]
        output.say(f"Next: {shlex.join(['esad', 'fit', str(out), *columns, '--out', 'model.esad'])}")

    document = {"name": name, "out": str(out), "n_rows": saved.n_rows, "test_out": test_out and str(test_out)}
    output.answer(as_json, document | {"n_test_rows": saved.n_test_rows}, show)


@command("esad data get cardio", "esad data get mnist --out my-data")
def get(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set; see: esad data.", autocompletion=options.complete_data_set)
    ],
    folder: _Folder = None,
    as_json: options.Json = False,
) -> None:
    """Download a data set, check it and keep it in the data folder; one made of pictures is made from those there."""
    from esad.datasets.folder import data_folder, get_data_set

    place = folder or data_folder()
    with output.bar(shown=not as_json) as progress:
        task = progress.add_task(name, total=None)

        def report(what: str, done: int, total: int | None) -> None:
            progress.update(task, description=f"{name}: {what}", completed=done, total=total)

        path, before, is_needed = get_data_set(name, place, report)
    n_bytes = path.stat().st_size
    if as_json:
        state = "verified" if is_needed else before
        output.print_json({"name": name, "out": str(path), "n_bytes": n_bytes, "state": state, "written": is_needed})
        return
    output.say(f"{path}: {output.size_text(n_bytes)}, {'written' if is_needed else f'already there ({before})'}")
    if place.absolute() != data_folder().absolute():
        output.say(f"To have it found: export ESAD_DATA={shlex.quote(str(place.absolute()))}")


@command("esad data status", "esad data status --json")
def status(as_json: options.Json = False) -> None:
    """Say which data sets are here, where, how large, and whether they are still what was downloaded."""
    from esad.datasets.folder import data_folder, describe_data_set

    folder = data_folder()
    found = [describe_data_set(name, folder) for name in registry.data_set_names()]
    if as_json:
        output.print_json({"folder": str(folder), "data_sets": found})
        return
    output.say(f"Data folder: {folder}")
    rows = [
        (
            one["name"],
            one["path"] or "-",
            "-" if one["n_bytes"] is None else output.size_text(one["n_bytes"]),
            one["state"],
            f"esad data get {one['name']}" if one["can_be_got"] and one["state"] in ("missing", "damaged") else "",
        )
        for one in found
    ]
    output.show_table(None, ["data set", "file", "size", "state", "get it with"], rows, right=["size"])
    output.say("verified: as it was downloaded. unrecorded: put there by other means.")
