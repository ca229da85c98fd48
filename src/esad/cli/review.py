"""`esad review`: the label loop in a web page on this machine."""

import getpass
import glob
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import options, output
from esad.cli.fit import build_detector, check_out, settings_blamed
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.io.reading import Reading
    from esad.review.dataset import ReviewDataset
    from esad.review.session import ReviewSession

__all__ = ["EXAMPLE", "review"]

EXAMPLE = output.example(
    "esad review payments.csv",
    "esad review payments.esad payments.csv --reviewer ann --reviewer bob",
    "esad review payments.csv --export-labels labels.csv",
)


_LABELS_PANEL, _PAGE_PANEL = "Labels", "Page"

_Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="[MODEL] DATA",
        help="Model file, which may be left out, and what to judge: a CSV, Parquet or Excel file, a folder or quoted "
        "pattern of such files, or a folder of pictures.",
        show_default=False,
    ),
]
_Out = Annotated[
    Path | None,
    options.option(
        "--out -o",
        "MODEL",
        "Without MODEL: the model file to make, or to go on with. By default DATA with the ending .esad.",
    ),
]
_Labels = Annotated[
    Path | None,
    options.option(
        "--labels",
        "FILE",
        "File that the judgements are kept in. By default DATA with .labels.db after its name.",
        _LABELS_PANEL,
    ),
]
_ExportLabels = Annotated[
    Path | None,
    options.option("--export-labels", "FILE", "Write the judgements to this CSV file and end.", _LABELS_PANEL),
]
_ImportLabels = Annotated[
    Path | None,
    options.option("--import-labels", "FILE", "Enter the judgements of this CSV file and end.", _LABELS_PANEL),
]
_Reviewers = Annotated[
    list[str] | None,
    options.option(
        "--reviewer",
        "NAME",
        "Who judges; may be repeated, each gets a link of their own. By default your user name.",
        _PAGE_PANEL,
    ),
]
_Training = Annotated[
    Path | None,
    options.option(
        "--training",
        "FILE",
        "What MODEL was trained on, where it is not found at the place noted in MODEL: refits learn from it too.",
        _PAGE_PANEL,
    ),
]
_Cold = Annotated[
    bool, options.option("--cold", None, "Let refits begin anew, not with the weights of the old model.", _PAGE_PANEL)
]


@options.reads_files
def review(
    paths: _Paths,
    out: _Out = None,
    labels: _Labels = None,
    export_labels: _ExportLabels = None,
    import_labels: _ImportLabels = None,
    reviewer: _Reviewers = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 0,
    cold: _Cold = False,
    training: _Training = None,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    ignore: options.Ignore = None,
    text: options.Text = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    unlabelled_value: options.UnlabelledValue = None,
    labels_csv: options.LabelsCsv = None,
    skip_broken: options.SkipBroken = False,
    method: options.Method = "esad",
    members: options.Members = None,
    settings: options.Settings = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    *,
    reading: "Reading",
    as_json: options.Json = False,
) -> None:
    """Judge rows or pictures in a web page, the most useful first; fit again, compare, keep or roll back.

    Without MODEL one is trained first, with the labels there are or with none. Every judgement is on the disk when the
    page says so. The page is for this machine only, unless --host says otherwise. End it with Ctrl-C.
    """
    from esad.detectors.model_file import load
    from esad.review.dataset import ReviewDataset

    model, data = _find_paths(paths, out)
    journal = labels or _named_after(data, ".labels.db")
    roles: dict[str, Any] = {
        "label_column": label_column,
        "id_column": id_column,
        "anomaly_value": anomaly_value,
        "normal_value": normal_value,
        "unlabelled_value": unlabelled_value,
        "labels_csv": labels_csv,
        "skip_broken": skip_broken,
        "ignore": tuple(ignore or ()),
    }
    read_as = roles | {"reading": reading}
    output.refuse_same_file(journal, [data, *([model] if model.exists() else [])])
    if export_labels is not None or import_labels is not None:
        if export_labels is not None:
            output.check_out(export_labels, [data, journal, model], [".csv"], "the labels")
            if not journal.exists() and import_labels is None:
                raise DataFileError(f"There are no labels {str(journal)!r}. Name the file with --labels.")
        text_in = None if import_labels is None else _read_text(import_labels)
        if not model.exists():
            raise DataFileError(f"There is no model {str(model)!r} that says how to read the data. Review it first.")
        dataset = ReviewDataset.from_file(data, load(model), on_remark=output.remark, **read_as)
        n_judged, n_new = _exchange_labels(dataset, journal, export_labels, text_in, _names(reviewer)[0])
        if as_json:
            found = {"labels": str(journal), "n_judged": n_judged, "n_new": n_new}
            output.json_out(found | {"out": None if export_labels is None else str(export_labels)})
            return
        if import_labels is not None:
            output.say(f"{output.counted(n_new, 'new judgement')} from {import_labels}")
        if export_labels is not None:
            output.say(f"{output.counted(n_judged, 'judged row')}: {export_labels}")
        return
    from esad.review.session import ReviewSession
    from esad.web.server import bind

    listener = bind(host, port)
    try:
        is_new = len(paths) == 1 and not model.exists()
        if is_new:
            check_out(model, [data])
            output.check_method(method)
            detector = build_detector(method, settings, seed=seed, device=device, members=members)
            with settings_blamed(method, settings):
                _fit_first(detector, data, model, roles | {"text": tuple(text or ())} | reading.said())
        elif len(paths) == 1:
            output.note(f"going on with the model {str(model)!r}. To begin anew, name another one with --out.")
        on_remark = (lambda found: None) if is_new else output.remark  # what a first model was trained on is known
        session = ReviewSession.open(
            data, model, journal, training=training, warm=not cold, on_remark=on_remark, **read_as
        )
    except BaseException:
        listener.close()
        raise
    _serve(listener, session, _names(reviewer), host=host, as_json=as_json)


def _find_paths(paths: Sequence[Path], out: Path | None) -> tuple[Path, Path]:
    """The model file, which need not be there yet, and the data."""
    if len(paths) > 2:
        raise InputError(f"Give a model and data, or data alone. Got {len(paths)} paths.")
    data = paths[-1].absolute() if not paths[-1].name else paths[-1]  # "." has no name of its own
    if data.suffix == ".esad":
        from esad.io.open import open_tables

        open_tables(data)  # says that this is a model
    if len(paths) == 2:
        if out is not None:
            raise InputError("--out is for a review without MODEL: what is kept goes to MODEL itself.")
        return paths[0], data
    if out is not None:
        return out, data
    return _named_after(data, ".esad"), data


def _names(given: Sequence[str] | None) -> list[str]:
    from esad.review.judgements import check_reviewer

    if given:
        return [check_reviewer(name.strip()) for name in dict.fromkeys(given)]
    try:
        return [check_reviewer(getpass.getuser())]
    except (OSError, KeyError, InputError):
        return ["me"]


def _named_after(data: Path, ending: str) -> Path:
    """A file beside the data with its name and another ending; what a pattern means is named after its folder.

    Examples
    --------
    >>> str(_named_after(Path("b.csv.gz"), ".esad")), "*" in str(_named_after(Path("a-*.csv"), ".labels.db"))
    ('b.esad', False)
    """
    place = data
    if not data.exists() and glob.has_magic(str(data)):
        place = next(folder for folder in data.parents if not glob.has_magic(str(folder)))
        if not place.name:  # files of the working folder, as their names are
            return place / f"{place.absolute().name}{ending}"
    is_file = ending == ".esad" and not place.is_dir()
    return place.with_name(f"{(is_file and place.name.partition('.')[0]) or place.name}{ending}")


def _fit_first(detector: "Detector", data: Path, model: Path, roles: dict[str, Any]) -> None:
    """A model of the labels there are, saved."""
    from esad.detectors.training import TrainingData
    from esad.train.callbacks import GracefulStop

    with GracefulStop() as stop:
        training = TrainingData.from_file(data, on_remark=output.remark, **roles)
        with output.bar() as progress:
            training.fit(detector, callbacks=[output.TrainingBar(progress, "training a first model"), stop])
        if detector.training_unseen_by_ is not None:
            detector.calibrate()  # p-values for nothing: each member left rows out anyway
    detector.save(model)


def _exchange_labels(
    dataset: "ReviewDataset", journal: Path, out: Path | None, text: str | None, reviewer: str
) -> tuple[int, int]:
    """Labels out or in, without a page: how many rows are judged now, and how many judgements are new."""
    from esad.core.atomic import atomic_path
    from esad.review.judgements import parse_csv, write_csv
    from esad.review.store import Store

    n_new = 0
    with Store.of(journal, dataset) as store:
        if text is not None:
            n_new = store.import_lines(parse_csv(text, dataset, reviewer=reviewer), importer=reviewer)
        if out is not None:
            with atomic_path(out) as temporary:
                temporary.write_text(write_csv(store.judgements, dataset), encoding="utf-8")
        return len(store.judgements.verdicts()), n_new


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: it is not UTF-8 text.") from error


def _serve(listener: Any, session: "ReviewSession", names: Sequence[str], *, host: str, as_json: bool) -> None:
    """Show the page until Ctrl-C."""
    from esad.review.access import Access
    from esad.review.app import guard_app, review_app
    from esad.web.server import is_local, run, url_of

    url = url_of(listener)
    access = Access(owner=names[0])

    def link(name: str) -> str:
        return f"{url}/?token={access.new_link(name)}"

    def entered(name: str) -> None:
        if not as_json:
            output.say(f"{name} has opened the page. Another link: {link(name)}")

    if not is_local(listener):
        output.warn("other machines can reach this page, and nothing is encrypted on the way.")
    app = review_app(session, access, cookie=f"esad-review-{listener.getsockname()[1]}", on_enter=entered)
    ready = _greeting(session, {name: link(name) for name in names}, as_json)
    try:
        run(guard_app(app, names=[host]), listener, ready=ready, stop_seconds=5.0)
    finally:
        session.close()
    if not as_json:
        output.say(f"Labels are in {session.store.path}.")


def _greeting(session: Any, links: dict[str, str], as_json: bool) -> Callable[[], None]:
    """Says where the page is once it can be opened."""
    state = session.state(next(iter(links)))

    def greet() -> None:
        if as_json:
            found = {"n_rows": state["n_rows"], "n_labelled": state["n_labelled"], "links": links}
            output.json_out(found | {"model": str(session.model), "labels": str(session.store.path)})
        else:
            rows = output.counted(state["n_rows"], state["noun"])
            output.say(
                f"{state['title']}: {rows}, {state['model']['n_alarms']:,} alarms, {state['n_labelled']} labelled"
            )
            output.say(f"Model: {session.model}. Labels: {session.store.path}.")
            for name, link in links.items():
                output.say(f"{name}: {link}")
            output.say("Every link works once. End with Ctrl-C.")
        sys.stdout.flush()

    return greet
