"""Parquet files forged byte by byte take neither memory nor time."""

import subprocess
import sys
import zlib

import pyarrow as pa
import pytest
from forged_parquet import forged, number
from serving import as_parquet, refused

from esad.serve import bodies

N_ROWS = 5
TABLE = pa.table(
    {
        "size": [1.0] * N_ROWS,
        "colour": ["red"] * N_ROWS,
        "made": ["2024-02-29"] * N_ROWS,
        "checked": [True] * N_ROWS,
    }
)
HUGE = 2**31 - 1
DATA, DICTIONARY = 0, 2  # types of pages


def claims_a_huge_page(head, content):
    head[2][1] = HUGE
    return content


def is_a_huge_page(head, content):
    """Gzip of zeros: 300 MiB in 300 KiB, the same stretch over and over."""
    zeros, squeezed = bytes(2**20), zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    stretch = squeezed.compress(zeros) + squeezed.flush(zlib.Z_FULL_FLUSH)
    check = 0
    for _ in range(300):
        check = zlib.crc32(zeros, check)
    head[2][1] = 300 * len(zeros)
    trailer = check.to_bytes(4, "little") + head[2][1].to_bytes(4, "little")
    return b"\x1f\x8b\x08" + bytes(7) + stretch * 300 + squeezed.flush() + trailer


def claims_many_values(head, content):
    for field in (5, 7):
        if field in head:
            head[field][1][1][1] = HUGE
    return content


def lengths_without_end(head, content):
    """2^28 lengths of 0, each as the difference from the one before: a gigabyte of a few bytes."""
    if head[5][1][2][1] != 6:
        return content
    levels = content[: 4 + int.from_bytes(content[:4], "little")]
    count = bytes([0x80, 0x80, 0x80, 0x80, 0x01])  # 2^28
    new = levels + count + b"\x04" + count + number(0) + (number(0) + bytes(4)) * 2 + bytes(64)
    head[2][1] = len(new)
    return new


def many_columns(meta):
    """Each takes 3 bytes here and some 700 in the reader."""
    meta[4][1][1][0][1][1] = (12, [{2: [6, 0]}] * 500_000)


def plain(**options):
    return as_parquet(TABLE, use_dictionary=False, **options)


FORGED = {
    "a page that claims 2 GiB": lambda: forged(plain(compression="zstd"), page=claims_a_huge_page),
    "a page that becomes 300 MiB": lambda: forged(plain(compression="gzip"), page=is_a_huge_page),
    "pages with 2^31 values": lambda: forged(as_parquet(TABLE, compression="none"), page=claims_many_values),
    "2^28 lengths": lambda: forged(
        plain(compression="none", column_encoding={"colour": "DELTA_LENGTH_BYTE_ARRAY"}), page=lengths_without_end
    ),
    "half a million columns": lambda: forged(plain(), footer=many_columns),
}


def test_the_forger_alone_changes_nothing(forest, send):
    assert send(forest, bodies.PARQUET, forged(as_parquet(TABLE, compression="none"))).json()["n_rows"] == N_ROWS


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_sound_files_pass(send, forest, version, compression):
    nested = TABLE.append_column("also", pa.array([[1, 2, 3]] * N_ROWS))
    body = as_parquet(nested, data_page_version=version, compression=compression, row_group_size=2)
    assert send(forest, bodies.PARQUET, body).json()["n_rows"] == N_ROWS


@pytest.mark.parametrize("encoding", ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_texts_encoded_as_differences_are_read(send, forest, encoding):
    body = plain(column_encoding={"colour": encoding, "made": encoding})
    assert send(forest, bodies.PARQUET, body).json()["n_rows"] == N_ROWS


@pytest.mark.parametrize("case", FORGED)
def test_forged_files_are_refused(send, forest, case):
    answer = send(forest, bodies.PARQUET, FORGED[case]())
    assert refused(answer, answer.status_code)
    assert answer.status_code in (413, 422)


PROBE = """
import resource, sys, time
from pathlib import Path
from esad.serve import bodies
from esad.serve.metrics import Metrics
from esad.serve.model import ModelFile

served = ModelFile(Path(sys.argv[1]), Metrics()).current
reader = bodies.BodyReader()
read = lambda name: reader.read(bodies.PARQUET, Path(name).read_bytes(), served, max_rows=10_000)
read(sys.argv[2])
before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
for name in sys.argv[3:]:
    try:
        read(name)
    except ValueError:
        continue
    raise SystemExit(f"{name} was read")
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
print(grown, time.process_time() - began)
reader.close()
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


@pytest.mark.extra
def test_forged_files_take_neither_memory_nor_time(forest, tmp_path):
    paths = []
    for number_, body in enumerate([plain(), *(make() for make in FORGED.values())]):
        paths.append(tmp_path / f"{number_}.parquet")
        paths[-1].write_bytes(body)
    done = subprocess.run([sys.executable, "-c", PROBE, forest, *paths], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    grown, seconds, reader = map(float, done.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert grown * unit < 30 * 2**20
    assert seconds < 5
    assert reader * unit < 512 * 2**20
