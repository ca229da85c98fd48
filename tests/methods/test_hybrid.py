"""Hybrids: the solved model sees exactly the autoencoder's codes."""

import numpy as np
import pytest
import torch
from sklearn.svm import OneClassSVM

import esad
from esad import Autoencoder, IFHybrid, OCSVMHybrid
from esad.errors import InputError


def codes_of(detector, X):
    rows = detector.inputs_.transform(X)
    with torch.no_grad():
        return detector.objective_.encoder(torch.from_numpy(rows)[None])[0].numpy()


def test_the_autoencoder_is_the_one_the_method_of_that_name_trains(rows):
    X, y = rows
    alone = Autoencoder(n_epochs=5, random_state=0).fit(X, y).objective_.state_dict()
    hybrid = OCSVMHybrid(n_epochs=5, random_state=0).fit(X, y).objective_.state_dict()
    for name, value in alone.items():
        torch.testing.assert_close(hybrid[name], value, rtol=0, atol=0)


def test_scores_are_those_of_the_model_on_the_codes(rows):
    X, y = rows
    detector = OCSVMHybrid(gamma=0.5, nu=0.3, n_epochs=5, random_state=0).fit(X, y)
    seen = np.isnan(detector.training_scores_) | (y == 1)  # unlabelled rows that were seen, and known normal ones
    codes = codes_of(detector, X).astype(float)
    wanted = -OneClassSVM(gamma=0.5, nu=0.3).fit(codes[seen]).decision_function(codes) / (0.3 * seen.sum())
    np.testing.assert_allclose(detector.anomaly_score(X), wanted, atol=1e-5)


@pytest.mark.parametrize("method", [OCSVMHybrid, IFHybrid])
def test_pictures_train_save_and_load(method, tmp_path):
    pictures = np.random.default_rng(0).integers(0, 255, size=(30, 10, 10), dtype=np.uint8)
    detector = method(n_epochs=2, random_state=0).fit(pictures)
    detector.save(tmp_path / "model.esad")
    scores = detector.anomaly_score(pictures)
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(pictures), scores)


def test_a_wrong_kernel_is_refused_before_the_training(rows):
    class Never:
        def on_start(self, state):
            raise AssertionError("trained")

    with pytest.raises(InputError, match="`nu` must be"):
        OCSVMHybrid(nu=2).fit(*rows, callbacks=[Never()])
