"""CSV and Parquet that are not to be read are refused in time."""

import struct
import time

import numpy as np
import pyarrow as pa
import pytest
from serving import as_parquet, refused

from esad.serve import bodies


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
        (b"size,colour,made,checked\n1,gr\x81n,2024-02-29,true\n", "UTF-8"),
        (bytes(range(256)), "the body"),
    ],
)
def test_csv_that_is_refused(send, forest, body, words):
    message = refused(send(forest, bodies.CSV, body), 422)
    assert words in message
    assert "esad-" not in message  # no name of a temporary file


def test_a_header_of_commas_is_refused_soon(send, forest):
    began = time.monotonic()
    assert refused(send(forest, bodies.CSV, b"," * 4_000_000), 413)
    wide = ",".join(map(str, range(200_000))).encode() + b"\n1\n"
    for before in (b"", b"sep=,\n", b"\xef\xbb\xbfsep=,\r\n"):
        assert refused(send(forest, bodies.CSV, before + wide), 413)
    assert refused(send(forest, bodies.PARQUET, as_parquet(pa.table({str(name): [1] for name in range(2000)}))), 413)
    assert time.monotonic() - began < 5


def long_text_twice(n_bytes, n_rows):
    columns = {"size": [1.0] * n_rows, "colour": ["x" * n_bytes] * n_rows, "made": ["2024-02-29"] * n_rows}
    return pa.table(columns | {"checked": [True] * n_rows})


def test_parquet_that_would_become_too_much_is_refused(send, forest, monkeypatch):
    many = pa.table({name: pa.array(np.zeros(1_000_000)) for name in ("size", "made", "colour", "checked")})
    body = as_parquet(many, compression="zstd")
    assert len(body) < 100_000
    assert refused(send(forest, bodies.PARQUET, body), 413)
    monkeypatch.setattr(bodies, "MAX_UNPACKED", 2**20)
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
    pa.array([b"red\xff", None]).cast(pa.string(), safe=False),
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
