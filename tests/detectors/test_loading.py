"""Model files that are forged with care: what they say of columns is held against what it may be."""

import numpy as np
import pytest

import esad
from esad.errors import LabelError, ModelFileError, SchemaError
from esad.persist import bundle


@pytest.mark.parametrize(
    "notes", [{"id_column": []}, {"id_column": 7}, {"label_column": ["a"]}, {"ignored_columns": [1]}]
)
def test_notes_name_columns_by_text(tmp_path, notes):
    model = esad.IsolationForest(n_trees=5, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 2)))
    model.notes_ = notes
    model.save(tmp_path / "forged.esad")
    with pytest.raises(ModelFileError, match="notes"):
        esad.load(tmp_path / "forged.esad")


def test_what_a_file_says_is_not_repeated_at_any_length(tmp_path):
    model = esad.ESAD(hidden=(4, 4), n_epochs=1, n_members=1, random_state=0)
    model.fit(np.random.default_rng(0).normal(size=(50, 2))).save(tmp_path / "model.esad")
    manifest, tensors = bundle.read(tmp_path / "model.esad")
    manifest["model"]["objective"]["loss"]["offset"] = "a" * 100_000
    bundle.write(tmp_path / "forged.esad", {key: manifest[key] for key in manifest.keys() - bundle._STATED}, tensors)
    with pytest.raises(ModelFileError, match=r"'offset' must be a number\. Got 'aaa") as caught:
        esad.load(tmp_path / "forged.esad")
    assert len(str(caught.value)) < 1000


def test_a_long_cell_is_not_repeated_whole(tmp_path):
    days = [f"2024-01-{day:02d}" for day in range(1, 31)]
    model = esad.IsolationForest(n_trees=5, random_state=0).fit([[number, day] for number, day in enumerate(days)])
    with pytest.raises(SchemaError, match="must hold dates") as caught:
        model.anomaly_score([[1.0, "soon" * 10_000]])
    assert len(str(caught.value)) < 1000
    with pytest.raises(LabelError) as caught:
        model.fit([[number, day] for number, day in enumerate(days)], ["odd" * 10_000, *["rare"] * 29])
    assert len(str(caught.value)) < 1000
