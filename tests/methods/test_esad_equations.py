"""Each equation of the paper against plain numpy in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import perceptrons

from esad.core.random import MemberRandom
from esad.methods.esad.loss import ESADObjective, LossSettings
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch

MEMBERS, FEATURES, N, M = 2, 5, 12, 6
SPEC = NetworkSpec("mlp", in_shape=(FEATURES,), hidden=(7, 4), latent=3, n_members=MEMBERS)


def make(**settings):
    objective = ESADObjective(SPEC, LossSettings(**settings)).double()
    objective.reset(MemberRandom([1, 2], dtype=torch.float64))
    return objective


def make_batch(n=N, m=M, labels=(-1.0, -1.0, -1.0, 1.0, 1.0, -1.0), seed=0):
    rng = np.random.default_rng(seed)
    y = np.tile(np.asarray(labels)[:m], (MEMBERS, 1))
    return Batch(
        unlabelled=torch.from_numpy(rng.normal(size=(MEMBERS, n, FEATURES))),
        labelled=torch.from_numpy(rng.normal(size=(MEMBERS, m, FEATURES))),
        y=torch.from_numpy(y),
        random=MemberRandom([5, 6], dtype=torch.float64),
    )


def numpy_pass(objective, x, *, training):
    z = perceptrons(objective.encoder_1, x, training=training)
    x_hat = perceptrons(objective.decoder, z, training=training)
    second = objective.encoder_2
    return z, x_hat, z if second is None else perceptrons(second, x_hat, training=training)


def numpy_loss(objective, batch, target, *, lambda_norm=1.0, lambda_assist=1.0, mean=False):
    n = batch.unlabelled.shape[1]
    x = np.concatenate([batch.unlabelled.numpy(), batch.labelled.numpy()], axis=1)
    z, x_hat, z_hat = numpy_pass(objective, x, training=True)
    wanted = np.concatenate([batch.unlabelled.numpy(), target], axis=1)
    reduce = np.mean if mean else np.sum
    error = reduce((x_hat - wanted) ** 2, axis=2)
    norm = np.sqrt(reduce(z_hat**2, axis=2))
    powered = norm[:, n:] ** batch.y.numpy()
    return {
        "reconstruction": error[:, :n].mean(1) + error[:, n:].mean(1),
        "norm": lambda_norm * (norm[:, :n].mean(1) + powered.mean(1)),
        "assist": lambda_assist * reduce((z_hat - z) ** 2, axis=2).mean(1),
    }


def assert_terms(got, wanted):
    assert got.keys() == wanted.keys()
    for name, term in wanted.items():
        np.testing.assert_allclose(got[name].detach().numpy(), term, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_losses_without_phi_are_equations_5_to_8(reduction):
    objective = make(phi="none", reduction=reduction, lambda_norm=0.7, lambda_assist=0.3)
    batch = make_batch()
    wanted = numpy_loss(
        objective, batch, batch.labelled.numpy(), lambda_norm=0.7, lambda_assist=0.3, mean=reduction == "mean"
    )
    assert_terms(objective.loss(batch), wanted)


@pytest.mark.parametrize("phi", ["noise", "permute", "both", "normal"])
def test_phi_changes_the_target_of_labelled_anomalies_only(phi):
    objective = make(phi=phi, reduction="sum", noise=0.5)
    batch = make_batch()
    target = objective._target(batch).numpy()
    batch = make_batch()  # the same random streams again
    assert_terms(objective.loss(batch), numpy_loss(objective, batch, target))
    anomaly = batch.y.numpy() < 0
    x = batch.labelled.numpy()
    assert (target[~anomaly] == x[~anomaly]).all()
    assert (np.abs(target[anomaly] - x[anomaly]).max(axis=-1) > 0).all()


def test_phi_permute_keeps_the_values_of_each_row():
    batch = make_batch()
    target = make(phi="permute")._phi(batch).numpy()
    np.testing.assert_allclose(np.sort(target, axis=2), np.sort(batch.labelled.numpy(), axis=2))


def test_phi_noise_has_the_asked_standard_deviation():
    batch = make_batch(m=6)
    changes = [(make(phi="noise", noise=0.3)._phi(batch) - batch.labelled).numpy() for _ in range(300)]
    assert np.std(changes) == pytest.approx(0.3, rel=0.05)


def test_phi_normal_takes_unlabelled_rows():
    batch = make_batch()
    target = make(phi="normal")._phi(batch).numpy()
    for member in range(MEMBERS):
        rows = {tuple(row) for row in batch.unlabelled[member].numpy()}
        assert all(tuple(row) in rows for row in target[member])


def test_without_second_encoder_the_norm_is_taken_of_the_first_code():
    objective = make(phi="none", second_encoder=False, reduction="sum")
    batch = make_batch()
    wanted = numpy_loss(objective, batch, batch.labelled.numpy())
    del wanted["assist"]
    assert_terms(objective.loss(batch), wanted)


def test_lambda_assist_zero_drops_the_term():
    assert "assist" not in make(lambda_assist=0.0).loss(make_batch())


def test_gain_and_offset_change_the_anomaly_norm_only():
    objective = make(gain=10.0, offset=0.1, phi="none")
    batch = make_batch(n=0)
    norm = objective.norm(objective(batch.labelled)[2])
    torch.testing.assert_close(objective.loss(batch)["norm"], torch.where(batch.y < 0, 10 / (norm + 0.1), norm).mean(1))
    assert (batch.y < 0).any()
    assert (batch.y > 0).any()


@pytest.mark.parametrize(("n", "m"), [(N, 0), (0, M)])
def test_an_absent_part_drops_out(n, m):
    objective = make(phi="none", reduction="sum")
    batch = make_batch(n=n, m=m)
    terms = objective.loss(batch)
    x = np.concatenate([batch.unlabelled.numpy(), batch.labelled.numpy()], axis=1)
    _, x_hat, _ = numpy_pass(objective, x, training=True)
    np.testing.assert_allclose(terms["reconstruction"].detach(), ((x_hat - x) ** 2).sum(2).mean(1), rtol=1e-9)
    assert all(torch.isfinite(term).all() for term in terms.values())


@pytest.mark.parametrize("second_encoder", [True, False])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_score_is_equation_9_with_running_statistics(reduction, second_encoder):
    objective = make(reduction=reduction, combine="sum", lambda_norm=0.6, second_encoder=second_encoder)
    for seed in range(3):
        objective.loss(make_batch(seed=seed))  # moves the running statistics off their start
    objective.eval()
    x = np.random.default_rng(9).normal(size=(8, FEATURES))
    _, x_hat, z_hat = numpy_pass(objective, np.stack([x] * MEMBERS), training=False)
    reduce = np.mean if reduction == "mean" else np.sum
    wanted = (reduce((x_hat - x) ** 2, axis=2) + 0.6 * np.sqrt(reduce(z_hat**2, axis=2))).mean(0)
    got = objective.contributions(objective.scorer()(torch.from_numpy(x)))
    np.testing.assert_allclose(sum(part.mean(0).numpy() for part in got.values()), wanted, rtol=1e-9)


def test_scaled_score_is_the_sum_of_z_scored_logarithms():
    objective = make(combine="scaled", norm_weight=2.0).eval()
    rng = np.random.default_rng(3)
    terms = {name: torch.from_numpy(rng.gamma(2.0, size=(MEMBERS, 40))) for name in ("reconstruction", "norm")}
    objective.calibrate(terms)
    logs = {name: np.log(term.numpy()) for name, term in terms.items()}
    z = {name: (log - log.mean(1, keepdims=True)) / log.std(1, keepdims=True) for name, log in logs.items()}
    got = objective.contributions(terms)
    np.testing.assert_allclose(got["reconstruction"], z["reconstruction"], rtol=1e-9)
    np.testing.assert_allclose(got["norm"], 2 * z["norm"], rtol=1e-9)


def test_one_step_moves_a_labelled_anomaly_out_and_a_labelled_normal_in():
    objective = make(phi="none", lambda_assist=0.0, reduction="sum")
    batch = make_batch(n=0, labels=(-1.0, -1.0, -1.0, 1.0, 1.0, 1.0))

    def norms():
        with torch.no_grad():
            return objective.norm(objective(batch.labelled)[2])

    before = norms()
    optimizer = torch.optim.SGD(objective.parameters(), lr=1e-3)
    for _ in range(20):
        optimizer.zero_grad()
        objective.loss(batch)["norm"].sum().backward()
        optimizer.step()
    after, anomaly = norms(), batch.y < 0
    assert after[anomaly].mean() > before[anomaly].mean()
    assert after[~anomaly].mean() < before[~anomaly].mean()


def test_robust_scale_is_median_and_lower_quantile():
    objective = make(combine="scaled", robust=True)
    logs = np.random.default_rng(1).normal(3.0, 0.5, size=(MEMBERS, 1001))
    terms = {name: torch.from_numpy(np.exp(logs)) for name in ("reconstruction", "norm")}
    objective.calibrate(terms)
    np.testing.assert_allclose(objective.centre, np.tile(np.median(logs, axis=1), (2, 1)), rtol=1e-6)
    np.testing.assert_allclose(objective.spread, np.full((2, MEMBERS), 0.5), rtol=0.1)


@given(turns=st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_rotation_turns_each_picture_by_its_own_angle(turns):
    from esad.train.transforms import rotate

    x = np.random.default_rng(0).normal(size=(1, 3, 2, 4, 4))
    got = rotate(torch.from_numpy(x), torch.tensor([turns])).numpy()
    for index, turn in enumerate(turns):
        np.testing.assert_array_equal(got[0, index], np.rot90(x[0, index], turn, axes=(1, 2)))
