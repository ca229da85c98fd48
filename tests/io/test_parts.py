"""Which files a path means."""

import numpy as np
import pytest
from in_parts import write_parts

from esad.errors import DataFileError
from esad.io.parts import find_tables


def test_folders_patterns_and_files_are_found(tmp_path):
    parts = write_parts(tmp_path / "parts", np.zeros((9, 2)))
    assert [file.name for file in find_tables(parts)] == ["part-0.parquet", "part-1.parquet", "part-2.parquet"]
    assert len(find_tables(f"{parts}/part-[01].parquet")) == 2
    assert find_tables(parts / "part-0.parquet") == (parts / "part-0.parquet",)
    with pytest.raises(DataFileError, match="no file matches"):
        find_tables(f"{parts}/none-*.parquet")


def test_csv_beside_pictures_is_no_table(tmp_path):
    (tmp_path / "labels.csv").write_text("file,label\n1.png,anomaly\n")
    assert find_tables(tmp_path) == (tmp_path / "labels.csv",)
    (tmp_path / "1.png").write_bytes(b"")
    assert find_tables(tmp_path) == ()
    for name in ("_temporary", ".hidden"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.parquet").write_bytes(b"")
    assert find_tables(tmp_path) == ()
