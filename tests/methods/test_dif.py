"""DIF: a forest on pooled layers of a fixed network, and digits that it was not shown."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

import esad
from esad.detectors.export import export
from esad.errors import InputError
from esad.methods.dif import DIF
from esad.solvers.trees import ForestModel

QUICK = {"features": "random", "pooled": "maxpool_3a", "side": 75, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    """Zeros, of which some are for the test, and ones."""
    found = load_digits()
    x = (found.images * 15).astype(np.uint8)
    return x[found.target == 0], x[found.target == 1][:60]


def test_it_is_a_forest_on_pooled_features(digits):
    normal, _ = digits
    detector = DIF(**QUICK).fit(normal[:60])
    rows = torch.from_numpy(normal[:60, None] / np.float32(255))
    features = detector.backbone_(rows).numpy()
    assert features.shape == (60, 64)
    forest = ForestModel(n_trees=100, n_samples=256).fit(features, np.zeros(60, dtype=np.int8), seed=0)
    np.testing.assert_allclose(detector.anomaly_score(normal[:60]), forest.score(features), rtol=1e-9)


def test_digits_that_it_was_not_shown_score_higher(digits, tmp_path):
    normal, others = digits
    detector = DIF(**QUICK).fit(normal[:120])
    test = np.concatenate([normal[120:], others])
    score = detector.anomaly_score(test)
    assert roc_auc_score(np.arange(len(test)) >= len(normal) - 120, score) > 0.85
    detector.save(tmp_path / "model.esad")
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(test), score)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"pooled": "fc"}, "`pooled` must be one of conv2d_1a"),
        ({"side": 32}, "`side` must be a whole number from 75 to 1024. Got 32"),
        ({"n_trees": 0}, "`n_trees` must be"),
    ],
)
def test_wrong_arguments_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        DIF(**QUICK | given).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_it_says_that_it_cannot_be_exported_and_why(tmp_path):
    detector = DIF(**QUICK).fit(np.zeros((4, 8, 8), dtype=np.uint8))
    assert not detector.can_export
    with pytest.raises(InputError, match="DIF cannot be exported: its score jumps where a feature crosses a cut"):
        export(detector, tmp_path / "model.onnx")
