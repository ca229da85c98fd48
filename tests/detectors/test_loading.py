"""Model files that are forged with care: what they say of columns is held against what it may be."""

import numpy as np
import pytest

import esad
from esad.errors import ModelFileError


@pytest.mark.parametrize(
    "notes", [{"id_column": []}, {"id_column": 7}, {"label_column": ["a"]}, {"ignored_columns": [1]}]
)
def test_notes_name_columns_by_text(tmp_path, notes):
    model = esad.IsolationForest(n_trees=5, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    model.notes_ = notes
    model.save(tmp_path / "forged.esad")
    with pytest.raises(ModelFileError, match="notes"):
        esad.load(tmp_path / "forged.esad")
