"""ALOCC: losses and score against numpy in float64, and who moves on which of them."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.alocc import ALOCC, ALOCCObjective
from esad.networks.spec import NetworkSpec

MEMBERS, N, SHAPE = 2, 5, (3, 8, 8)


def make(n_members=MEMBERS):
    spec = NetworkSpec("dcgan", in_shape=SHAPE, hidden=(4,), latent=6, n_members=n_members)
    objective = ALOCCObjective(spec, sigma=0.3, lambda_repair=0.7).double()
    objective.reset(MemberRandom(range(n_members), dtype=torch.float64))
    return objective


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def noisy(x):
    noise = MemberRandom(range(len(x)), dtype=torch.float64).normal(*x.shape[1:])
    return torch.from_numpy(np.clip(x.numpy() + 0.3 * noise.numpy(), 0, 1))


def test_losses_are_equations_4_and_5():
    objective, x = make(), pictures(MEMBERS, N, *SHAPE)
    got = {
        name: term.detach().numpy()
        for loss in (objective.judge_loss, objective.loss)
        for name, term in loss(batch_of(x)).items()
    }
    repaired = sigmoid(objective.decoder(objective.encoder(noisy(x))).detach().numpy())
    belief = sigmoid(objective.judge(x).detach().numpy()[..., 0])
    deceived = sigmoid(objective.judge(torch.from_numpy(repaired)).detach().numpy()[..., 0])
    entropy = -(x.numpy() * np.log(repaired) + (1 - x.numpy()) * np.log(1 - repaired))
    wanted = {
        "judge": -(np.log(belief) + np.log(1 - deceived)).mean(1),
        "deception": -np.log(deceived).mean(1),
        "repair": 0.7 * entropy.mean(axis=(1, 2, 3, 4)),
    }
    assert got.keys() == wanted.keys()
    for name, term in wanted.items():
        np.testing.assert_allclose(got[name], term, rtol=1e-9, err_msg=name)


def test_score_is_the_disbelief_in_the_repaired_picture():
    objective, x = make().eval(), pictures(N, *SHAPE)
    repaired = objective.rebuilder()(x)
    belief = sigmoid(objective.judge(repaired).detach().numpy()[..., 0])
    np.testing.assert_allclose(objective.scorer()(x)["disbelief"].detach(), -np.log(belief), rtol=1e-9)
    assert repaired.shape == (MEMBERS, N, *SHAPE)


def test_a_step_is_a_move_of_the_judge_and_two_of_the_autoencoder():
    objective = make()
    judge, *repairs = objective.moves()
    assert judge.networks == (objective.judge,)
    assert [move.networks for move in repairs] == [(objective.encoder, objective.decoder)] * 2


def test_the_widths_are_the_authors():
    with torch.device("meta"):
        objective = ALOCC()._objective(NetworkSpec("dcgan", (1, 28, 28), ALOCC.auto_hidden, ALOCC.auto_latent))
    outs = [
        [block.convolution.out_channels for block in network.levels]
        for network in (objective.encoder, objective.decoder, objective.judge)
    ]
    assert outs == [[32, 64, 128], [32, 16, 1], [16, 32, 64, 128]]


def test_noise_must_not_be_negative():
    with pytest.raises(InputError, match=r"`sigma` must be a number, 0 or more\. Got -1"):
        ALOCC(sigma=-1).fit(np.zeros((4, 8, 8), dtype=np.uint8))


@pytest.mark.extra
def test_digits_of_another_class_are_believed_less():
    digits = load_digits()
    normal, other = digits.images[digits.target == 6], digits.images[digits.target != 6][:100]
    detector = ALOCC(lambda_repair=5.0, hidden=(8,), latent=16, n_members=3, batch_size=16, n_epochs=40, random_state=1)
    detector.fit(np.uint8(normal[:120] * 15.9))
    scores = detector.anomaly_score(np.uint8(np.concatenate([normal[120:], other]) * 15.9))
    assert roc_auc_score(np.arange(len(scores)) >= len(normal) - 120, scores) > 0.7
