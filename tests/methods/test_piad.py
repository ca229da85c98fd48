"""PIAD: losses, critics and weights against numpy in float64, and digits that it was not shown."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

import esad
from esad.core.random import MemberRandom
from esad.methods.piad import PIAD, PIADObjective
from esad.networks.pretrained import fill_weights
from esad.networks.spec import NetworkSpec
from esad.networks.vgg import WEIGHTS
from esad.train.adversarial import critic_loss
from esad.train.objective import RowPool

N, SHAPE = 6, (1, 12, 9)


def made():
    spec = NetworkSpec("residual", in_shape=SHAPE, hidden=(3, 4), latent=5)
    objective = PIADObjective(spec, "r11", penalty=7.0, drift=0.1)
    fill_weights(objective.distance.network, WEIGHTS, "random", seed=0)
    objective.double().reset(MemberRandom([1], dtype=torch.float64))
    x = pictures(N, *SHAPE)
    objective.prepare(RowPool.from_shared_rows(x, torch.zeros(N, dtype=torch.int8), n_members=1))
    return objective, x


def test_a_critics_loss_is_wassersteins_with_gradients_by_differences():
    objective, _ = made()
    critic, random = objective.game.codes, MemberRandom([3], dtype=torch.float64)
    real, fake = random.normal(N, 5), random.normal(N, 5)
    state = random.state()
    got = critic_loss(critic, real, fake, random, penalty=7.0, drift=0.1).item()
    random.set_state(state)
    share = random.uniform(N).numpy()[0, :, None]

    def says(code):
        return critic(torch.from_numpy(np.ascontiguousarray(code))[None]).detach().numpy()[0, :, 0]

    between = share * real.numpy()[0] + (1 - share) * fake.numpy()[0]
    step = 1e-6 * np.eye(5)
    slopes = np.stack([(says(between + h) - says(between - h)) / 2e-6 for h in step], axis=1)
    on_real, on_fake = says(real.numpy()[0]), says(fake.numpy()[0])
    penalty = (np.linalg.norm(slopes, axis=1) - 1) ** 2
    wanted = (on_fake - on_real + 7.0 * penalty + 0.1 * (on_real**2 + on_fake**2)).mean()
    assert got == pytest.approx(wanted, rel=1e-6)


def test_losses_are_equations_2_to_4():
    objective, x = made()
    objective.game.gamma.copy_(torch.tensor([2.0, 0.5]))
    batch = batch_of(x[None])
    state = batch.random.state()
    terms = objective.loss(batch)
    got = {name: term.item() for name, term in terms.items()}
    batch.random.set_state(state)
    prior = batch.random.normal(N, 5)
    code = objective.encoder(2 * x[None] - 1)
    rebuilt = (objective.generator(code) + 1) / 2
    distance = objective.distance
    ours, theirs = (
        ((distance.network(some) - distance.mean) / distance.spread).detach().numpy() for some in (x, rebuilt[0])
    )
    relative = np.abs(ours - theirs).sum(axis=(1, 2, 3)) / np.abs(ours).sum(axis=(1, 2, 3))
    wanted = {
        "pictures": -objective.game.pictures(objective.generator(prior)).detach().numpy().mean(),
        "codes": -objective.game.codes(code).detach().numpy().mean(),
        "perception": 2.0 * relative.mean(),
    }
    assert got == pytest.approx(wanted, rel=1e-9)
    np.testing.assert_allclose(objective.scorer()(x)["perception"][0].detach(), relative, rtol=1e-9)

    plain = objective.distance(x[None], rebuilt).mean()
    for network, gamma in ((objective.generator, 2.0), (objective.encoder, 0.5)):  # each has a weight of its own
        weights = list(network.parameters())
        own = torch.autograd.grad(terms["perception"].sum(), weights, retain_graph=True)
        wanted = torch.autograd.grad(plain, weights, retain_graph=True)
        for one, other in zip(own, wanted, strict=True):
            torch.testing.assert_close(one, gamma * other)


def test_weights_are_medians_of_smoothed_ratios_of_norms_every_hundred_steps():
    objective, x = made()

    def norms():
        """Of the adversarial loss's and of the error's gradients by each layer, for the generator and the encoder."""
        batch = batch_of(x[None])
        code = objective.encoder(2 * x[None] - 1)
        made = objective.generator(batch.random.normal(N, 5))
        error = objective.distance(x[None], (objective.generator(code) + 1) / 2).mean()
        adversarial = -objective.game.pictures(made).mean(), -objective.game.codes(code).mean()
        found = []
        for network, loss in zip((objective.generator, objective.encoder), adversarial, strict=True):
            layers = [parameter for parameter in network.parameters() if parameter.dim() == 4]
            both = [torch.autograd.grad(one, layers, retain_graph=True) for one in (loss, error)]
            found.append(np.array([[np.linalg.norm(part.numpy()) for part in parts] for parts in both]))
        return found

    first = norms()
    objective.loss(batch_of(x[None]))
    assert objective.game.gamma.tolist() == [1.0, 1.0]  # until the first look
    objective.game.step.fill_(99)
    objective.loss(batch_of(x[None]))
    np.testing.assert_allclose(objective.game.gamma, [lower_median(found[0] / found[1]) for found in first], rtol=1e-8)
    objective.game.step.fill_(199)
    with torch.no_grad():
        for parameter in objective.parameters():
            parameter *= 1.1
    smooth = [0.95 * old + 0.05 * new for old, new in zip(first, norms(), strict=True)]
    objective.loss(batch_of(x[None]))
    np.testing.assert_allclose(objective.game.gamma, [lower_median(found[0] / found[1]) for found in smooth], rtol=1e-8)
    now = objective.game.gamma.clone()
    objective.loss(batch_of(x[None]))
    torch.testing.assert_close(objective.game.gamma, now)


def lower_median(values):
    """Torch's median: of an even number of values the lower of the two in the middle."""
    return np.sort(values)[(len(values) - 1) // 2]


def test_critics_and_autoencoder_move_apart():
    objective, _ = made()
    moves = objective.moves()
    assert [move.networks for move in moves] == [
        *[(objective.game.pictures, objective.game.codes)] * 2,
        (objective.encoder, objective.generator),
    ]
    assert [move.lr_ratio for move in moves] == [2.5, 2.5, 1.0]  # 5e-4 and 2e-4


def test_digits_that_it_was_not_shown_are_rebuilt_worse(tmp_path):
    digits = load_digits()
    x = (digits.images * 15).astype(np.uint8)
    normal, others = x[digits.target == 1], x[digits.target == 0]
    detector = PIAD(features="random", layer="r11", hidden=(8, 8), latent=8, lr=1e-3, n_epochs=15, random_state=0).fit(
        normal[:120]
    )
    test = np.concatenate([normal[120:], others])
    score = detector.anomaly_score(test)
    assert roc_auc_score(np.arange(len(test)) >= len(normal) - 120, score) > 0.8
    detector.save(tmp_path / "model.esad")
    again = esad.load(tmp_path / "model.esad")
    np.testing.assert_array_equal(again.anomaly_score(test), score)
    assert {name.split(".")[0] for name in again.objective_.state_dict()} == {"encoder", "generator", "distance"}
