"""`esad review`: from a file without labels to a page, refusals in one line, labels out and in, an orderly end."""

import json
import re
import signal
import socket
import subprocess
import sys
import time
import warnings
from contextlib import closing, contextmanager, suppress
from types import SimpleNamespace

import httpx
import numpy as np
import pytest

from esad import registry
from esad.cli.review import _list_reviewers
from esad.datasets import saving
from esad.datasets import scenario as scenarios
from esad.detectors.model_file import load
from esad.detectors.training import TrainingData
from esad.errors import InputError
from esad.review.access import Access
from esad.review.app import guard_app, review_app
from esad.review.dataset import ReviewDataset
from esad.review.session import ReviewSession
from esad.review.store import JudgementStore
from esad.train.callbacks import GracefulStop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like another package than httpx
    from starlette.testclient import TestClient

FIRST = ("--method", "iforest", "--ignore", "verdict", "--id-column", "serial")


class Review:
    """A real `esad review` in a process of its own."""

    def __init__(self, *args, **options):
        command = [sys.executable, "-m", "esad", "review", *map(str, args), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        text, line = "", ""
        while line != "}\n":
            line = self.process.stdout.readline()
            assert line, self.process.communicate()
            text += line
        self.found = json.loads(text)
        self.links = list(self.found["links"].values())

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def enter(self, link=0):
        client = httpx.Client(base_url=self.links[link].partition("/?")[0])
        assert client.get(self.links[link]).status_code == 200
        return client

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.mark.extra
def test_from_nothing_to_labels_that_are_there_again(parts, esad, tmp_path):
    review = Review(parts, *FIRST, "--reviewer", "ann", "--reviewer", "bob", cwd=tmp_path)
    assert (review.found["n_rows"], review.found["n_labelled"]) == (60, 0)
    assert list(review.found["links"]) == ["ann", "bob"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", review.links[0])
    with closing(review.enter()) as ann, closing(review.enter(1)) as bob:
        item = ann.get("/api/next?n=1").json()["items"][0]
        assert item["name"].startswith("S0")
        assert "verdict" not in dict(item["cells"])  # ignored: neither learned from nor shown
        for client, verdict in ((ann, "anomaly"), (bob, "anomaly")):
            said = {"request": client.base_url.host + verdict + str(id(client)), "row": item["row"], "verdict": verdict}
            assert client.post("/api/judgements", json=said).status_code == 200
    assert review.end() == (0, "", "")
    assert {path.name for path in tmp_path.iterdir()} == {"parts.csv", "parts.esad", "parts.csv.labels.db"}
    again = Review(parts, *FIRST, cwd=tmp_path)
    assert again.found["n_labelled"] == 1
    assert again.end(signal.SIGTERM)[0] == 0
    done = esad("review", parts, *FIRST, "--export-labels", tmp_path / "labels.csv", "--json")
    assert (done.code, done.json["n_judged"]) == (0, 1)
    lines = (tmp_path / "labels.csv").read_text().splitlines()
    assert lines[0] == "serial,label,reviewer,note,time,imported_by"
    assert [line.split(",")[:3] for line in lines[1:]] == [[item["name"], "anomaly", who] for who in ("ann", "bob")]


@pytest.mark.parametrize("at_a_step", [True, False])
def test_an_interruption_that_gets_lost_in_an_import_counts_later(at_a_step):
    with pytest.raises(KeyboardInterrupt), GracefulStop() as stop:
        with suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
        if at_a_step:
            stop.on_start(None)
            stop.on_step(SimpleNamespace(processes=SimpleNamespace(is_first=True)))
            pytest.fail("the training went on")


@pytest.mark.extra
def test_a_first_training_that_is_interrupted_leaves_nothing_and_can_be_begun_again(parts, tmp_path):
    """At moments from the first import to the middle of the training; one that is lost in an import counts later."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    options = ("--ignore", "verdict", "--id-column", "serial", "--members", "1", "--port", str(port))
    before = {path.name for path in tmp_path.iterdir()}
    ctrl_c, end = signal.SIGINT, signal.SIGTERM
    for seconds, number in ((0.0, ctrl_c), (0.6, ctrl_c), (1.2, end), (4.0, ctrl_c)):
        command = [sys.executable, "-m", "esad", "review", parts, *options, "--set", "n_epochs=1000000"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        while process.poll() is None:  # until it listens: then comes the training
            with closing(socket.socket()) as caller:
                if caller.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.02)
        time.sleep(seconds)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (128 + number, "")
        assert err == "interrupted: no result was written.\n"
        assert {path.name for path in tmp_path.iterdir()} == before
    with Review(parts, *options, "--set", "n_epochs=1") as review:
        assert review.found["n_rows"] == 60
    assert type(load(tmp_path / "parts.esad")).__name__ == "Committee"  # trees can join it


@pytest.mark.extra
def test_a_model_and_data_with_labels(model, parts, esad, tmp_path):
    review = Review(model, parts, "--label-column", "verdict", "--labels", tmp_path / "mine.db")
    with closing(review.enter()) as page:
        state = page.get("/api/state").json()
        known = [page.get("/api/items?rows=7").json()["items"][0]["known"]]
    assert (state["n_anomaly"], state["n_new"], known) == (3, 0, ["anomaly"])
    assert review.end()[0] == 0


def test_labels_come_in(parts, model, esad, tmp_path):
    (tmp_path / "in.csv").write_text("serial,label\nS001,anomaly\nS002,normal\n")
    options = ("--labels", tmp_path / "mine.db", "--reviewer", "eve")
    done = esad("review", model, parts, *options, "--import-labels", tmp_path / "in.csv")
    assert (done.code, done.out) == (0, f"2 new judgements from {tmp_path / 'in.csv'}\n")
    (tmp_path / "his.csv").write_text("serial,label,reviewer\nS001,normal,eve\n")
    others = (*options[:2], "--reviewer", "bob", "--import-labels", tmp_path / "his.csv")
    done = esad("review", model, parts, *others)
    assert done.err == "note: 1 line left out: the reviewers have judged otherwise here.\n"
    assert esad("review", model, parts, *others, "--json").json["n_left"] == 1
    done = esad("review", model, parts, *options, "--export-labels", tmp_path / "out.csv")
    assert (done.code, done.out) == (0, f"2 judged rows: {tmp_path / 'out.csv'}\n")
    assert (tmp_path / "out.csv").read_text().splitlines()[2].startswith("S002,normal,eve,,")


def test_labels_come_in_by_a_reviewer_whose_name_only_an_older_journal_may_have(parts, model, esad, tmp_path):
    name, (journal, given) = "Ann \u2764\ufe0f", (tmp_path / "mine.db", tmp_path / "in.csv")
    given.write_text("serial,label\nS001,anomaly\n")
    importing = ("review", model, parts, "--labels", journal, "--import-labels", given)
    done = esad(*importing, "--reviewer", name)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "without invisible ones" in done.err
    with JudgementStore.of(journal, ReviewDataset.from_file(parts, load(model))) as store:
        store.judge("r", 2, name, "normal")
    assert esad(*importing, "--reviewer", name, "--json").json["n_new"] == 1
    assert "invisible" in esad(*importing, "--reviewer", "Bob \u2764\ufe0f").err


def in_parts(kit, folder):
    """The rows of parts.csv in three files."""
    folder.mkdir()
    rows = kit.rows()
    for number, part in enumerate((rows[:20], rows[20:40], rows[40:])):
        kit.csv(folder / f"{number}.csv", kit.header, part)
    return folder


@pytest.mark.parametrize("given", ["day", "day/*", "*.??*"], ids=["folder", "pattern", "pattern here"])
def test_tables_in_several_files_are_judged_as_one(kit, model, parts, esad, tmp_path, monkeypatch, given):
    folder = in_parts(kit, tmp_path / "day")
    monkeypatch.chdir(folder if given.startswith("*") else tmp_path)
    (tmp_path / "in.csv").write_text("serial,label\nS001,anomaly\nS059,normal\n")
    done = esad("review", model, given, "--import-labels", tmp_path / "in.csv", "--json")
    assert (done.code, done.err) == (0, "")
    assert (done.json["n_new"], done.json["labels"]) == (2, "day.labels.db")
    whole, split = (ReviewDataset.from_file(path, load(model)) for path in (parts, folder))
    assert split.names == whole.names
    assert (load(model).anomaly_score(split.X) == load(model).anomaly_score(whole.X)).all()
    assert [dict(split.cells_of(row)) for row in (0, 59)] == [dict(whole.cells_of(row)) for row in (0, 59)]


def test_a_column_of_different_text_says_which_row_is_meant(parts, esad, tmp_path):
    model = tmp_path / "m.esad"
    assert esad("fit", parts, "--ignore", "verdict", "--method", "iforest", "--out", model, "--quiet").code == 0
    dataset = ReviewDataset.from_file(parts, load(model), ignore=["verdict"])
    assert dataset.names is None  # nobody said that serial names the rows
    assert [dataset.name_of(row) for row in (0, 59)] == ["S000", "S059"]


def test_a_first_model_learns_from_several_files_as_from_one(kit, parts, tmp_path):
    paths = (parts, in_parts(kit, tmp_path / "day"))
    one, several = (TrainingData.from_file(path, label_column="verdict", id_column="serial") for path in paths)
    assert several.X.cast(one.X.schema) == one.X
    assert (several.y == one.y).all()


def test_pictures_that_cannot_be_read_are_left_out_when_asked(kit, esad, tmp_path):
    pytest.importorskip("PIL.Image")
    folder = kit.pictures(tmp_path / "pictures", {"": 8})
    model = tmp_path / "m.esad"
    fit = ("--method", "autoencoder", "--set", "n_epochs=1", "--quiet")
    assert esad("fit", folder, *fit, "--out", model).code == 0
    broken = sorted(folder.glob("*.png"))[0]
    broken.write_bytes(broken.read_bytes()[:40])
    (tmp_path / "in.csv").write_text("row,label\n0,anomaly\n")
    asked = ("review", model, folder, "--import-labels", tmp_path / "in.csv")
    done = esad(*asked)
    assert (done.code, done.err.count("\n")) == (2, 1)
    done = esad(*asked, "--skip-broken")
    assert done.code == 0, done.err
    assert f"1 picture that cannot be read is left out: {broken.name}" in done.err.replace("'", "")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("no.csv",), "no such file"),
        (("{model}", "no-*.csv"), "no file matches"),
        (("a", "b", "c"), "Got 3 paths"),
        (("parts.esad",), "is a model"),
        (("{model}", "parts.csv", "--out", "m.esad"), "--out"),
        (("{model}", "parts.csv", "--port", "99999"), "port"),
        (("{model}", "parts.csv", "--host", "no.such.host.invalid"), "no such address"),
        (("{model}", "parts.csv", "--reviewer", ""), "reviewer"),
        (("{model}", "other.csv"), "lacks the columns"),
        (("{model}", "parts.csv", "--labels", "other.csv"), "damaged or something else"),
        (("{model}", "parts.csv", "--labels", "no/l.db"), "cannot be opened"),
        (("{model}", "parts.csv", "--labels", "parts.csv"), "being read"),
        (("{model}", "parts.csv", "--export-labels", "l.txt"), ".csv"),
        (("{model}", "parts.csv", "--export-labels", "l.csv"), "There are no labels"),
        (("{model}", "parts.csv", "--import-labels", "no.csv"), "no.csv"),
        (("{model}", "parts.csv", "--import-labels", "other.csv"), "needs the columns"),
        (("parts.csv", "--method", "nope"), "nope"),
        (("parts.csv", "--out", "x.csv"), "no name for a model"),
        (("parts.csv", "--out", "x"), "Let it end in .esad"),
        (("parts.csv", "-l", "verdikt"), "Did you mean 'verdict'?"),
        ((), "DATA"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(esad, model, parts, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n" + "1,2\n" * 100)
    done = esad("review", *(part.format(model=model) for part in options))
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1, done.err
    assert words in done.err
    left = {path.name for path in tmp_path.iterdir()} - {"parts.csv.labels.db", "parts.csv.labels.db-wal"}
    assert left == {"parts.csv", "other.csv"}


def test_a_port_in_use_is_refused(esad, model, parts):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = esad("review", model, parts, "--port", taken.getsockname()[1])
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "another program is using it" in done.err


@pytest.mark.extra
def test_the_page_of_a_file_of_labels_is_always_at_one_port_if_that_is_free(model, parts, tmp_path):
    """Browsers keep what is not saved by the address of the page."""
    urls = []
    for _ in range(2):
        with Review(model, parts, cwd=tmp_path) as review:
            urls.append(review.links[0].partition("/?")[0])
    assert urls[0] == urls[1]
    with Review(model, "parts.csv", "--labels", "other.db", cwd=tmp_path) as other:
        assert not other.links[0].startswith(f"{urls[0]}/")
    port = int(urls[0].rpartition(":")[2])
    assert 20_000 <= port < 32_000
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        review = Review(model, "parts.csv", cwd=tmp_path)
        assert not review.links[0].startswith(f"{urls[0]}/")
        assert f"note: port {port}" in review.end()[2]


@pytest.mark.extra
def test_labels_in_use_and_labels_of_other_data_are_refused(esad, model, parts, kit):
    review = Review(model, parts)
    done = esad("review", model, parts)
    assert done.code == 2
    assert "in use by another esad review" in done.err
    assert done.err.count("\n") == 1
    review.end()
    kit.csv(parts, kit.header, kit.rows(seed=1))
    done = esad("review", model, parts)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "belong to other data" in done.err


def test_without_the_extra_it_says_what_to_install(esad, model, parts, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("esad.web") or name.startswith("esad.review.app")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    done = esad("review", model, parts)
    assert done.code == 2
    assert "pip install '.[web]'" in done.err


@pytest.mark.extra
def test_pictures_are_judged_too(kit, tmp_path):
    pytest.importorskip("PIL.Image")
    folder = kit.pictures(tmp_path / "pictures", {"a": 9, "b": 3})
    options = ("--method", "autoencoder", "--set", "n_epochs=1", "--anomaly-value", "b", "--normal-value", "a")
    review = Review(folder, *options)
    with closing(review.enter()) as page:
        item = page.get("/api/next?n=1").json()["items"]
        state = page.get("/api/state").json()
    assert review.end()[0] == 0
    assert item == []  # the folders label every picture
    assert (state["noun"], state["n_anomaly"], state["n_normal"]) == ("picture", 3, 9)
    assert (tmp_path / "pictures.esad").exists()


class Tumours:
    """What `esad demo` leaves, a model of its training file, and a person who knows the truth."""

    def __init__(self, esad, folder, *settings):
        self.esad = esad
        data = registry.load_data_set("breast_cancer")
        scenario = scenarios.table(data, labelled_ratio=0.05, pollution_ratio=0.05, seed=0)
        self.train, self.test, self.model = folder / "train.csv", folder / "test.csv", folder / "tumours.esad"
        self.truth, self.y = scenario.truth_test, scenario.y_train
        saving.write_table(self.train, scenario.X_train, names=data.columns, y=scenario.y_train)
        saving.write_table(self.test, scenario.X_test, names=data.columns, truth=scenario.truth_test)
        done = esad("fit", self.train, "--label-column", "label", "--out", self.model, "--quiet", *settings)
        assert done.code == 0, done.err

    def judge(self, client, n, truth=None):
        truth = self.truth if truth is None else truth
        items = client.get(f"/api/next?n={n}").json()["items"]
        for item in items:
            verdict = "anomaly" if truth[item["row"]] else "normal"
            said = {"request": str(item["row"]), "row": item["row"], "verdict": verdict}
            assert client.post("/api/judgements", json=said).status_code == 200
        return items

    def refit(self, client, wish="keep", **params):
        assert client.post("/api/refit", params=params).status_code == 200
        end = time.monotonic() + 120
        while (found := client.get("/api/state").json()["refit"])["status"] == "training":
            assert time.monotonic() < end
            time.sleep(0.05)
        assert found["status"] == "ready", found
        assert client.post(f"/api/refit/{wish}").status_code == 200
        return found

    def confusion(self):
        return self.esad("evaluate", self.model, self.test, "--truth-column", "truth", "--json").json["confusion"]


@pytest.mark.parametrize("settings", [("--method", "iforest"), pytest.param((), marks=pytest.mark.extra)])
def test_a_refit_keeps_what_the_model_learned_from(esad, tmp_path, settings):
    tumours = Tumours(esad, tmp_path, *settings)
    before = tumours.confusion()
    with Review(tumours.model, tumours.test) as review, closing(review.enter()) as ann:
        training = ann.get("/api/state").json()["training"]
        assert training == {"n_rows": len(tumours.y), "n_labelled": 11, "lost": ""}
        tumours.judge(ann, 15)
        found = tumours.refit(ann)
    assert (found["n_then"], found["n_labelled"], found["n_rows"]) == (11, 26, len(tumours.y) + 15)
    after = tumours.confusion()
    assert after["recall"] > before["recall"] / 2, (before, after)  # from 90 to 8 %, when the refit forgot the training
    assert after["false_alarm_rate"] < 0.2, (before, after)
    shown = esad("inspect", tumours.model, "--json").json
    assert shown["notes"]["training_data"] == [str(tumours.train), str(tumours.test)]
    assert load(tumours.model).label_counts_.n_unlabelled == int((tumours.y == 0).sum())
    other = tmp_path / "other.csv"  # the judged rows of the first review are kept in the next one
    other.write_text("\n".join(tumours.test.read_text().splitlines()[:40]) + "\n")
    with opened(tumours, other) as ann:
        training = ann.get("/api/state").json()["training"]
        assert training == {"n_rows": len(tumours.y) + 15, "n_labelled": 26, "lost": ""}


def test_only_a_name_that_the_journal_knows_may_hold_what_is_not_seen():
    name = "Ann \u2764\ufe0f"
    assert _list_reviewers([name, "bob"], [name]) == [name, "bob"]
    with pytest.raises(InputError, match="without invisible ones"):
        _list_reviewers([name], ["bob"])


FAST = ("--method", "iforest")


@contextmanager
def opened(tumours, data, judgements=None, **options):
    """The page of a review as the command makes it, in this process."""
    session = ReviewSession.open(data, tumours.model, judgements or f"{data}.labels.db", **options)
    access = Access()
    with closing(session), TestClient(guard_app(review_app(session, access)), base_url="http://127.0.0.1") as client:
        assert client.get("/", params={"token": access.new_link("ann")}).status_code == 200
        yield client


def test_what_cannot_be_kept_is_said_and_asked_about(esad, tmp_path):
    tumours = Tumours(esad, tmp_path, *FAST)
    moved = tumours.train.rename(tmp_path / "elsewhere.csv")
    for words in ("is not there", "was changed since"):
        with opened(tumours, tumours.test) as ann:
            lost = ann.get("/api/state").json()["training"]["lost"]
            assert "236 rows with 11 labels" in lost
            assert words in lost
        tumours.train.write_text("\n".join(moved.read_text().splitlines()[:50]) + "\n")
    with opened(tumours, tumours.test) as ann:
        tumours.judge(ann, 3)
        refused = ann.post("/api/refit")
        assert (refused.status_code, "--training" in refused.json()["error"]["message"]) == (422, True)
        found = tumours.refit(ann, "drop", forget=True)
        assert (found["n_then"], found["n_labelled"], found["n_rows"]) == (11, 3, len(tumours.truth))
    with opened(tumours, tumours.test, training=moved) as ann:
        assert ann.get("/api/state").json()["training"] == {"n_rows": 236, "n_labelled": 11, "lost": ""}
        assert tumours.refit(ann)["n_labelled"] == 14


def test_labels_in_another_file_of_judgements_are_not_forgotten_unasked(esad, tmp_path):
    tumours = Tumours(esad, tmp_path, *FAST)
    for data, n_known in ((tumours.train, 11), (tumours.test, 14)):
        with opened(tumours, data) as ann:
            tumours.judge(ann, 3, truth=np.zeros(250))
            assert tumours.refit(ann)["n_labelled"] == n_known + 3
        with opened(tumours, data) as ann:
            assert ann.get("/api/state").json()["training"]["lost"] == ""
        with opened(tumours, data, judgements=tmp_path / "others.db") as ann:
            refused = ann.post("/api/refit").text
            assert f"{n_known + 3} labels, which are not all here: 3 labels neither" in refused
        (tmp_path / "others.db").unlink()


def test_unlabelled_rows_of_the_first_data_stay_whatever_is_reviewed(esad, tmp_path):
    tumours = Tumours(esad, tmp_path, *FAST)
    with opened(tumours, tumours.train) as ann:
        tumours.judge(ann, 3, truth=tumours.y)
        assert tumours.refit(ann)["n_rows"] == 236
    with opened(tumours, tumours.test) as ann:
        assert ann.get("/api/state").json()["training"] == {"n_rows": 236, "n_labelled": 14, "lost": ""}
        tumours.judge(ann, 3)
        assert tumours.refit(ann)["n_rows"] == 239
    with opened(tumours, tumours.train) as ann:
        assert ann.get("/api/state").json()["training"] == {"n_rows": 3, "n_labelled": 3, "lost": ""}
        found = tumours.refit(ann, "drop")
    assert (found["n_rows"], found["n_labelled"]) == (239, 17)


def test_the_data_that_the_model_learned_from_needs_nothing_else(esad, tmp_path):
    tumours = Tumours(esad, tmp_path, *FAST)
    with opened(tumours, tumours.train) as ann:
        assert ann.get("/api/state").json()["training"] == {"n_rows": 0, "n_labelled": 0, "lost": ""}
    detector = load(tumours.model)
    detector.notes_ = {"label_column": "label"}  # as an older file
    detector.save(tumours.model)
    with opened(tumours, tumours.train) as ann:
        assert ann.get("/api/state").json()["training"]["lost"] == ""
    with opened(tumours, tumours.test) as ann:
        assert "236 rows" in ann.get("/api/state").json()["training"]["lost"]
