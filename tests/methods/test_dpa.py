"""DPA: distances and losses against numpy in float64, growth from coarse to fine, and digits that it was not shown."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

import esad
from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.dpa import DPA, DPAObjective, FadingObjective
from esad.networks.pretrained import fill_weights
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import WEIGHTS
from esad.train.objective import RowPool

N, SHAPE = 5, (1, 12, 12)


def made(objective):
    fill_weights(objective.distance.network, WEIGHTS, "random", seed=0)
    objective.double().reset(MemberRandom([1], dtype=torch.float64))
    return objective


def spec_of(shape=SHAPE, hidden=(3, 4)):
    return NetworkSpec("residual18", in_shape=shape, hidden=hidden, latent=5)


def numpy_distance(distance, x, y):
    """Eq. (2) of pictures (n, ...), (n,)."""
    ours, theirs = (
        (distance.network(torch.from_numpy(some)).numpy() - distance.mean.numpy()) / distance.spread.numpy()
        for some in (x, y)
    )
    return np.abs(ours - theirs).sum(axis=(1, 2, 3)) / np.abs(ours).sum(axis=(1, 2, 3))


def data_of(x):
    return RowPool.from_shared_rows(x, torch.zeros(len(x), dtype=torch.int8), n_members=1)


def test_features_have_mean_0_and_deviation_1_on_the_pictures():
    objective, x = made(DPAObjective(spec_of(), "r21")), pictures(N, *SHAPE)
    objective.prepare(data_of(x))
    features = objective.distance.network(x).numpy()
    np.testing.assert_allclose(objective.distance.mean[:, 0, 0], features.mean(axis=(0, 2, 3)), rtol=1e-9)
    spread = features.std(axis=(0, 2, 3))
    wanted = np.maximum(spread, 0.01 * spread.max())
    np.testing.assert_allclose(objective.distance.spread[:, 0, 0], wanted, rtol=1e-7)


@pytest.mark.parametrize("shape", [(1, 12, 12), (3, 9, 12)])
def test_loss_and_score_are_the_relative_distance_of_features(shape):
    objective, x = made(DPAObjective(spec_of(shape), "r12")), pictures(N, *shape)
    objective.prepare(data_of(x))
    rebuilt = objective.decoder(objective.encoder(2 * x[None] - 1))[0].detach() / 2 + 0.5
    assert rebuilt.shape == x.shape
    wanted = numpy_distance(objective.distance, x.numpy(), rebuilt.numpy())
    np.testing.assert_allclose(objective.loss(batch_of(x[None]))["perception"].detach(), wanted.mean(), rtol=1e-9)
    np.testing.assert_allclose(objective.scorer()(x)["perception"][0].detach(), wanted, rtol=1e-9)


def numpy_halved(x):
    n, c, height, width = x.shape
    return x.reshape(n, c, height // 2, 2, width // 2, 2).mean(axis=(3, 5))


def test_a_new_level_is_faded_in():
    whole = spec_of((1, 16, 16), hidden=(3, 4, 2))
    small = spec_of((1, 8, 8), hidden=(4, 2))
    coarser = made(DPAObjective(small, "r11", whole))
    x = pictures(N, 1, 16, 16)
    coarser.prepare(data_of(x))
    fading = made(FadingObjective(whole, "r12", coarser, n_steps=4))
    fading.inherit(coarser)
    fading.prepare(data_of(x))
    with torch.no_grad():
        nothing_new = fading.fade_in(x[None], torch.tensor(0.0))[0].numpy()
        half = torch.from_numpy(numpy_halved(x.numpy()))[None]
        np.testing.assert_allclose(nothing_new, np.kron(coarser(half)[0].numpy(), np.ones((2, 2))), rtol=1e-9)
        torch.testing.assert_close(fading.fade_in(x[None], torch.tensor(1.0)), fading(x[None]))

    for share in (0.25, 0.5):  # one step after the other, Eqs. (5) and (6)
        got = fading.loss(batch_of(x[None]))["perception"].item()
        mixed = share * x.numpy() + (1 - share) * np.kron(numpy_halved(x.numpy()), np.ones((2, 2)))
        rebuilt = fading.fade_in(torch.from_numpy(mixed)[None], torch.tensor(share)).detach().numpy()[0]
        fine = numpy_distance(fading.distance, mixed, rebuilt)
        coarse = numpy_distance(coarser.distance, numpy_halved(mixed), numpy_halved(rebuilt))
        assert got == pytest.approx((share * fine + (1 - share) * coarse).mean(), rel=1e-9)

    after = made(DPAObjective(whole, "r12"))
    after.inherit(fading)
    torch.testing.assert_close(after(x[None]), fading(x[None]))


def test_stages_go_from_coarse_to_fine_and_the_last_one_has_half_of_the_steps():
    x = np.random.default_rng(0).random((6, 40, 36))
    detector = DPA(features="random", layer="r32", hidden=(2,) * 4, n_epochs=12, batch_size=3, random_state=0)
    detector.seed_ = 0
    rows = x[:, None].astype(np.float32)
    phases = detector._phases(rows, np.zeros(6, dtype=np.int8), torch.device("cpu"))
    sizes = [phase.objective._shrink(torch.from_numpy(rows)[None]).shape[-2:] for phase in phases]
    assert [tuple(size) for size in sizes] == [(10, 10), (20, 20), (20, 20), (40, 36), (40, 36)]
    assert [type(phase.objective) for phase in phases[1:4]] == [FadingObjective, DPAObjective, FadingObjective]
    assert [len(phase.objective.distance.network.features) for phase in phases] == [9, 14, 14, 14, 14]
    assert [phase.settings.n_steps for phase in phases] == [3, 3, 3, 3, 12]


def test_digits_that_it_was_not_shown_are_rebuilt_worse(tmp_path, caplog):
    digits = load_digits()
    x, is_one = (digits.images * 15).astype(np.uint8), digits.target == 1
    normal, others = x[is_one], x[digits.target == 0]
    detector = DPA(features="random", layer="r11", hidden=(8, 8), latent=8, n_epochs=30, batch_size=32, random_state=0)
    detector.fit(normal[:120])
    assert "VGG19 is untrained" in caplog.text
    test = np.concatenate([normal[120:], others])
    score = detector.anomaly_score(test)
    assert roc_auc_score(np.arange(len(test)) >= len(normal) - 120, score) > 0.9
    detector.save(tmp_path / "model.esad")
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(test), score)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"layer": "r99"}, "`layer` must be one of auto, r11"),
        ({"features": 3}, "`features` must be 'imagenet', 'random' or the path"),
        ({"grow": "maybe"}, "`grow` must be True, False or 'auto'"),
        ({"layer": "r54"}, "needs pictures of 16 x 16 pixels or more"),
    ],
)
def test_wrong_arguments_are_refused(given, said):
    with pytest.raises(InputError, match=said):
        DPA(**{"features": "random"} | given).fit(np.zeros((4, 8, 8), dtype=np.uint8))
