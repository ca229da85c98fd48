"""Steps as CUDA graphs; most of it needs a GPU and is left out where there is none."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from esad import ESAD
from esad.methods.esad.loss import ESADObjective
from esad.train.graphs import Recording, use_own_stream

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def rows(n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(0).normal(size=(n, 6))
    y = np.zeros(n, dtype=int)
    y[:10] = -1
    X[:10] += 3
    return X, y


def test_without_a_gpu_there_is_no_stream():
    with use_own_stream(torch.device("cpu")):
        assert torch.zeros(1).device.type == "cpu"


def test_losses_are_noted_under_their_names(monkeypatch):
    """A checkpoint gives the curves back in another order than the loss has its terms in."""
    for name in ("CUDAGraph", "graph", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_, **__: nullcontext())
    state = SimpleNamespace(
        data=SimpleNamespace(x=torch.zeros(4, 2), n_unlabelled=4, n_members=1),
        settings=SimpleNamespace(batch_size=2, lr_at=lambda step: 0.1),
        optimizer=SimpleNamespace(zero_grad=lambda **_: None, param_groups=[]),
        random=SimpleNamespace(register=lambda graph: None),
        losses={"norm": torch.zeros(5), "reconstruction": torch.zeros(5)},
        order=torch.zeros(1, 200, dtype=torch.int64),
        step=3,
        n_steps=5,
    )
    Recording(state, lambda rows: {"reconstruction": torch.tensor(2.0), "norm": torch.tensor(1.0)}, lambda n: None)
    assert {name: float(curve[3]) for name, curve in state.losses.items()} == {"norm": 1.0, "reconstruction": 2.0}


@needs_gpu
def test_replayed_steps_train_as_ordinary_ones_do(monkeypatch):
    X, y = rows()
    replayed = ESAD(random_state=0, device="cuda").fit(X, y)
    monkeypatch.setattr(ESADObjective, "recordable", False)
    ordinary = ESAD(random_state=0, device="cuda").fit(X, y)
    for name, curve in ordinary.loss_curves_.items():
        assert np.mean(replayed.loss_curves_[name][-50:]) == pytest.approx(np.mean(curve[-50:]), rel=0.2)
    correlation = np.corrcoef(replayed.anomaly_score(X), ordinary.anomaly_score(X))[0, 1]
    assert correlation > 0.95


@needs_gpu
def test_packed_trainings_are_those_that_run_alone():
    X, y = rows()
    alone = [ESAD(random_state=seed, device="cuda").fit(X, y).anomaly_score(X) for seed in range(3)]

    def train(seed: int) -> np.ndarray:
        with use_own_stream(torch.device("cuda")):
            return ESAD(random_state=seed, device="cuda").fit(X, y).anomaly_score(X)

    with ThreadPoolExecutor(3) as threads:
        packed = list(threads.map(train, range(3)))
    for one, other in zip(alone, packed, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3, atol=1e-3)


@needs_gpu
def test_a_training_on_pictures_resumes_on_a_gpu(tmp_path):
    from esad.persist.checkpoint import Checkpoint
    from esad.train.callbacks import StopTraining

    class StopAt:
        def on_start(self, state):
            pass

        def on_end(self, state):
            pass

        def on_step(self, state):
            if state.step == 20:
                saved.write(state)
                raise StopTraining

    X = np.random.default_rng(0).integers(0, 256, (200, 16, 16)).astype(np.uint8)
    arguments = {"hidden": (4, 8), "latent": 4, "n_epochs": 20, "device": "cuda", "random_state": 0}
    saved = Checkpoint(tmp_path / "half.checkpoint", resume=True)
    ESAD(**arguments).fit(X, callbacks=[saved, StopAt()])
    resumed = ESAD(**arguments).fit(X, callbacks=[saved])
    assert saved.resumed_step == 20
    assert np.isfinite(resumed.anomaly_score(X)).all()
