"""ARNet: loss and score against numpy in float64, what is erased, what is found."""

import numpy as np
import pytest
import torch
from support import batch_of, pictures

from esad.core.random import MemberRandom
from esad.methods.arnet import ARNet, ARNetObjective
from esad.networks.spec import NetworkSpec
from esad.train.objective import RowPool

MEMBERS, N = 2, 8
SHAPES = {"square": (3, 8, 8), "grey": (1, 8, 8), "oblong": (3, 8, 6)}


def make(shape, *, kind="conv", n_members=MEMBERS, normalize=True, skips=True):
    spec = NetworkSpec(kind, in_shape=shape, hidden=(3, 4), latent=5, n_members=n_members)
    objective = ARNetObjective(spec, skips=skips and kind == "conv", normalize=normalize).double()
    objective.reset(MemberRandom(range(n_members), dtype=torch.float64))
    return objective


def restored(objective, erased):
    erased = torch.from_numpy(np.ascontiguousarray(erased))
    seen = objective.encoder.levels_of(erased) if objective.skips else objective.encoder(erased)
    return objective.restorer(seen).detach().numpy()


def grey(x):
    return np.repeat(x.mean(axis=-3, keepdims=True), x.shape[-3], axis=-3)


@pytest.mark.parametrize("kind", ["conv", "lenet"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_loss_is_the_squared_restoration_error_of_equation_2(shape, kind):
    objective, x = make(shape, kind=kind), pictures(MEMBERS, N, *shape)
    seen = {}
    look = "levels_of" if kind == "conv" else "forward"
    plain = getattr(objective.encoder, look)
    setattr(objective.encoder, look, lambda erased: seen.update(input=erased.numpy()) or plain(erased))
    got = objective.loss(batch_of(x))["restoration"].detach().numpy()

    original, erased = x.numpy(), seen["input"]
    angles = (0, 1, 2, 3) if shape[1] == shape[2] else (0, 2)
    target = np.empty_like(original)
    found = set()
    for member, index in np.ndindex(MEMBERS, N):
        ways = {  # the one way in which this picture was mirrored and turned
            (mirrored, turns): picture
            for mirrored, picture in enumerate((original[member, index], original[member, index, :, :, ::-1]))
            for turns in angles
            if np.allclose(np.rot90(grey(2 * picture - 1), turns, axes=(1, 2)), erased[member, index])
        }
        ((way, target[member, index]),) = ways.items()
        found.add(way)
    assert {turns for _, turns in found} == set(angles)
    assert {mirrored for mirrored, _ in found} == {0, 1}
    wanted = ((restored(objective, erased) - target) ** 2).mean(axis=(1, 2, 3, 4))
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("skips", [True, False])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
def test_score_is_the_absolute_error_over_the_usual_one_averaged_over_the_turns(shape, skips, normalize):
    objective, x = make(shape, skips=skips, normalize=normalize).eval(), pictures(N, *shape)
    seen = pictures(7, *shape).flip(0) ** 2
    objective.finish(RowPool.from_shared_rows(seen, torch.zeros(7, dtype=torch.int8), n_members=MEMBERS))
    got = objective.scorer()(x)["restoration"].detach()
    wanted = turned_errors(objective, x.numpy())  # (turns, members, n)
    if normalize:
        wanted /= turned_errors(objective, seen.numpy()).mean(axis=2, keepdims=True)  # Eq. (4)
    np.testing.assert_allclose(got, wanted.mean(axis=0), rtol=1e-9)
    shares = objective.summands()(x)["restoration"].detach()
    np.testing.assert_allclose(shares.flatten(2).sum(2), got, rtol=1e-9)


def turned_errors(objective, x):
    """Mean absolute errors of pictures (n, ...), (turns, members, n)."""
    original = np.stack([x] * MEMBERS)
    angles = (0, 1, 2, 3) if x.shape[-2] == x.shape[-1] else (0, 2)
    erased = [np.rot90(grey(2 * original - 1), turns, axes=(3, 4)) for turns in angles]
    return np.stack([np.abs(restored(objective, one) - original).mean(axis=(2, 3, 4)) for one in erased])


def test_a_decoder_with_skips_joins_every_level_with_its_twin_and_no_other_member():
    objective, x = make((1, 8, 8)).eval(), pictures(MEMBERS, N, 1, 8, 8).requires_grad_()
    levels = [level.detach().requires_grad_() for level in objective.encoder.levels_of(x)]
    objective.restorer(levels)[0].sum().backward()
    for level in levels:
        first, second = level.grad.chunk(MEMBERS, dim=1)
        assert first.abs().sum() > 0
        assert second.abs().sum() == 0


def test_a_member_trains_as_it_would_alone():
    x = pictures(MEMBERS, N, 1, 8, 8)
    together = make((1, 8, 8)).loss(batch_of(x))["restoration"][0].item()
    alone = make((1, 8, 8), n_members=1).loss(batch_of(x[:1]))["restoration"][0].item()
    np.testing.assert_allclose(alone, together, rtol=1e-9)


def test_unusual_pictures_are_restored_worse():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 40, size=(80, 8, 8, 3), dtype=np.uint8)
    x[:, :3, :, 0] += 150  # red above
    blue = x[60:, ..., ::-1]
    detector = ARNet(hidden=(4, 4), latent=4, lr=1e-2, n_epochs=60, random_state=0).fit(x[:60])
    assert detector.anomaly_score(blue).min() > detector.anomaly_score(x[60:]).max()
