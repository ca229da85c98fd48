"""Our detectors as the runners of ADBench and WSADBench call them, step by step."""

import functools
import importlib
import inspect

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from esad import IsolationForest
from esad.bench.harness import HarnessDetector
from esad.errors import InputError


@pytest.fixture(scope="module")
def data():
    """As their generators give it: scaled floats, and integers or floats of which 1 is a labelled anomaly."""
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(size=(190, 3)), rng.normal(4.0, 1.0, size=(10, 3))])
    y = np.repeat([0, 1], [190, 10])
    known = np.where(np.arange(200) >= 196, y, 0)
    return {"X_train": X, "y_train": known, "X_test": X, "y_test": y}


@pytest.mark.parametrize("dtype", [int, float, bool])
def test_as_adbench_calls_it(data, dtype):
    """RunPipeline.run(clf=...): made from seed and name, fitted by keywords, the answer of fit is what scores."""
    clf = functools.partial(HarnessDetector, method="esad", n_epochs=3, n_members=2)
    clf = clf(seed=1, model_name="Customized")
    clf = clf.fit(X_train=data["X_train"], y_train=data["y_train"].astype(dtype))
    scores = clf.predict_score(data["X_test"])
    assert scores.shape == (200,)
    assert roc_auc_score(data["y_test"], scores) > 0.9


def test_as_wsadbench_calls_it(data):
    """The class is found by its path, and the names of parameters say what it is given."""
    path, _, name = "esad.bench.harness.HarnessDetector".rpartition(".")
    model_class = getattr(importlib.import_module(path), name)
    parameters = {"method": "iforest", "n_trees": 20}  # from the YAML file
    assert {"seed", "model_name"} <= set(inspect.signature(model_class.__init__).parameters)
    model = model_class(model_name="ESAD", seed=3, **parameters)
    given = {name: data[name] for name in inspect.signature(model.fit).parameters}
    assert set(given) == {"X_train", "y_train"}
    model.fit(**given)
    assert list(inspect.signature(model.predict_score).parameters) == ["X"]
    scores = model.predict_score(X=data["X_test"])
    own = IsolationForest(n_trees=20, random_state=3).fit(data["X_train"], -data["y_train"])
    np.testing.assert_array_equal(scores, own.anomaly_score(data["X_test"]))


def test_what_is_wrong_is_told(data):
    with pytest.raises(InputError, match="iforest"):
        HarnessDetector(seed=0, method="iforst").fit(data["X_train"], data["y_train"])
    with pytest.raises(InputError, match="must hold 1"):
        HarnessDetector(seed=0).fit(data["X_train"], data["y_train"] * 2)
