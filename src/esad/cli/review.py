"""`esad review`: the label loop in a web page on this machine."""

import getpass
import glob
import os
import socket
import sys
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from esad.cli import options, output
from esad.cli.method import AskedMethod, MethodOptions
from esad.cli.options import command, option
from esad.core.atomic import check_out, read_text, refuse_same_file, write_text
from esad.errors import DataFileError, InputError

if TYPE_CHECKING:
    from esad.review.session import ReviewSession

_LABELS, _PAGE = "Labels", "Page"


@command(
    "esad review payments.csv",
    "esad review payments.esad payments.csv --reviewer ann --reviewer bob",
    "esad review payments.csv --export-labels labels.csv",
)
def review(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="[MODEL] DATA",
            help="Model file, which may be left out, and what to judge: a CSV, Parquet or Excel file, a folder or "
            "quoted pattern of such files, or a folder of pictures.",
            show_default=False,
        ),
    ],
    columns: options.ColumnOptions,
    out: Path | None = option(
        None,
        "--out -o MODEL",
        "Without MODEL: the model file to make, or to go on with. By default DATA with the ending .esad.",
    ),
    labels: Path | None = option(
        None,
        "--labels FILE",
        "File that the judgements are kept in. By default DATA with .labels.db after its name.",
        _LABELS,
    ),
    export_labels: Path | None = option(
        None, "--export-labels FILE", "Write the judgements to this CSV file and end.", _LABELS
    ),
    import_labels: Path | None = option(
        None, "--import-labels FILE", "Enter the judgements of this CSV file and end.", _LABELS
    ),
    reviewer: list[str] | None = option(
        None,
        "--reviewer NAME",
        "Who judges; may be repeated, each gets a link of their own. By default your user name.",
        _PAGE,
    ),
    host: options.Host = "127.0.0.1",
    port: int | None = option(
        None,
        "--port -p N",
        "Port; 0 takes a free one. By default always the same one for a file of labels, if it is free.",
        options.ADDRESS,
        min=0,
        max=65535,
    ),
    cold: bool = option(False, "--cold", "Let refits begin anew, not with the weights of the old model.", _PAGE),
    training: Path | None = option(
        None,
        "--training FILE",
        "What MODEL was trained on, where it is not found at the place noted in MODEL: refits learn from it too.",
        _PAGE,
    ),
    skip_broken: options.SkipBroken = False,
    *,
    method: MethodOptions,
    reading: options.ReadingOptions,
    as_json: options.Json = False,
) -> None:
    """Judge rows or pictures in a web page, the most useful first; fit again, compare, keep or roll back.

    Without MODEL one is trained first, with the labels there are or with none. Every judgement is on the disk when the
    page says so. The page is for this machine only, unless --host says otherwise. End it with Ctrl-C.
    """
    model, data = _find_paths(paths, out)
    journal = labels or _name_after(data, ".labels.db")
    text = columns.pop("text")
    roles = columns | {"skip_broken": skip_broken}
    refuse_same_file(journal, [data, *([model] if model.exists() else [])])
    if export_labels is not None or import_labels is not None:
        read_as = roles | {"reading": reading}
        _exchange_labels(data, model, journal, export_labels, import_labels, reviewer, read_as, as_json=as_json)
        return
    from esad.review.session import ReviewSession

    listener = _listen(host, port, journal)
    try:
        is_new = len(paths) == 1 and not model.exists()
        if is_new:
            output.check_model_out(model, [data])
            _fit_first(method, data, model, roles | {"text": text} | reading.to_arguments())
        elif len(paths) == 1:
            output.note(f"going on with the model {str(model)!r}. To begin anew, name another one with --out.")
        session = ReviewSession.open(
            data,
            model,
            journal,
            training=training,
            warm=not cold,
            on_remark=(lambda found: None) if is_new else output.remark,  # of a first model's data all is said
            reading=reading,
            **roles,
        )
    except BaseException:
        listener.close()
        raise
    if port is None and listener.getsockname()[1] != (usual := _port_of(journal)):
        output.note(
            f"port {usual}, where the page of these labels is by default, is taken. What a browser could not save "
            "there waits until the page is back."
        )
    names = _list_reviewers(reviewer, session.store.judgements.reviewers())
    _serve(listener, session, names, host=host, as_json=as_json)


# ---------------------------------------------------------------------- files and names


def _find_paths(paths: Sequence[Path], out: Path | None) -> tuple[Path, Path]:
    """The model file, which need not be there yet, and the data."""
    if len(paths) > 2:
        raise InputError(f"Give a model and data, or data alone. Got {len(paths)} paths.")
    data = paths[-1] if paths[-1].name else paths[-1].absolute()  # "." has no name of its own
    if data.suffix == ".esad":
        from esad.io.files import open_tables

        open_tables(data)  # says that this is a model
    if len(paths) == 2 and out is not None:
        raise InputError("--out is for a review without MODEL: what is kept goes to MODEL itself.")
    return (paths[0] if len(paths) == 2 else out or _name_after(data, ".esad")), data


def _name_after(data: Path, ending: str) -> Path:
    """A file beside the data with its name and another ending; what a pattern means is named after its folder.

    Examples
    --------
    >>> str(_name_after(Path("b.csv.gz"), ".esad")), "*" in str(_name_after(Path("a-*.csv"), ".labels.db"))
    ('b.esad', False)
    """
    place = data
    if not data.exists() and glob.has_magic(str(data)):
        place = next(folder for folder in data.parents if not glob.has_magic(str(folder)))
        if not place.name:  # files of the working folder, as their names are
            return place / f"{place.absolute().name}{ending}"
    is_file = ending == ".esad" and not place.is_dir()
    return place.with_name(f"{(is_file and place.name.partition('.')[0]) or place.name}{ending}")


def _list_reviewers(given: Sequence[str] | None, known: Collection[str] = ()) -> list[str]:
    """Return the names that were given, else the name of the user; those that the journal knows are not new."""
    from esad.review.judgements import check_reviewer

    if given:
        names = dict.fromkeys(name.strip() for name in given)
        return [check_reviewer(name, is_new=name not in known) for name in names]
    try:
        return [check_reviewer(getpass.getuser())]
    except (OSError, KeyError, InputError):
        return ["me"]


def _port_of(journal: Path) -> int:
    """Return the port of a file of labels, below those that systems assign: browsers keep labels by address."""
    return 20_000 + zlib.crc32(os.fsencode(journal.resolve())) % 12_000


def _listen(host: str, port: int | None, journal: Path) -> socket.socket:
    """Listen at the given port; by default at the port of the labels' file or, if it is taken, at any free one."""
    from esad.web.server import bind

    if port is not None:
        return bind(host, port)
    try:
        return bind(host, _port_of(journal))
    except InputError:
        return bind(host)


# ---------------------------------------------------------------------- before the page


def _fit_first(method: AskedMethod, data: Path, model: Path, read_as: dict[str, Any]) -> None:
    """Fit a model with the labels there are, and save it."""
    from esad.detectors.training import TrainingData
    from esad.train.callbacks import GracefulStop

    method.make_first()
    with GracefulStop() as stop:
        training = TrainingData.from_file(data, on_remark=output.remark, **read_as)
        detector, _ = method.make_for(training)
        with method.blame_settings(detector), output.bar() as progress:
            training.fit(detector, callbacks=[output.TrainingBar(progress, "training a first model"), stop])
        if detector.training_unseen_by_ is not None:
            detector.calibrate()  # p-values at no cost: each member left rows out anyway
    detector.save(model)


def _exchange_labels(
    data: Path,
    model: Path,
    journal: Path,
    out: Path | None,
    given: Path | None,
    reviewers: Sequence[str] | None,
    read_as: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Import or export labels without showing the page."""
    from esad.detectors.model_file import load
    from esad.review.dataset import ReviewDataset
    from esad.review.judgements import parse_csv, write_csv
    from esad.review.store import JudgementStore

    if out is not None:
        check_out(out, [data, journal, model], [".csv"], "the labels")
        if not journal.exists() and given is None:
            raise DataFileError(f"There are no labels {str(journal)!r}. Name the file with --labels.")
    text = None if given is None else read_text(given, "the labels", max_bytes=2**30)
    if not model.exists():
        raise DataFileError(f"There is no model {str(model)!r} that says how to read the data. Review it first.")
    dataset = ReviewDataset.from_file(data, load(model), on_remark=output.remark, **read_as)
    n_new = n_left = 0
    with JudgementStore.of(journal, dataset) as store:
        name = _list_reviewers(reviewers, store.judgements.reviewers())[0]
        if text is not None:
            n_new, n_left = store.import_lines(parse_csv(text, dataset, reviewer=name), importer=name)
        if out is not None:
            write_text(out, write_csv(store.judgements, dataset))
        n_judged = len(store.judgements.verdicts())
    if as_json:
        counts = {"labels": str(journal), "n_judged": n_judged, "n_new": n_new, "n_left": n_left}
        output.print_json(counts | {"out": None if out is None else str(out)})
        return
    if given is not None:
        output.say(f"{output.count_text(n_new, 'new judgement')} from {given}")
        if n_left:
            output.note(f"{output.count_text(n_left, 'line')} left out: the reviewers have judged otherwise here.")
    if out is not None:
        output.say(f"{output.count_text(n_judged, 'judged row')}: {out}")


# ---------------------------------------------------------------------- the page


def _serve(
    listener: socket.socket, session: "ReviewSession", names: Sequence[str], *, host: str, as_json: bool
) -> None:
    """Show the page until Ctrl-C."""
    from esad.review.access import Access
    from esad.review.app import guard_app, review_app
    from esad.web.server import is_local, run, url_of

    url, access = url_of(listener), Access(owner=names[0])

    def make_link(name: str) -> str:
        return f"{url}/?token={access.new_link(name, is_new=False)}"  # the names were checked

    def on_enter(name: str) -> None:
        if not as_json:
            output.say(f"{name} has opened the page. Another link: {make_link(name)}")

    if not is_local(listener):
        output.warn("other machines can reach this page, and nothing is encrypted on the way.")
    app = review_app(session, access, cookie=f"esad-review-{listener.getsockname()[1]}", on_enter=on_enter)
    links, state = {name: make_link(name) for name in names}, session.state(names[0])
    try:
        run(
            guard_app(app, names=[host]),
            listener,
            ready=lambda: _greet(session, state, links, as_json=as_json),
            stop_seconds=5.0,
        )
    finally:
        session.close()
    if not as_json:
        output.say(f"Labels are in {session.store.path}.")


def _greet(session: "ReviewSession", state: dict[str, Any], links: dict[str, str], *, as_json: bool) -> None:
    """Say where the page is, now that it can be opened."""
    if as_json:
        found = {"n_rows": state["n_rows"], "n_labelled": state["n_labelled"], "links": links}
        output.print_json(found | {"model": str(session.model), "labels": str(session.store.path)})
    else:
        rows = output.count_text(state["n_rows"], state["noun"])
        alarms = output.count_text(state["model"]["n_alarms"], "alarm")
        output.say(f"{state['title']}: {rows}, {alarms}, {state['n_labelled']} labelled")
        output.say(f"Model: {session.model}. Labels: {session.store.path}.")
        for name, link in links.items():
            output.say(f"{name}: {link}")
        output.say("Every link works once. End with Ctrl-C.")
    sys.stdout.flush()
