"""Tables in parts: every row once, with its number and label."""

import numpy as np
import pytest
from in_parts import tumours, write_parts

from esad.io.stream import open_stream


@pytest.fixture(scope="module")
def drawn():
    return tumours()


@pytest.mark.parametrize("form", [".parquet", ".csv", ".csv.gz"])
def test_streams_give_every_row_once_with_its_number_and_label(tmp_path, drawn, monkeypatch, form):
    monkeypatch.setattr("esad.io.csv.PART_BYTES", 8000)
    parts = write_parts(tmp_path / "parts", drawn.X_train, drawn.y_train, suffix=form)
    stream = open_stream(parts, label_column="label")
    assert stream.n_rows == len(drawn.X_train)
    for blocks in (stream.blocks(), stream.shuffled(np.random.default_rng(0))):
        seen = list(blocks)
        numbers = np.concatenate([block.numbers for block in seen])
        assert sorted(numbers.tolist()) == list(range(stream.n_rows))
        np.testing.assert_array_equal(np.concatenate([block.y for block in seen]), drawn.y_train[numbers])
        first = np.concatenate([block.X["x0"].to_numpy() for block in seen])
        np.testing.assert_array_equal(first, drawn.X_train[numbers, 0])
    assert not np.array_equal(numbers, np.arange(stream.n_rows))  # the last was shuffled
