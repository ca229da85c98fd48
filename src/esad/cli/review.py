"""`esad review`: the label loop in a web page on this machine."""

import getpass
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from esad.cli import common, fit_options, job, options
from esad.cli import review_options as own
from esad.cli.build import Choice, build_detector, settings_checked
from esad.cli.progress import GracefulStop, TrainingBar, bar
from esad.cli.review_data import Asked, exchange_labels, named_after, open_store, read_dataset, training_finder
from esad.cli.source import load_model
from esad.cli.training import Reading, read_training, refuse_model
from esad.errors import InputError

if TYPE_CHECKING:
    from esad.detectors.base import Detector
    from esad.review.session import ReviewSession

__all__ = ["EXAMPLE", "review"]

EXAMPLE = common.example(
    "esad review payments.csv",
    "esad review payments.esad payments.csv --reviewer ann --reviewer bob",
    "esad review payments.csv --export-labels labels.csv",
)


def review(
    paths: own.Paths,
    out: own.Out = None,
    labels: own.Labels = None,
    export_labels: own.ExportLabels = None,
    import_labels: own.ImportLabels = None,
    reviewer: own.Reviewers = None,
    host: options.Host = "127.0.0.1",
    port: options.Port = 0,
    cold: own.Cold = False,
    training: own.Training = None,
    label_column: options.LabelColumn = None,
    id_column: options.IdColumn = None,
    ignore: options.Ignore = None,
    text: options.Text = None,
    anomaly_value: options.AnomalyValue = None,
    normal_value: options.NormalValue = None,
    labels_csv: options.LabelsCsv = None,
    skip_broken: fit_options.SkipBroken = False,
    method: fit_options.Method = "esad",
    members: fit_options.Members = None,
    settings: fit_options.Settings = None,
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
        label_column=label_column,
        id_column=id_column,
        ignore=tuple(ignore or ()),
        text=tuple(text or ()),
        anomaly_value=anomaly_value,
        normal_value=normal_value,
        labels_csv=labels_csv,
        skip_broken=skip_broken,
    )
    asked = Asked(model, data, labels or named_after(data, ".labels.db"), reading)
    common.refuse_same_file(asked.labels, [data, *([model] if model.exists() else [])])
    if export_labels is not None or import_labels is not None:
        exchange_labels(asked, export_labels, import_labels, reviewer=_names(reviewer)[0], as_json=as_json)
        return
    from esad.io.provenance import DataSource
    from esad.review.ranking import Ranking
    from esad.review.session import ReviewSession
    from esad.web.server import bind

    listener = bind(host, port)
    try:
        is_new = len(paths) == 1 and not model.exists()
        choice = Choice(method=method, seed=seed, device=device, members=members, settings=tuple(settings or ()))
        detector = _first_model(asked, choice) if is_new else _known_model(model, is_found=len(paths) == 1)
        dataset = read_dataset(data, detector, reading, is_new=is_new)
        source = DataSource.of(data)
        store = open_store(asked.labels, dataset)
    except BaseException:
        listener.close()
        raise
    session = ReviewSession(
        dataset,
        store,
        Ranking.of(detector, dataset.X),
        model,
        warm=not cold,
        find_training=training_finder(dataset, store, source, training),
        source=source,
    )
    _serve(listener, session, _names(reviewer), host=host, as_json=as_json)


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
    return named_after(data, ".esad"), data


def _names(given: Sequence[str] | None) -> list[str]:
    from esad.review.judgements import check_reviewer

    if given:
        return [check_reviewer(name.strip()) for name in dict.fromkeys(given)]
    try:
        return [check_reviewer(getpass.getuser())]
    except (OSError, KeyError, InputError):
        return ["me"]


def _known_model(model: Path, *, is_found: bool) -> "Detector":
    """The model that was given, or found beside the data."""
    if is_found:
        common.note(f"going on with the model {str(model)!r}. To begin anew, name another one with --out.")
    return load_model(model)


def _first_model(asked: Asked, choice: Choice) -> "Detector":
    """A model of the labels there are, saved."""
    job.check_out(asked.model, [asked.data])
    common.check_method(choice.method)
    with GracefulStop() as stop:
        training = read_training(asked.data, asked.reading)
        detector = build_detector(choice)
        with settings_checked(choice), bar() as progress:
            detector.fit(training.X, training.y, callbacks=[TrainingBar(progress, "training a first model"), stop])
        detector.notes_ = training.notes
        if detector.training_unseen_by_ is not None:
            detector.calibrate()  # p-values for nothing: each member left rows out anyway
    detector.save(asked.model)
    return detector


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
            common.say(f"{name} has opened the page. Another link: {link(name)}")

    if not is_local(listener):
        common.warn("other machines can reach this page, and nothing is encrypted on the way.")
    app = review_app(session, access, cookie=f"esad-review-{listener.getsockname()[1]}", on_enter=entered)
    ready = _greeting(session, {name: link(name) for name in names}, as_json)
    try:
        run(guard_app(app, names=[host]), listener, ready=ready, stop_seconds=5.0)
    finally:
        session.close()
    if not as_json:
        common.say(f"Labels are in {session.store.path}.")


def _greeting(session: Any, links: dict[str, str], as_json: bool) -> Callable[[], None]:
    """Says where the page is once it can be opened."""
    import sys

    state = session.state(next(iter(links)))

    def greet() -> None:
        if as_json:
            found = {"n_rows": state["n_rows"], "n_labelled": state["n_labelled"], "links": links}
            common.json_out(found | {"model": str(session.model), "labels": str(session.store.path)})
        else:
            rows = common.counted(state["n_rows"], state["noun"])
            common.say(
                f"{state['title']}: {rows}, {state['model']['n_alarms']:,} alarms, {state['n_labelled']} labelled"
            )
            common.say(f"Model: {session.model}. Labels: {session.store.path}.")
            for name, link in links.items():
                common.say(f"{name}: {link}")
            common.say("Every link works once. End with Ctrl-C.")
        sys.stdout.flush()

    return greet
