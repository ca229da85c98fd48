"""`esad review`: the label loop in a web page on this machine."""

import getpass
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import common, job, options
from esad.cli import fit_options as own
from esad.cli.build import Choice, build_detector, settings_checked
from esad.cli.doubts import names_the_answer
from esad.cli.progress import TrainingBar, bar
from esad.cli.rows import read_rows
from esad.cli.source import load_model
from esad.cli.training import Reading, check_column, read_training, refuse_model
from esad.errors import DataFileError, InputError, OutputError

if TYPE_CHECKING:
    import pyarrow as pa

    from esad.detector import Detector
    from esad.review.material import Material
    from esad.review.store import Store

__all__ = ["EXAMPLE", "review"]

EXAMPLE = common.example(
    "esad review payments.csv",
    "esad review payments.esad payments.csv --reviewer ann --reviewer bob",
    "esad review payments.csv --export-labels labels.csv",
)
_PAGE = "Page"
_LABELS = "Labels"


def review(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[MODEL] DATA",
            help="Model file, which may be left out, and the CSV or Parquet file or folder of pictures to judge.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="MODEL",
            help="Without MODEL: the model file to make, or to go on with. By default DATA with the ending .esad.",
        ),
    ] = None,
    labels: Annotated[
        Path | None,
        typer.Option(
            "--labels",
            metavar="FILE",
            help="File that the judgements are kept in. By default DATA with .labels.db after its name.",
            rich_help_panel=_LABELS,
        ),
    ] = None,
    export_labels: Annotated[
        Path | None,
        typer.Option(
            "--export-labels",
            metavar="FILE",
            help="Write the judgements to this CSV file and end.",
            rich_help_panel=_LABELS,
        ),
    ] = None,
    import_labels: Annotated[
        Path | None,
        typer.Option(
            "--import-labels",
            metavar="FILE",
            help="Enter the judgements of this CSV file and end.",
            rich_help_panel=_LABELS,
        ),
    ] = None,
    reviewer: Annotated[
        list[str] | None,
        typer.Option(
            "--reviewer",
            metavar="NAME",
            help="Who judges; may be repeated, each gets a link of their own. By default your user name.",
            rich_help_panel=_PAGE,
        ),
    ] = None,
    host: Annotated[
        str,
        typer.Option(
            "--host",
            metavar="NAME",
            help="Address to listen at; other machines can reach 0.0.0.0.",
            rich_help_panel=_PAGE,
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int,
        typer.Option("--port", "-p", metavar="N", help="Port to listen at; 0 is any free one.", rich_help_panel=_PAGE),
    ] = 0,
    cold: Annotated[
        bool,
        typer.Option(
            "--cold", help="Let refits begin anew, not with the weights of the old model.", rich_help_panel=_PAGE
        ),
    ] = False,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    ignore: options.Ignore = None,
    text: options.Text = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    method: own.Method = "esad",
    members: own.Members = None,
    settings: own.Settings = None,
    seed: options.Seed = 0,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Judge rows or pictures in a web page, the most useful first; fit again, compare, keep or roll back.

    Without MODEL one is trained first, with the labels there are or with none. Every judgement is on the disk when the
    page says so. The page is for this machine only, unless --host says otherwise. End it with Ctrl-C.
    """
    model, data = _paths(paths, out)
    reading = Reading(
        label_column, id_column, tuple(ignore or ()), anomaly_value, normal_value, labels_csv, tuple(text or ())
    )
    journal = labels or data.with_name(f"{data.name}.labels.db")
    common.refuse_same_file(journal, [data, *([model] if model.exists() else [])])
    if export_labels is not None or import_labels is not None:
        _exchange(_Asked(model, data, journal, reading), export_labels, import_labels, _names(reviewer)[0], as_json)
        return
    from esad.web.server import bind

    listener = bind(host, port)
    try:
        choice = Choice(method, seed, device, members, tuple(settings or ()))
        detector = _detector(paths, model, data, reading, choice)
        material = _material(data, detector, reading)
        store = _store(journal, material)
    except BaseException:
        listener.close()
        raise
    _serve(listener, detector, material, store, model, _names(reviewer), host=host, warm=not cold, as_json=as_json)


@dataclass(frozen=True)
class _Asked:
    model: Path
    data: Path
    labels: Path
    reading: Reading


def _paths(paths: Sequence[Path], out: Path | None) -> tuple[Path, Path]:
    """The model file, which need not be there yet, and the data."""
    if len(paths) > 2:
        raise InputError(f"Give a model and data, or data alone. Got {len(paths)} paths.")
    data = paths[-1].absolute() if not paths[-1].name else paths[-1]  # "." has no name of its own
    refuse_model(data)
    if len(paths) == 2:
        if out is not None:
            raise InputError("--out is for a review without MODEL: what is kept goes to MODEL itself.")
        return paths[0], data
    if out is not None:
        return out, data
    name = data.name if data.is_dir() else data.name.partition(".")[0] or data.name
    return data.with_name(f"{name}.esad"), data


def _names(given: Sequence[str] | None) -> list[str]:
    from esad.review.store import check_reviewer

    if given:
        return [check_reviewer(name.strip()) for name in dict.fromkeys(given)]
    try:
        return [check_reviewer(getpass.getuser())]
    except (OSError, KeyError, InputError):
        return ["me"]


# ---------------------------------------------------------------------- the model


def _detector(paths: Sequence[Path], model: Path, data: Path, reading: Reading, choice: Choice) -> "Detector":
    """The model given or found, or a new one."""
    if len(paths) == 2:
        return load_model(model)
    if model.exists():
        common.note(f"going on with the model {str(model)!r}. To begin anew, name another one with --out.")
        return load_model(model)
    job.check_out(model, [data])
    common.check_method(choice.method)
    training = read_training(data, reading)
    detector = build_detector(choice)
    with settings_checked(choice), bar() as progress:
        detector.fit(training.X, training.y, callbacks=[TrainingBar(progress, "training a first model")])
    detector.notes_ = training.notes
    if detector.training_unseen_by_ is not None:
        detector.calibrate()  # p-values for nothing: each member left rows out anyway
    detector.save(model)
    return detector


# ---------------------------------------------------------------------- the data


def _material(data: Path, detector: "Detector", reading: Reading) -> "Material":
    from esad.review.material import Material

    rows = read_rows(data, detector, reading)
    cells = None if data.is_dir() else _cells(data, detector, reading, {rows.label_column, rows.id_name})
    return Material(title=data.name, X=rows.X, known=rows.y, names=rows.ids, id_name=rows.id_name, cells=cells)


def _cells(data: Path, detector: "Detector", reading: Reading, aside: set[str | None]) -> "pa.Table":
    """All columns to show, as they stand in the file, but for those to ignore and those that are called as answers."""
    import pyarrow as pa

    from esad.data.files import open_batches

    table = pa.concat_tables(list(open_batches(data)))
    for name in reading.ignore:
        check_column(name, table.column_names, data, "--ignore")
    aside = aside | set(reading.ignore)
    schema = detector.inputs_.schema
    learned = set(schema.names) if schema is not None and schema.named else set()
    shown = [n for n in table.column_names if n in learned or not (n in aside or names_the_answer(n))]
    return table.select(shown)


def _store(journal: Path, material: "Material") -> "Store":
    from esad.review.store import Store

    return Store(journal, fingerprint=material.fingerprint(), n_rows=material.n_rows)


def _exchange(asked: _Asked, out: Path | None, given: Path | None, reviewer: str, as_json: bool) -> None:
    """Labels out or in, without a page."""
    from esad.atomic import atomic_path, check_writable
    from esad.review import exchange

    if out is not None:
        if out.suffix.lower() != ".csv":
            raise OutputError(f"Cannot write the labels to {str(out)!r}: its name must end in .csv.")
        common.refuse_same_file(out, [asked.data, asked.labels, asked.model])
        check_writable(out)
        if not asked.labels.exists() and given is None:
            raise DataFileError(f"There are no labels {str(asked.labels)!r}. Name the file with --labels.")
    text = None if given is None else _read_text(given)
    if not asked.model.exists():
        raise DataFileError(f"There is no model {str(asked.model)!r} that says how to read the data. Review it first.")
    material = _material(asked.data, load_model(asked.model), asked.reading)
    n_new = 0
    with _store(asked.labels, material) as store:
        if text is not None:
            n_new = exchange.read_csv(text, store, material.names, material.id_name, reviewer=reviewer)
        if out is not None:
            with atomic_path(out) as temporary:
                written = exchange.write_csv(store, material.names, material.id_name)
                temporary.write_text(written, encoding="utf-8")
        n_judged = len(store.verdicts())
    if as_json:
        common.json_out({"labels": str(asked.labels), "n_judged": n_judged, "n_new": n_new, "out": out and str(out)})
        return
    if text is not None:
        common.say(f"{common.counted(n_new, 'new judgement')} from {given}")
    if out is not None:
        common.say(f"{common.counted(n_judged, 'judged row')}: {out}")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: {(error.strerror or str(error)).lower()}.") from error
    except UnicodeDecodeError as error:
        raise DataFileError(f"Cannot read {str(path)!r}: it is not UTF-8 text.") from error


# ---------------------------------------------------------------------- the page


def _serve(
    listener: Any,
    detector: "Detector",
    material: "Material",
    store: "Store",
    model: Path,
    names: Sequence[str],
    *,
    host: str,
    warm: bool,
    as_json: bool,
) -> None:
    """Show the page until Ctrl-C."""
    from esad.review.access import Access
    from esad.review.app import guarded, review_app
    from esad.review.desk import Desk
    from esad.review.judged import Scored
    from esad.web.server import is_local, run, url_of

    url = url_of(listener)
    access = Access()
    desk = Desk(material, store, Scored.of(detector, material.X), model, warm=warm)

    def link(name: str) -> str:
        return f"{url}/?token={access.new_link(name)}"

    def entered(name: str) -> None:
        if not as_json:
            common.say(f"{name} has opened the page. Another link: {link(name)}")

    if not is_local(listener):
        common.warn("other machines can reach this page, and nothing is encrypted on the way.")
    app = review_app(desk, access, cookie=f"esad-review-{listener.getsockname()[1]}", on_enter=entered)
    ready = _greeting(desk, {name: link(name) for name in names}, as_json)
    try:
        run(guarded(app, names=[host]), listener, ready=ready, stop_seconds=5.0)
    finally:
        desk.close()
    if not as_json:
        common.say(f"Labels are in {store.path}.")


def _greeting(desk: Any, links: dict[str, str], as_json: bool) -> Callable[[], None]:
    """Says where the page is once it can be opened."""
    import sys

    state = desk.state(next(iter(links)))

    def greet() -> None:
        if as_json:
            found = {"n_rows": state["n_rows"], "n_labelled": state["n_labelled"], "links": links}
            common.json_out(found | {"model": str(desk.model), "labels": str(desk.store.path)})
        else:
            rows = common.counted(state["n_rows"], state["noun"])
            common.say(
                f"{state['title']}: {rows}, {state['model']['n_alarms']:,} alarms, {state['n_labelled']} labelled"
            )
            common.say(f"Model: {desk.model}. Labels: {desk.store.path}.")
            for name, link in links.items():
                common.say(f"{name}: {link}")
            common.say("Every link works once. End with Ctrl-C.")
        sys.stdout.flush()

    return greet
