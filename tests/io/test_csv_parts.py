"""CSV in parts: every row once, columns of the types that reading the whole file gives."""

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from esad.errors import DataFileError
from esad.io import csv_dialect, csv_parts, csv_text

CELLS = st.sampled_from(
    [
        "",
        "1",
        "-2",
        "2.5",
        "1e3",
        "true",
        "False",
        "NA",
        "x",
        "2024-01-02",
        "12:30:00",
        '5" pipe',
        "9" * 20,
        "ä",
        "-",
        "5%",
        "$5",
        "1 234",
        "inf",
        "0x1F",
        "007",
    ]
)
QUOTED = st.sampled_from(['"a,b"', '"1,234.5"', '"x\ny"', '"say ""no"""', '""', '"1"', '"x"y', '"\r\n"'])
LINES = st.lists(st.tuples(CELLS | QUOTED, CELLS | QUOTED, CELLS), min_size=1, max_size=30)


def in_parts(path, monkeypatch, *, n_bytes):
    """The table that all parts together give, and how many there are."""
    monkeypatch.setattr(csv_parts, "PART_BYTES", n_bytes)
    names = csv_dialect.sniff(path).names
    parts, held = csv_parts.scan(path, names)
    types = csv_parts.settled(held)
    batches = [batch for part in parts for batch in part.batches(types, names, 7)]
    assert sum(part.n_rows for part in parts) == sum(batch.num_rows for batch in batches)
    assert max((batch.num_rows for batch in batches), default=0) <= 7
    schema = pa.schema(csv_parts.given(types))
    return pa.Table.from_batches(batches, schema=schema), parts


@given(lines=LINES, ending=st.sampled_from(["\n", "\r\n", "\r"]), n_bytes=st.integers(64, 400), last=st.booleans())
def test_the_parts_are_the_whole_file(tmp_path_factory, lines, ending, n_bytes, last):
    path = tmp_path_factory.mktemp("parts") / "t.csv"
    text = ending.join(["first,second,third", *map(",".join, lines)]) + (ending if last else "")
    path.write_bytes(text.encode("utf-8-sig" if n_bytes % 2 else "utf-8"))
    with pytest.MonkeyPatch.context() as patched:
        found, parts = in_parts(path, patched, n_bytes=n_bytes)
    whole = csv_text.read(path)
    assert found.schema == whole.schema
    assert found.equals(whole.combine_chunks())
    assert [part.start for part in parts[1:]] == [part.stop for part in parts[:-1]]


def test_a_column_is_what_its_last_line_leaves_of_it(tmp_path, monkeypatch):
    lines = ["1,1,true,", *["2,2,false,"] * 200, "3.5,x,1,"]
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["number,text,mixed,empty", *lines]))
    found, parts = in_parts(path, monkeypatch, n_bytes=256)
    assert len(parts) > 5
    assert found.schema.types == [pa.float64(), pa.string(), pa.string(), pa.float64()]
    assert found["text"].to_pylist()[::201] == ["1", "x"]


def test_a_compressed_file_is_one_part(tmp_path, monkeypatch):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n" + b"1,x\n" * 300 + b"2.5,y"))
    found, parts = in_parts(path, monkeypatch, n_bytes=128)
    assert len(parts) == 1
    assert found.equals(csv_text.read(path).combine_chunks())


@pytest.mark.parametrize(
    ("damage", "line"),
    [
        (b"1,2,3\n", "line 302 has 3 fields, the header has 2"),
        (b"1,\xff\n", "line 302 is not UTF-8"),
        (b'1,"open\n' + b"2,3\n" * 100, "quotes that"),
        (b'1,"open\n', "ends inside quotes"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, monkeypatch, damage, line):
    path = tmp_path / "t.csv"
    path.write_bytes(b"a,b\n" + b"1,x\n" * 300 + damage)
    with pytest.raises(DataFileError, match=line) as told:
        in_parts(path, monkeypatch, n_bytes=256)
    assert str(path) in str(told.value)
    assert "\n" not in str(told.value)
