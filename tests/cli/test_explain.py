"""`esad explain`: reasons for people, for programs and for files; pictures as heat maps."""

import csv
import json

import pytest
from pyarrow import parquet

from esad.cli.app import run
from esad.detectors.model_file import load
from esad.io import files


@pytest.fixture(scope="module")
def keeping(tmp_path_factory, kit):
    """A model that keeps its labelled rows."""
    folder = tmp_path_factory.mktemp("keeping")
    data = kit.csv(folder / "parts.csv", kit.header, kit.rows())
    roles = ("-l", "verdict", "-i", "serial", "--keep-cases", "--quiet")
    assert run(["fit", str(data), *roles, "--out", str(folder / "parts.esad"), *kit.tiny]) == 0
    return folder / "parts.esad"


def test_it_shows_columns_values_and_nearest_cases(esad, keeping, parts):
    done = esad("explain", keeping, parts, "--top", 2, "--columns", 3)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("serial S0") == 2
    for words in (
        "share",
        "observed",
        "expected",
        "(1 other column)",
        "(baseline)",
        "nearest labelled: row ",
    ):
        assert words in done.out
    assert "(anomaly, distance" in done.out


def test_people_are_shown_the_beginning_of_a_long_text_and_programs_all_of_it(esad, tmp_path):
    stories = [f"{'once upon a time ' * 30}{row % 7}" for row in range(60)]
    rows = "".join(f"{row * 7 % 13},{story}\n" for row, story in enumerate(stories))
    (tmp_path / "t.csv").write_text(f"size,story\n{rows}")
    data, model, scores = tmp_path / "t.csv", tmp_path / "m.esad", tmp_path / "s.csv"
    assert esad("fit", data, "--method", "iforest", "--set", "contamination=0.2", "--out", model).code == 0
    shown = esad("explain", model, data, "--top", 1).out
    assert "once upon a time once" in shown and shown.count("once") < 12
    (row,) = esad("explain", model, data, "--top", 1, "--json").json["rows"]
    assert stories[0][:-1] in json.dumps(row)
    assert esad("score", model, data, "--with-data", "--out", scores).code == 0
    with scores.open(newline="") as file:
        reasons = [row["reasons"] for row in csv.DictReader(file) if "story" in row["reasons"]]
    assert reasons and max(map(len, reasons)) < 300


def test_json_agrees_with_the_library(esad, keeping, parts):
    found = esad("explain", keeping, parts, "--top", 4, "--json").json
    detector = load(keeping)
    table = files.read_table(parts)
    scores = detector.anomaly_score(table.select(list(detector.feature_names_in_)))
    order = (-scores).argsort(kind="stable")[:4]
    assert [row["serial"] for row in found["rows"]] == [table["serial"][int(row)].as_py() for row in order]
    assert [row["score"] for row in found["rows"]] == pytest.approx(scores[order].tolist(), rel=1e-6)
    for row in found["rows"]:
        added = sum(term["base"] for term in row["terms"].values()) + sum(one["share"] for one in row["columns"])
        assert added == pytest.approx(row["score"], rel=1e-3, abs=1e-3)
        assert len(row["cases"]) == 3


@pytest.mark.parametrize("suffix", ["csv", "parquet", "json"])
def test_reasons_go_to_a_file(esad, keeping, parts, tmp_path, suffix):
    out = tmp_path / f"reasons.{suffix}"
    done = esad("explain", keeping, parts, "--top", 2, "--out", out)
    assert (done.code, done.err) == (0, "")
    assert f"Reasons: {out}" in done.out
    if suffix == "json":
        assert len(json.loads(out.read_text())) == 2
        return
    if suffix == "csv":
        with out.open(newline="") as file:
            lines = list(csv.DictReader(file))
    else:
        lines = parquet.read_table(out).to_pylist()
    assert len(lines) == 8  # two rows, four columns
    assert {line["column"] for line in lines} == {"size", "colour", "made", "checked"}
    assert set(lines[0]) >= {"serial", "score", "rank", "column", "share", "observed", "expected"}


def test_cases_may_come_from_a_file_and_go_by_their_ids(esad, model, keeping, parts):
    lonely = esad("explain", model, parts, "--top", 1)
    assert "nearest" not in lonely.out.partition("The model keeps no labelled cases.")[0]
    assert "--cases" in lonely.out
    found = esad("explain", model, parts, "--top", 1, "--cases", parts, "--json").json["rows"][0]["cases"]
    kept = esad("explain", keeping, parts, "--top", 1, "--json").json["rows"][0]["cases"]
    assert {case["id"] for case in found} == {"S007", "S023", "S041"}
    assert [case["row"] for case in found] == [case["row"] for case in kept]
    assert "nearest labelled: S0" in esad("explain", model, parts, "--top", 1, "--cases", parts).out


def test_heat_maps_go_to_a_new_folder(esad, kit, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    folder = kit.pictures(tmp_path / "p", {"anomaly": 2, "unlabelled": 12})
    fit = ("fit", folder, "--out", tmp_path / "m.esad", "--quiet", "--method", "autoencoder", "--set", "n_epochs=1")
    assert esad(*fit, "--keep-cases").code == 0
    done = esad("explain", tmp_path / "m.esad", folder, "--top", 3, "--out", tmp_path / "heat")
    assert (done.code, done.err) == (0, "")
    assert "hottest at x" in done.out
    written = sorted(path.name for path in (tmp_path / "heat").iterdir())
    assert [name[:4] for name in written] == ["001-", "002-", "003-"]
    with pillow.open(tmp_path / "heat" / written[0]) as drawn:
        assert drawn.size[0] > 3 * 16
    again = esad("explain", tmp_path / "m.esad", folder, "--out", tmp_path / "heat")
    assert (again.code, again.out) == (2, "")
    found = esad("explain", tmp_path / "m.esad", folder, "--top", 1, "--cases", folder, "--json").json
    assert found["rows"][0]["cases"][0]["id"].startswith("anomaly/")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--out", "r.txt"), "'r.txt'"),
        (("--out", "no/r.csv"), "does not exist"),
        (("--out", "parts.csv"), "file being read"),
        (("--cases", "none.csv"), "none.csv"),
        (("--cases", "empty"), "trained on a table"),
        (("--cases", "parts.csv", "--label-column", "verdikt"), "Did you mean 'verdict'?"),
        (("--cases", "parts.csv", "--label-column", "colour"), "--anomaly-value"),
        (("--label-column", "verdict"), "about --cases FILE"),
        (("--cases", "m.esad"), "is a model"),
        (("--id-column", "seriel"), "Did you mean 'serial'?"),
        (("--top", "0"), "--top"),
        (("--columns", "none"), "--columns"),
    ],
)
def test_what_cannot_be_is_refused_with_one_line(esad, model, parts, tmp_path, monkeypatch, options, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.esad").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    done = esad("explain", model, "parts.csv", *options)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: ")
    assert done.err.count("\n") == 1
    assert words in done.err
    assert sorted(tmp_path.iterdir()) == before
