"""`esad data`: data sets by name, and any of them as files to try every command on."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from esad import registry
from esad.cli import common, data_files, options, saving
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.datasets.dataset import Dataset

__all__ = ["EXAMPLE", "SAVE_EXAMPLE", "data", "save"]

EXAMPLE = common.example("esad data", "esad data save breast_cancer --out cancer.csv")
SAVE_EXAMPLE = common.example(
    "esad data save breast_cancer --out cancer.csv --test-out cancer-test.csv --labels 15",
    "esad data save digits --out digits --test-out digits-test",
)


def data(context: typer.Context, as_json: options.Json = False) -> None:
    """List the data sets that esad knows by name, and whether they are here."""
    if context.invoked_subcommand is not None:
        return
    found = [
        {"name": name, "family": family, "available": data_files.is_here(name)}
        for name, family in registry.data_set_names().items()
    ]
    if as_json:
        common.json_out({"data_sets": found})
        return
    rows = [(one["name"], one["family"], "yes" if one["available"] else "no") for one in found]
    common.show_table(None, ["data set", "family", "here"], rows)
    common.say("What is not built in is read from the data folder; see: esad data status")
    common.say("Try one with: esad data save breast_cancer --out cancer.csv")


def save(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Data set; see: esad data.", autocompletion=options.complete_data_set)
    ],
    out: Annotated[
        Path,
        typer.Option("--out", "-o", metavar="FILE", help="File to write (.csv or .parquet); a folder for pictures."),
    ],
    test_out: Annotated[
        Path | None,
        typer.Option(
            "--test-out", metavar="FILE", help="Keep 40 % of the rows apart for esad evaluate, and write them here."
        ),
    ] = None,
    n_labels: Annotated[
        int, typer.Option("--labels", min=0, metavar="N", help="How many anomalies get a label; other rows get none.")
    ] = 10,
    normal_class: Annotated[
        int, typer.Option("--normal-class", min=0, metavar="N", help="For pictures: the class that is taken as normal.")
    ] = 0,
    seed: options.Seed = 0,
    as_json: options.Json = False,
) -> None:
    """Write a data set as files: a table with a label and a truth column, or a folder of pictures."""
    data_files.check_data_set(name)
    if test_out is not None and test_out.absolute() == out.absolute():
        raise InputError("--out and --test-out must differ.")
    dataset: Dataset = registry.load_data_set(name)
    if dataset.truth is None:
        dataset = dataset.with_normal_class(normal_class)
    train, test = _parts(dataset, test_out is not None, seed)
    write = saving.save_pictures if dataset.is_images else saving.save_table
    n_rows = write(train, out, saving.draw_labels(train, n_labels, seed=seed))
    n_test = write(test, test_out, None) if test is not None and test_out is not None else 0
    if as_json:
        written = {"out": str(out), "n_rows": n_rows, "test_out": test_out and str(test_out), "n_test_rows": n_test}
        common.json_out({"name": name} | written)
        return
    common.say(f"{dataset.name}: {dataset.description}.")
    common.say(f"{out}: {n_rows:,} to learn from, {n_labels} of them labelled as anomalies")
    if test_out is not None:
        common.say(f"{test_out}: {n_test:,} kept apart to evaluate with")
    columns = [] if dataset.is_images else ["--label-column", saving.LABEL, "--ignore", saving.TRUTH]
    common.say(f"Next: {shlex.join(['esad', 'fit', str(out), *columns, '--out', 'model.esad'])}")


def _parts(dataset: "Dataset", with_test: bool, seed: int) -> "tuple[Dataset, Dataset | None]":
    """All rows, or a training and a test part."""
    from esad.datasets.scenario import split

    if not with_test or dataset.test is not None or dataset.truth is None:
        return dataset, dataset.test
    train_rows, test_rows = split(dataset.truth, test_ratio=0.4, seed=seed)
    return dataset.take(train_rows), dataset.take(test_rows)
