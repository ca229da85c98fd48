"""GEOM: its transformations, its losses in numpy, and Dirichlet distributions with known parameters."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from support import tiny

import esad
from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods import geom
from esad.methods.geom import (
    GEOM,
    MAX_SUM,
    GEOMObjective,
    Transformation,
    fit_dirichlet,
    inverse_digamma,
    pixel_maps,
    transformations_of,
)
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch, RowPool

MEMBERS, N, SHAPE = 2, 6, (3, 8, 8)
SPECS = {
    kind: NetworkSpec(kind, in_shape=SHAPE, hidden=(3, 4), latent=5, n_members=MEMBERS)
    for kind in ("conv", "lenet", "wide")
}


def make(spec=SPECS["conv"], kind="turns"):
    objective = GEOMObjective(spec, kind).double()
    objective.reset(MemberRandom(range(spec.n_members), dtype=torch.float64))
    return objective


def pictures(*shape, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).random(shape))


def training_data(x, n_members=MEMBERS):
    return RowPool.from_shared_rows(x, torch.zeros(len(x), dtype=torch.int8), n_members=n_members)


def batch_of(x):
    empty = torch.empty((len(x), 0), dtype=torch.float64)
    return Batch(x, empty, empty, MemberRandom(range(len(x)), dtype=torch.float64))


# ---------------------------------------------------------------------- transformations


def numpy_transformed(x, transformation):
    """Flip, pad by reflection, cut out, turn."""
    x = x[..., ::-1] if transformation.mirrored else x
    height, width = x.shape[-2:]
    sides = [(0, 0)] * (x.ndim - 2) + [(height, height), (width, width)]
    padded = np.pad(x, sides, mode="symmetric")
    top, left = height - transformation.down, width - transformation.right
    return np.rot90(padded[..., top : top + height, left : left + width], transformation.turns, axes=(-2, -1))


@pytest.mark.parametrize(
    ("kind", "shape", "n_expected"),
    [
        ("all", (3, 8, 8), 72),
        ("mirrors", (3, 8, 8), 8),
        ("turns", (3, 8, 8), 4),
        ("all", (1, 8, 5), 36),
        ("turns", (1, 8, 5), 2),
    ],
)
def test_transformations_are_all_different_keep_the_shape_and_are_those_of_numpy(kind, shape, n_expected):
    x = pictures(2, *shape)
    chosen = transformations_of(kind, shape)
    assert len(chosen) == n_expected
    assert chosen[0] == Transformation()
    by_map = x.flatten(2)[:, :, pixel_maps(chosen, shape)].view(2, shape[0], n_expected, *shape[1:])
    results = set()
    for index, transformation in enumerate(chosen):
        got = transformation(x)
        np.testing.assert_array_equal(got, numpy_transformed(x.numpy(), transformation))
        np.testing.assert_array_equal(by_map[:, :, index], got)
        results.add(got.numpy().tobytes())
    assert len(results) == n_expected


def test_shifts_are_a_quarter_of_the_sides():
    assert {(t.down, t.right) for t in transformations_of("all", (1, 32, 20))} == {
        (down, right) for down in (0, -8, 8) for right in (0, -5, 5)
    }


@given(height=st.integers(1, 5), width=st.integers(1, 5))
def test_the_smallest_pictures_can_be_transformed(height, width):
    x = pictures(1, 1, height, width)
    for transformation in transformations_of("all", x.shape):
        assert transformation(x).shape == x.shape


# ---------------------------------------------------------------------- losses and score


@pytest.mark.parametrize("spec", SPECS.values(), ids=list(SPECS))
@pytest.mark.parametrize("kind", ["turns", "all"])
def test_loss_is_the_cross_entropy_of_equation_2(spec, kind):
    objective, x = make(spec, kind), pictures(MEMBERS, N, *SHAPE)
    objective.prepare(training_data(x[0]))
    got = objective.loss(batch_of(x))["transformation"].detach().numpy()

    chosen = transformations_of(kind, SHAPE)
    drawn = batch_of(x).random.integers(len(chosen), N).numpy()  # the same random stream again
    transformed = np.stack(
        [[numpy_transformed(x[m, i].numpy(), chosen[drawn[m, i]]) for i in range(N)] for m in range(MEMBERS)]
    )
    logits = objective.head(objective.encoder(torch.from_numpy(transformed))).detach().numpy()
    y = np.exp(logits) / np.exp(logits).sum(2, keepdims=True)
    wanted = [-np.mean([np.log(y[m, i, drawn[m, i]]) for i in range(N)]) for m in range(MEMBERS)]
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


def answers(objective, x):
    """y(T_t(x)) of one member's pictures, (transformations, n, k)."""
    every = [
        objective.head(objective.encoder(t(x).expand(MEMBERS, *x.shape))).detach() for t in objective.transformations
    ]
    return torch.stack(every, dim=1).softmax(3).numpy()  # (members, transformations, n, k)


def test_score_is_equation_4():
    objective = make().eval()
    objective.alpha.copy_(torch.from_numpy(np.random.default_rng(3).gamma(2.0, size=objective.alpha.shape)))
    x = pictures(N, *SHAPE)
    got = objective.scorer()(x)["transformation"].detach()
    wanted = -((objective.alpha.numpy()[:, :, None] - 1) * np.log(answers(objective, x))).sum(3).mean(1)
    np.testing.assert_allclose(got, wanted, rtol=1e-9)


def test_alpha_is_the_maximum_likelihood_of_equation_3(monkeypatch):
    monkeypatch.setattr(geom, "BLOCK_PICTURES", 7)
    objective, x = make().eval(), pictures(30, *SHAPE)
    objective.finish(training_data(x))
    y = answers(objective, x)
    for member in range(MEMBERS):
        for index in range(len(objective.transformations)):
            alpha = objective.alpha[member, index].numpy()
            slope = special.digamma(alpha) - special.digamma(alpha.sum()) - np.log(y[member, index]).mean(0)
            np.testing.assert_allclose(slope, 0, atol=1e-8)


def test_each_member_fits_the_pictures_it_may_draw_spread_over_all_of_them(monkeypatch):
    monkeypatch.setattr(geom, "MAX_FITTED", 4)
    objective, x = make().eval(), pictures(12, *SHAPE)
    data = RowPool.from_shared_rows(
        x, torch.zeros(12, dtype=torch.int8), n_members=MEMBERS, unseen_by=torch.tensor([-1] * 8 + [0, 0, 1, 1])
    )
    objective.finish(data)
    shared, first = objective.alpha.clone(), objective.alpha[0].clone()
    alone = RowPool.from_shared_rows(x[[0, 3, 6, 11]], torch.zeros(4, dtype=torch.int8), n_members=MEMBERS)
    objective.finish(alone)  # every third of the rows that are not in part 0
    np.testing.assert_allclose(objective.alpha[0], first, rtol=1e-5)
    assert not np.allclose(objective.alpha[1], shared[1], rtol=1e-5)


def test_a_member_trains_as_it_would_alone():
    both, x = make(), pictures(MEMBERS, N, *SHAPE)
    alone = make(NetworkSpec("conv", in_shape=SHAPE, hidden=(3, 4), latent=5, n_members=1))
    for objective in (both, alone):
        objective.prepare(training_data(x[0]))
    together = both.loss(batch_of(x))["transformation"][0]
    np.testing.assert_allclose(alone.loss(batch_of(x[:1]))["transformation"][0].item(), together.item(), rtol=1e-9)


# ---------------------------------------------------------------------- Dirichlet distributions


@given(st.lists(st.floats(1e-3, 1e5), min_size=1, max_size=5))
def test_inverse_digamma(x):
    np.testing.assert_allclose(inverse_digamma(torch.from_numpy(special.digamma(x))), x, rtol=1e-9)


@given(st.lists(st.floats(0.01, 1000), min_size=2, max_size=6))
def test_parameters_are_found_from_their_exact_moments(alpha):
    alpha = np.array(alpha)
    mean_log = special.digamma(alpha) - special.digamma(alpha.sum())
    np.testing.assert_allclose(fit_dirichlet(torch.from_numpy(mean_log)), alpha, rtol=1e-6)


@pytest.mark.parametrize("alpha", [(0.3, 2.0, 5.0), (40.0, 60.0), (0.05, 0.1, 3.0, 0.2)])
def test_parameters_are_the_maximum_that_scipy_finds(alpha):
    p = np.maximum(np.random.default_rng(1).dirichlet(alpha, size=500), 1e-300)

    def negative_log_likelihood(log_alpha):
        a = np.exp(log_alpha)
        return -(special.gammaln(a.sum()) - special.gammaln(a).sum() + ((a - 1) * np.log(p)).sum(1).mean())

    best = np.exp(optimize.minimize(negative_log_likelihood, np.zeros(len(alpha)), tol=1e-10).x)
    got = fit_dirichlet(torch.from_numpy(np.log(p).mean(0))).numpy()
    np.testing.assert_allclose(got, best, rtol=1e-3)
    np.testing.assert_allclose(got, alpha, rtol=0.3)


def test_many_distributions_are_fitted_at_once():
    rng = np.random.default_rng(2)
    p = rng.dirichlet((1.0, 2.0, 3.0), size=(4, 5, 100))  # (4, 5) samples of 100
    mean_log = torch.from_numpy(np.log(p).mean(2))
    np.testing.assert_allclose(fit_dirichlet(mean_log)[2, 3], fit_dirichlet(mean_log[2, 3]), rtol=1e-9)


def test_vectors_that_are_all_alike_give_large_finite_parameters():
    p = torch.tensor([0.2, 0.8])
    alpha = fit_dirichlet(p.log())
    assert alpha.sum() == pytest.approx(MAX_SUM, rel=1e-3)
    np.testing.assert_allclose(alpha / alpha.sum(), p, rtol=1e-4)


# ---------------------------------------------------------------------- the detector


def test_identical_pictures_train_and_score():
    same = np.full((6, 8, 8), 100, dtype=np.uint8)
    assert np.isfinite(tiny("geom", hidden=(3, 3)).fit(same).anomaly_score(same)).all()


@pytest.mark.parametrize("shape", [(12, 10, 14), (12, 8, 8, 3), (12, 3, 3)])
def test_pictures_of_any_shape_train_save_and_score(shape, tmp_path):
    x = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    detector = GEOM(hidden=(3, 3), latent=2, n_epochs=1, random_state=0).fit(x)
    scores = detector.anomaly_score(x)
    assert np.isfinite(scores).all()
    detector.save(tmp_path / "model.esad")
    np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(x), scores)


def test_turned_pictures_are_anomalous():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 60, size=(80, 8, 8), dtype=np.uint8)
    x[:, :3] += 150  # bright above
    detector = GEOM(transformations="turns", hidden=(4, 4), latent=4, n_epochs=60, random_state=0).fit(x[:60])
    normal, turned = (detector.anomaly_score(some) for some in (x[60:], np.rot90(x[60:], axes=(1, 2))))
    assert turned.min() > normal.max()


@pytest.mark.parametrize("value", ["some", None, 72])
def test_unknown_transformations_are_refused(value):
    with pytest.raises(InputError, match="`transformations` must be one of all, mirrors, turns"):
        GEOM(transformations=value).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_shifts_are_as_many_pixels_as_asked_for_and_no_more_than_the_picture_has():
    for shift, wanted in ((None, 8), (8, 8), (3, 3), (99, 32)):
        assert {abs(one.down) for one in transformations_of("all", (3, 32, 32), shift)} == {0, wanted}
    with pytest.raises(InputError, match=r"`shift` must be a whole number, 1 or more, or 'auto'\. Got 0"):
        GEOM(shift=0).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_as_published_has_the_authors_network_and_shift():
    detector = GEOM.as_published(n_epochs=1, random_state=0)
    detector.fit(np.random.default_rng(0).integers(0, 256, size=(10, 12, 12, 3), dtype=np.uint8))
    assert detector.network_.kind == "wide"
    convolutions = [m for m in detector.objective_.encoder.modules() if isinstance(m, torch.nn.Conv2d)]
    widths = [tuple(m.weight.shape[:2]) for m in convolutions if m.kernel_size == (3, 3)]
    assert widths == [(16, 3), (64, 16), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256)]
    assert [m.stride[0] for m in convolutions if m.kernel_size == (1, 1)] == [1, 2, 2]
    assert GEOM.as_published().get_params() == GEOM().get_params() | geom.PUBLISHED
    assert {abs(one.down) for one in detector.objective_.transformations} == {0, 8}
