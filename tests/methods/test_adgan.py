"""ADGAN: losses with the penalty on slopes, search and score against plain numpy and plain loops in float64."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods import adgan
from esad.methods.adgan import ADGAN, ADGANObjective
from esad.networks.spec import NetworkSpec

MEMBERS, N, SHAPE, LATENT = 2, 4, (3, 8, 8), 3


def make(*, n_members=MEMBERS):
    spec = NetworkSpec("dcgan", SHAPE, hidden=(4, 6), latent=LATENT, n_members=n_members)
    objective = ADGANObjective(spec, lambda_penalty=7.0, n_starts=2, search_steps=3).double()
    objective.reset(MemberRandom(range(n_members), dtype=torch.float64))
    return objective


def test_losses_are_equations_1_and_2():
    objective, x = make(), pictures(MEMBERS, N, *SHAPE)
    random = MemberRandom(range(MEMBERS), dtype=torch.float64)
    drawn = objective.generator(random.normal(N, LATENT)).tanh()
    share = random.uniform(N)
    real, made = 2 * x.numpy() - 1, drawn.detach().numpy()
    u = share.numpy()[..., None, None, None]
    slopes = numeric_slopes(objective.critic, u * real + (1 - u) * made)
    on_made, on_real = (objective.critic(torch.from_numpy(some)).detach().numpy()[..., 0] for some in (made, real))
    found = {name: term.detach().numpy() for name, term in objective.critic_loss(batch_of(x)).items()}
    np.testing.assert_allclose(found["critic"], (on_made - on_real).mean(1), rtol=1e-8, atol=1e-12)
    lengths = np.sqrt((slopes**2).sum(axis=(2, 3, 4)))
    np.testing.assert_allclose(found["penalty"], 7 * ((lengths - 1) ** 2).mean(1), rtol=1e-6)
    np.testing.assert_allclose(objective.loss(batch_of(x))["generator"].detach(), -on_made.mean(1), rtol=1e-8)


def numeric_slopes(critic, x):
    """dD/dx by differences, one pixel after the other; pictures are judged one by one."""
    out = np.empty_like(x)
    step = 1e-6
    for pixel in np.ndindex(x.shape[2:]):
        sides = []
        for sign in (1, -1):
            moved = x.copy()
            moved[(..., *pixel)] += sign * step
            sides.append(critic(torch.from_numpy(moved)).detach().numpy()[..., 0])
        out[(..., *pixel)] = (sides[0] - sides[1]) / (2 * step)
    return out


def test_the_penalty_moves_the_critic():
    objective = make()
    objective.critic_loss(batch_of(pictures(MEMBERS, N, *SHAPE)))["penalty"].sum().backward()
    assert any((weight.grad != 0).any() for weight in objective.critic.parameters() if weight.grad is not None)


def test_the_generator_moves_in_every_other_step():
    objective = make()
    critic, generator = objective.moves()
    assert (critic.networks, critic.every) == ((objective.critic,), 1)
    assert (generator.networks, generator.every) == ((objective.generator,), 2)


def test_score_is_what_a_copy_for_every_picture_and_start_finds(monkeypatch):
    objective, x = make(n_members=1).eval(), pictures(N, *SHAPE)
    with torch.inference_mode():  # as scoring runs
        found = objective.scorer()(x)["reconstruction"][0].numpy()
    wanted = [np.mean([searched(objective, picture, start) for start in objective.starts[0]]) for picture in x]
    np.testing.assert_allclose(found, wanted, rtol=1e-8)
    n_weights = sum(weight.numel() for weight in objective.generator.parameters())
    search, copies = objective._search, []
    monkeypatch.setattr(
        objective, "_search", lambda x, starts: copies.append(len(x) * starts.shape[1]) or search(x, starts)
    )
    for n_at_once in (
        1,
        2,
        2 * objective.n_starts,
    ):  # copies of the generator: some of the starts, some of the pictures
        monkeypatch.setattr(adgan, "MAX_WEIGHTS", n_at_once * n_weights)
        copies.clear()
        np.testing.assert_allclose(objective.scorer()(x)["reconstruction"][0].detach(), wanted, rtol=1e-8)
        assert max(copies) == n_at_once
        assert sum(copies) == objective.n_starts * N


def searched(objective, picture, start):
    generator, code = copy.deepcopy(objective.generator), start.clone()[None, None].requires_grad_()
    groups = [{"params": [code], "lr": 0.25}, {"params": generator.parameters(), "lr": 5e-5}]
    adam = torch.optim.Adam(groups)
    for _ in range(3):
        adam.zero_grad()
        (generator(code).tanh()[0, 0] - (2 * picture - 1)).square().mean().backward()
        adam.step()
    return ((generator(code).tanh()[0, 0] - (2 * picture - 1)).detach().numpy() ** 2).mean()


def test_members_search_apart_and_the_generator_stays_as_it_is():
    both, x = make().eval(), pictures(N, *SHAPE)
    alone = make(n_members=1).eval()
    before = copy.deepcopy(both.state_dict())
    found = both.scorer()(x)["reconstruction"].detach()
    np.testing.assert_allclose(found[0], alone.scorer()(x)["reconstruction"].detach()[0], rtol=1e-8)
    assert all(torch.equal(before[name], value) for name, value in both.state_dict().items())


def test_counts_must_be_whole():
    with pytest.raises(InputError, match="`n_starts` must be a whole number from 1 to 10,000"):
        ADGAN(n_starts=0).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_digits_of_another_class_are_farther_from_what_can_be_drawn():
    digits = load_digits()
    normal, other = digits.images[digits.target == 0], digits.images[digits.target != 0][:60]
    detector = ADGAN(hidden=(8, 8), latent=8, lr=2e-3, batch_size=32, n_epochs=25, random_state=0)
    detector.fit(np.uint8(normal[:120] * 15.9))
    scores = detector.anomaly_score(np.uint8(np.concatenate([normal[120:], other]) * 15.9))
    assert roc_auc_score(np.arange(len(scores)) >= len(normal) - 120, scores) > 0.8
