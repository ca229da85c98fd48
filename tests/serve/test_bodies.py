"""The same rows get the same scores however they are sent, and what is not to be read is refused in time."""

import csv
import io
import json
import struct
import time
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from serving import npy, refused, table

import esad
from esad.cli.app import run
from esad.serve import bodies
from esad.serve.metrics import Metrics
from esad.serve.model import Models

KINDS = {"size": float, "checked": lambda text: text == "true"}


def typed(name, text):
    return None if text == "" else KINDS.get(name, str)(text)


def as_objects(text):
    return [{name: typed(name, cell) for name, cell in row.items()} for row in csv.DictReader(io.StringIO(text))]


def as_parquet(content, **options):
    sink = io.BytesIO()
    pq.write_table(content, sink, **options)
    return sink.getvalue()


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
        assert found["model"]["method"] == ("esad" if name == "parts" else "iforest")


CELLS = st.none() | st.floats(allow_nan=False, width=64) | st.integers(-(10**30), 10**30)


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), min_size=1, max_size=6), st.booleans())
def test_json_numbers_mean_what_a_table_of_them_means(numbers, rows, slow):
    served = SERVED.setdefault("numbers", Models(numbers, Metrics()).current)
    given_rows = [list(row) for row in rows]
    if any(cell is not None and abs(cell) == float("inf") for row in rows for cell in row):
        return  # JSON has none
    body = {"rows": [[str(cell) if slow and cell is not None else cell for cell in row] for row in given_rows]}
    read = bodies.read(bodies.JSON, json.dumps(body).encode(), served, max_rows=10)
    expected = np.array([[np.nan if cell is None else float(cell) for cell in row] for row in rows])
    np.testing.assert_array_equal(served.detector.anomaly_score(read.X), served.detector.anomaly_score(expected))


SERVED: dict[str, object] = {}


def test_arrays_of_numbers(send, numbers):
    X = np.random.default_rng(1).normal(size=(5, 3))
    expected = esad.load(numbers).anomaly_score(X).tolist()
    for array in (X, np.asfortranarray(X), X.astype(">f8")):
        answer = send(numbers, bodies.NPY, npy(array))
        assert [row["score"] for row in answer.json()["rows"]] == expected, answer.text
    answer = send(numbers, bodies.CSV, "a,b,c\n" + "\n".join(",".join(map(repr, row)) for row in X.tolist()))
    assert [row["score"] for row in answer.json()["rows"]] == expected


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
    refused(send(numbers, bodies.NPY, body), status)


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
    refused(send(forest, bodies.JSON, body), 400)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"\n\n", "empty"),
        (b"size\n", "lacks the columns 'colour'"),
        (b"size,color,made,checked\n1,2,3,4\n", "Did you mean 'color'?"),
        (b"size,colour,made,checked\n", "no rows"),
        (b"size,colour,made,checked\nwide,red,2024-02-29,true\n", "no number"),
        (b"size,colour,made,checked\n1,red\n", "line 2"),
        (b"size,colour,made,checked" + b",x" * 500 + b"\n1\n", "doubled"),
        (b"size,size,made,checked\n1,1,1,1\n", "doubled"),
        (b'size,colour,made,checked\n1,"red,2024-02-29,true\n', "the body"),
        ("size,colour,made,checked\n1,gr\u00fcn,2024-02-29,true\n".encode("latin-1"), "UTF-8"),
        (bytes(range(256)), "the body"),
    ],
)
def test_csv_that_is_refused(send, forest, body, words):
    message = refused(send(forest, bodies.CSV, body), 422)
    assert words in message
    assert "esad-" not in message  # no name of a temporary file


def test_a_header_of_commas_is_refused_soon(send, forest):
    began = time.monotonic()
    refused(send(forest, bodies.CSV, b"," * 4_000_000), 413)
    wide = ",".join(map(str, range(200_000))).encode() + b"\n1\n"
    for before in (b"", b"sep=,\n", b"\xef\xbb\xbfsep=,\r\n"):
        refused(send(forest, bodies.CSV, before + wide), 413)
    refused(send(forest, bodies.PARQUET, as_parquet(pa.table({str(name): [1] for name in range(2000)}))), 413)
    assert time.monotonic() - began < 5


def long_text_twice(n_bytes, n_rows):
    columns = {"size": [1.0] * n_rows, "colour": ["x" * n_bytes] * n_rows, "made": ["2024-02-29"] * n_rows}
    return pa.table(columns | {"checked": [True] * n_rows})


def test_parquet_that_would_become_too_much_is_refused(send, forest, monkeypatch):
    many = pa.table({name: pa.array(np.zeros(1_000_000)) for name in ("size", "made", "colour", "checked")})
    body = as_parquet(many, compression="zstd")
    assert len(body) < 100_000
    refused(send(forest, bodies.PARQUET, body), 413)
    monkeypatch.setattr(bodies, "_MAX_EXPANDED", 2**20)
    for encoded in (True, False):  # one long text, kept once and meant a thousand times; or squeezed
        body = as_parquet(long_text_twice(10_000, 1000), compression="zstd", use_dictionary=encoded)
        assert len(body) < 200_000
        assert "Unpacked" in refused(send(forest, bodies.PARQUET, body), 413)
    typed_so = long_text_twice(10_000, 1000)
    for kind in (pa.string(), pa.large_string(), pa.binary()):
        colours = typed_so["colour"].cast(kind).combine_chunks().dictionary_encode()
        body = as_parquet(typed_so.set_column(1, "colour", colours))
        assert "Unpacked" in refused(send(forest, bodies.PARQUET, body), 413)


@pytest.mark.parametrize(
    "body",
    [
        b"PAR1",
        b"PAR1" + bytes(100) + b"PAR1",
        b"PAR1" + struct.pack("<i", -5) + b"PAR1",
        as_parquet(long_text_twice(5, 5))[:-20],
        bytes(1000),
    ],
)
def test_parquet_that_is_damaged(send, forest, body):
    assert "esad-" not in refused(send(forest, bodies.PARQUET, body), 422)


def test_parquet_with_flipped_bytes_is_an_answer_or_a_refusal(send, forest):
    sound = as_parquet(long_text_twice(5, 20))
    rng = np.random.default_rng(0)
    for _ in range(30):
        body = bytearray(sound)
        for place in rng.integers(0, len(body), size=3):
            body[place] ^= int(rng.integers(1, 256))
        answer = send(forest, bodies.PARQUET, bytes(body))
        assert answer.status_code in (200, 413, 422), answer.text


def test_parquet_with_nested_columns(send, forest):
    body = as_parquet(long_text_twice(5, 2).set_column(0, "size", pa.array([[1.0], [2.0]])))
    assert "size" in refused(send(forest, bodies.PARQUET, body), 422)


ODD = [
    pa.array([1, None], pa.time64("ns")),
    pa.array([2**62, None], pa.timestamp("us", "UTC")),
    pa.array([2**62, None], pa.duration("s")),
    pa.array([2**31 - 1, None], pa.date32()),
    pa.array([b"\xff\x00", None]),
    pa.array([float("nan"), float("inf")]),
    pa.array([{"a": 1}, None]),
    pa.array(["a", None]).dictionary_encode(),
    pa.array([2**64 - 1, None], pa.uint64()),
    pa.nulls(2),
]


@pytest.mark.parametrize("column", ["serial", "size", "colour", "made", "checked"])
@pytest.mark.parametrize("values", ODD, ids=lambda values: str(values.type))
def test_parquet_of_odd_types_is_an_answer_or_a_refusal(send, forest, column, values):
    whole = long_text_twice(5, 2).append_column("serial", pa.array(["a", "b"]))
    body = as_parquet(whole.set_column(whole.column_names.index(column), column, values))
    answer = send(forest, bodies.PARQUET, body)
    assert answer.status_code in (200, 422), answer.text


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


# ---------------------------------------------------------------------- pictures


def picture(form="PNG", size=(12, 10), mode="L", colour=50):
    image = pytest.importorskip("PIL.Image")
    sink = io.BytesIO()
    image.new(mode, size, colour).save(sink, form)
    return sink.getvalue()


def test_pictures_get_the_scores_of_esad_score(send, asking, pictures, tmp_path):
    image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(3)
    (tmp_path / "new").mkdir()
    contents = {}
    for name in ("a.png", "b.png", "c.jpg"):
        path = tmp_path / "new" / name
        image.fromarray(rng.integers(0, 255, size=(10, 12), dtype=np.uint8)).save(path)
        contents[name] = path.read_bytes()
    assert run(["score", str(pictures), str(tmp_path / "new"), "--out", str(tmp_path / "scores.csv")]) == 0
    expected = {
        row["file"]: float(row["score"]) for row in csv.DictReader(io.StringIO((tmp_path / "scores.csv").read_text()))
    }
    files = [("files", (name, content)) for name, content in contents.items()]
    found = asking(pictures)("POST", "/score", files=files).json()
    assert {row["id"]: row["score"] for row in found["rows"]} == expected
    for name, content in contents.items():
        media_type = bodies.PNG if name.endswith("png") else bodies.JPEG
        (row,) = send(pictures, media_type, content).json()["rows"]
        assert row["score"] == expected[name]
    pixels = np.stack([np.asarray(image.open(tmp_path / "new" / name)) for name in ("a.png", "b.png")])
    found = send(pictures, bodies.NPY, npy(pixels)).json()
    assert [row["score"] for row in found["rows"]] == [expected["a.png"], expected["b.png"]]


def chunk(kind, content):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def bomb(width, height):
    """A PNG that claims a size; its pixels are zeros without end."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    pixels = zlib.compress(bytes(10_000_000), 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"no picture", "the picture"),
        (picture(size=(12, 11)), "12 x 10"),
        (picture()[:45], "the picture"),
        (bomb(60_000, 60_000), "pixels"),
        (bomb(5000, 5000), "12 x 10"),
        (bomb(0x7FFFFFFF, 0x7FFFFFFF), "pixels"),
        (picture("GIF"), "the picture"),
    ],
)
def test_pictures_that_are_refused(send, pictures, body, words):
    message = refused(send(pictures, bodies.PNG, body), 422)
    assert words in message
    assert "esad-" not in message


def test_a_picture_with_more_pixels_than_it_says_is_read_as_it_says(send, pictures):
    assert send(pictures, bodies.PNG, bomb(12, 10)).status_code in (200, 422)


def test_many_small_files_that_become_too_much(asking, pictures, monkeypatch):
    monkeypatch.setattr(bodies, "_MAX_EXPANDED", 4 * 120 * 3)
    files = [("files", (f"{number}.png", picture())) for number in range(4)]
    refused(asking(pictures)("POST", "/score", files=files), 413)
    assert asking(pictures)("POST", "/score", files=files[:3]).status_code == 200


@pytest.mark.parametrize("name", ["../../etc/passwd", "a\x1b[2Jb.png", "x" * 1000, "\u202egnp.a"])
def test_names_of_uploads_lead_nowhere(asking, pictures, name):
    found = asking(pictures)("POST", "/score", files=[("files", (name, picture()))])
    assert found.status_code == 200, found.text
    shown = found.json()["rows"][0]["id"]
    assert len(shown) <= 200
    assert shown.isprintable()


def test_forms_that_are_refused(asking, pictures):
    ask = asking(pictures, max_rows=2)
    refused(ask("POST", "/score", files=[("files", ("a.png", picture()))], data={"field": "text"}), 422)
    refused(ask("POST", "/score", files=[("files", (f"{n}.png", picture())) for n in range(3)]), 413)
    bad = {"content-type": "multipart/form-data; boundary=x"}
    refused(ask("POST", "/score", content=b"--y\r\n", headers=bad), 400)
    refused(ask("POST", "/score", content=b"--x--\r\n", headers=bad), 422)
    refused(ask("POST", "/score", content=b"abc", headers={"content-type": "multipart/form-data"}), 400)


# ---------------------------------------------------------------------- types


@pytest.mark.parametrize(
    "media_type", ["", "text/plain", "application/octet-stream", "image/png", "application/xml", "*/*"]
)
def test_other_types_are_refused(send, forest, media_type):
    assert "application/json" in refused(send(forest, media_type, b"{}"), 415)


def test_other_character_sets_are_refused(send, forest):
    refused(send(forest, "text/csv; charset=utf-16", b"x"), 415)
    body = json.dumps(one_row())
    assert send(forest, 'Application/JSON; Charset="UTF-8"', body).status_code == 200


@pytest.mark.parametrize("media_type", ["application/json", "text/csv"])
def test_a_model_of_pictures_takes_no_rows(send, pictures, media_type):
    assert "image/png" in refused(send(pictures, media_type, b"{}"), 415)
