"""Files that become too much are refused by a process of its own, and the next one is read."""

from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from esad.errors import DataFileError, LimitError, SchemaError
from esad.io.limits import FileLimits, Readers, check_unpacked_size


@pytest.fixture(scope="module")
def readers():
    with closing(Readers()) as made:
        yield made


@pytest.fixture
def file(tmp_path):
    def write(table, **options):
        pq.write_table(table, tmp_path / "table.parquet", **options)
        return tmp_path / "table.parquet"

    return write


def test_what_is_within_the_limits_passes(readers, file):
    path = file(pa.table({"size": [1.0, 2.0], "also": [[1], [2]]}))
    readers.check_parquet(path, FileLimits(rows=2, columns=2, unpacked_bytes=100), known=["size"])


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        (FileLimits(rows=999), "may have 999 rows. This one has 1,000"),
        (FileLimits(columns=1), "may have 1 columns. This one has 2"),
        (FileLimits(unpacked_bytes=2**20), "more than 1 MiB"),
    ],
)
def test_limits_hold(readers, file, limits, words):
    path = file(pa.table({"size": [1.0] * 1000, "name": ["x" * 2000] * 1000}))
    with pytest.raises(LimitError, match=words):
        readers.check_parquet(path, limits)


def test_lists_and_damage_are_told(readers, file):
    path = file(pa.table({"size": [[1.0]]}))
    with pytest.raises(SchemaError, match=r"'size'.*lists"):
        readers.check_parquet(path, FileLimits())
    path.write_bytes(b"PAR1" + bytes(50))
    with pytest.raises(DataFileError, match="damaged or no Parquet file"):
        readers.check_parquet(path, FileLimits())
    path.write_bytes(b"")
    with pytest.raises(DataFileError, match="damaged or no Parquet file"):
        readers.check_parquet(path, FileLimits())


def test_a_reader_that_is_out_of_memory_says_so_and_goes_on(file):
    with closing(Readers(memory_bytes=2**26)) as readers:
        path = file(pa.table({"name": ["x" * 2**27]}), compression="zstd")
        with pytest.raises(LimitError, match="64 MiB of memory"):
            readers.check_parquet(path, FileLimits())
        readers.check_parquet(file(pa.table({"name": ["x"]})), FileLimits())


def test_a_small_file_that_becomes_gigabytes_is_refused(file):
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 50_000, pa.int32()), pa.array(["x" * 100_000]))
    path = file(pa.table({"name": long}), compression="zstd", store_schema=False)
    assert path.stat().st_size < 2000
    with pytest.raises(LimitError, match=r"table\.parquet' is refused.*more than 512 MiB.*max_unpacked"):
        check_unpacked_size(path, 2**29)


def test_rows_that_are_not_read_in_one_go_do_not_add_up(file):
    path = file(pa.table({"name": ["x" * 100] * 200_000}))  # 20 MB in all, 6.5 MB in a batch
    check_unpacked_size(path, 8 * 2**20)
    with pytest.raises(LimitError):
        check_unpacked_size(path, 4 * 2**20)


def test_what_is_no_parquet_file_is_left_to_its_reader(tmp_path):
    for name in ("nothing.parquet", "a.csv"):
        check_unpacked_size(tmp_path / name, 1)
    (tmp_path / "damaged.parquet").write_bytes(b"PAR1")
    check_unpacked_size(tmp_path / "damaged.parquet", 2**20)
