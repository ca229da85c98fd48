"""The same rows get the same scores however they are sent; JSON, arrays and types that do not fit are refused."""

import csv
import io
import json
import struct

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import as_parquet, npy, refused, table

import esad
from esad.cli.app import run
from esad.serve import bodies
from esad.serve.metrics import Metrics
from esad.serve.model import ModelFile

KINDS = {"size": float, "checked": lambda text: text == "true"}


def typed(name, text):
    return None if text == "" else KINDS.get(name, str)(text)


def as_objects(text):
    return [{name: typed(name, cell) for name, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def in_every_form(text):
    rows = as_objects(text)
    shuffled = ["made", "serial", "colour", "checked", "size"]
    lists = [[row[name] for name in shuffled] for row in rows]
    arrow = pa_csv.read_csv(io.BytesIO(text.encode()), convert_options=pa_csv.ConvertOptions(strings_can_be_null=True))
    yield bodies.JSON, json.dumps({"rows": rows})
    yield bodies.JSON, json.dumps({"columns": shuffled, "rows": lists})
    yield bodies.CSV, text
    yield bodies.CSV, text.replace(",", ";")
    yield bodies.TSV, text.replace(",", "\t")
    yield bodies.PARQUET, as_parquet(arrow)
    yield bodies.PARQUET, as_parquet(arrow, compression="zstd", row_group_size=7)


@pytest.mark.parametrize("name", ["parts", "forest"])
def test_every_form_gives_the_scores_of_esad_score(request, send, tmp_path, name):
    model, text = request.getfixturevalue(name), table(25, seed=5)
    (tmp_path / "new.csv").write_text(text)
    assert run(["score", str(model), str(tmp_path / "new.csv"), "--out", str(tmp_path / "scores.csv")]) == 0
    expected = list(csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text())))
    for media_type, body in in_every_form(text):
        answer = send(model, media_type, body)
        assert answer.status_code == 200, answer.text
        found = answer.json()
        assert [row["id"] for row in found["rows"]] == [row["serial"] for row in expected]
        assert [row["score"] for row in found["rows"]] == [float(row["score"]) for row in expected]
        assert [row["anomaly"] for row in found["rows"]] == [row["anomaly"] == "true" for row in expected]
        if name == "parts":
            assert [row["p_value"] for row in found["rows"]] == [float(row["p_value"]) for row in expected]
        else:
            assert "p_value" not in found["rows"][0]
        assert found["threshold"] == esad.load(model).threshold_
        assert found["n_flagged"] == sum(row["anomaly"] == "true" for row in expected)
        assert found["model"]["method"] == ("committee" if name == "parts" else "iforest")


CELLS = st.none() | st.floats(allow_nan=False, width=64) | st.integers(-(10**30), 10**30)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6), st.booleans())
def test_json_numbers_mean_what_a_table_of_them_means(numbers, rows, slow):
    served = SERVED.setdefault("numbers", ModelFile(numbers, Metrics()).current)
    given_rows = [list(row) for row in rows]
    if any(cell is not None and abs(cell) == float("inf") for row in rows for cell in row):
        return  # JSON has none
    body = {"rows": [[str(cell) if slow and cell is not None else cell for cell in row] for row in given_rows]}
    read = bodies.read_json(json.dumps(body).encode(), served, 10)
    expected = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows])
    np.testing.assert_array_equal(served.detector.anomaly_score(read.X), served.detector.anomaly_score(expected))


SERVED: dict[str, object] = {}


def test_arrays_of_numbers(send, numbers):
    X = np.random.default_rng(1).normal(size=(5, 3))
    expected = esad.load(numbers).anomaly_score(X).tolist()
    for array in (X, np.asfortranarray(X), X.astype(">f8")):
        answer = send(numbers, bodies.NPY, npy(array))
        assert [row["score"] for row in answer.json()["rows"]] == expected, answer.text
    assert send(numbers, bodies.NPY, npy_header("(True, 3)") + bytes(24)).status_code == 200  # numpy takes it for 1
    answer = send(numbers, bodies.CSV, "a,b,c\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()))
    assert [row["score"] for row in answer.json()["rows"]] == expected


def test_malformed_heads_of_arrays_are_refused(asking, numbers):
    sound = npy(np.zeros((2, 3)))
    rng = np.random.default_rng(0)
    ask = asking(numbers)
    for _ in range(200):
        body = bytearray(sound)
        for place in rng.integers(8, 128, size=2):
            body[place] = int(rng.integers(0, 256))
        answer = ask("POST", "/score", content=bytes(body), headers={"content-type": bodies.NPY})
        assert answer.status_code in (200, 400, 413, 422), (answer.text, bytes(body[:130]))


def npy_header(shape, descr="<f8"):
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"not an array", 400),
        (npy(np.array([[object()]]), allow_pickle=True), 422),
        (npy_header("(10, 3)") + b"cut", 400),
        (npy_header("(10000000000000, 3)"), 413),
        (npy_header("(9, 1000000000000000)"), 400),
        (npy_header("(-5, 3)") + bytes(24), 422),
        (npy_header("(0, 3)"), 422),
        (npy_header("(2, 3)", "<c16") + bytes(96), 422),
        (npy_header("(2, 3)", "<U4") + bytes(96), 422),
        (npy_header("(" * 50 + ")" * 50) + bytes(24), 422),
        (npy(np.zeros((2, 4))), 422),
        (npy(np.zeros(3)), 422),
        (npy(np.zeros((2, 3, 3))), 422),
        (npy(np.zeros((2, 3))) + b"more", 400),
    ],
)
def test_arrays_that_are_refused(send, numbers, body, status):
    assert refused(send(numbers, bodies.NPY, body), status)


AMOUNTS = [("950,10 €", "31/01/2024"), ("1.950,10 €", "13/02/2024"), ("12 €", ""), ("", "01/02/2024")]


def test_amounts_and_dates_in_json_are_read_as_in_the_files_of_the_training(send, tmp_path):
    """As they were written there, and never in another way."""
    lines = [f"{10 + row},{row % 10}0 €;{1 + row % 28:02d}/0{1 + row % 9}/2023" for row in range(40)]
    (tmp_path / "train.csv").write_text("\n".join(["amount;paid", *lines]))
    assert run(["fit", str(tmp_path / "train.csv"), "--method", "iforest", "--out", str(tmp_path / "m.esad")]) == 0
    text = "\n".join(["amount;paid", *(";".join(row) for row in AMOUNTS)])
    of_file = [row["score"] for row in send(tmp_path / "m.esad", bodies.CSV, text).json()["rows"]]
    answer = send(tmp_path / "m.esad", bodies.JSON, json.dumps({"rows": AMOUNTS}))
    assert [row["score"] for row in answer.json()["rows"]] == of_file, answer.text
    mixed = [[950.1, "31/01/2024"], ["1950,10", "13/02/2024"], [12, None], [None, "2024-02-01"]]
    answer = send(tmp_path / "m.esad", bodies.JSON, json.dumps({"rows": mixed[:3]}))
    assert [row["score"] for row in answer.json()["rows"]] == of_file[:3], answer.text
    for wrong in (["950.10 €", None], ["many", None]):
        assert f"Got {wrong[0]!r} in row 0" in refused(
            send(tmp_path / "m.esad", bodies.JSON, json.dumps({"rows": [wrong]})), 422
        )


def one_row(**changes):
    return {"rows": [{"size": 1.0, "colour": "red", "made": "2024-02-29", "checked": True} | changes]}


@pytest.mark.parametrize(
    ("document", "words"),
    [
        ([], "rows"),
        ({}, "rows"),
        ({"rows": {}}, "rows"),
        ({"rows": []}, "no row"),
        ({"rows": [1]}, "objects"),
        ({"rows": [{}, []]}, "one sort"),
        ({"rows": [{}]}, "lacks the column 'size'"),
        (one_row() | {"extra": 1}, "'extra'"),
        (one_row() | {"columns": ["a"]}, "lists"),
        ({"columns": ["a", "a"], "rows": [[1, 2]]}, "different"),
        ({"columns": [1], "rows": [[1]]}, "names"),
        ({"rows": [[1, 2]]}, "4 values"),
        ({"columns": ["size"], "rows": [[1]]}, "missing: 'colour'"),
        (one_row(size=[1]), "list or object"),
        (one_row(serial={"a": 1}), "list or object"),
        (one_row(size="wide"), "'wide'"),
        (one_row(made="yesterday"), "'yesterday'"),
        (one_row(checked="perhaps"), "'perhaps'"),
    ],
)
def test_json_that_does_not_fit(send, forest, document, words):
    assert words in refused(send(forest, bodies.JSON, json.dumps(document)), 422)


@pytest.mark.parametrize("piece", [b"[],", b"{},", b'{"a":[]},'])
def test_json_of_nothing_but_brackets_is_not_even_read(send, forest, piece, monkeypatch):
    monkeypatch.setattr(bodies, "from_json", None)
    assert "lists and objects" in refused(send(forest, bodies.JSON, b'{"rows":[' + piece * 200_000 + b"1]}"), 413)


def test_brackets_in_texts_are_fine(send, forest):
    body = json.dumps({"rows": [one_row(colour="[{(an error)}]")["rows"][0]] * 500})
    assert send(forest, bodies.JSON, body, max_rows=500).json()["n_rows"] == 500


@pytest.mark.parametrize("value", [1e308, -1e308, 10**400, 0, None, "", "7", True, 1e-320])
def test_json_numbers_at_the_edge(send, forest, value):
    body = json.dumps(one_row(size=value))
    assert np.isfinite(send(forest, bodies.JSON, body).json()["rows"][0]["score"])


@pytest.mark.parametrize(
    "body",
    [
        b'{"rows": [{"size": NaN}]}',
        b'{"rows": [{"size": Infinity}]}',
        b'{"rows": [[-Infinity]]}',
        b"[" * 100_000,
        b'{"rows": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        b'{"rows": [' + b'{"a":' * 50_000,
        b"\xff\xfe",
        b'{"rows": ["\\ud800"]}',
        b'{"rows": [',
        b"",
        b"size,colour\n1,red\n",
    ],
)
def test_what_is_no_json(send, forest, body):
    assert refused(send(forest, bodies.JSON, body), 400)


@pytest.mark.parametrize("form", ["json", "csv", "parquet", "npy"])
def test_rows_have_a_limit(send, numbers, form):
    def body(n_rows):
        X = np.ones((n_rows, 3))
        if form == "json":
            return bodies.JSON, json.dumps({"rows": X.tolist()})
        if form == "csv":
            return bodies.CSV, "a,b,c\n" + "1,1,1\n" * n_rows
        if form == "parquet":
            return bodies.PARQUET, as_parquet(pa.table({name: X[:, 0] for name in "abc"}))
        return bodies.NPY, npy(X)

    assert send(numbers, *body(7), max_rows=7).status_code == 200
    assert "7 rows" in refused(send(numbers, *body(8), max_rows=7), 413)


@pytest.mark.parametrize(
    "media_type", ["", "text/plain", "application/octet-stream", "image/png", "application/xml", "*/*"]
)
def test_other_types_are_refused(send, forest, media_type):
    assert "application/json" in refused(send(forest, media_type, b"{}"), 415)


def test_other_character_sets_are_refused(send, forest):
    assert refused(send(forest, "text/csv; charset=utf-16", b"x"), 415)
    body = json.dumps(one_row())
    assert send(forest, 'Application/JSON; Charset="UTF-8"', body).status_code == 200


@pytest.mark.parametrize("media_type", ["application/json", "text/csv"])
def test_a_model_of_pictures_takes_no_rows(send, pictures, media_type):
    assert "image/png" in refused(send(pictures, media_type, b"{}"), 415)
