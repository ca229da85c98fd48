"""AnoGAN: losses, averages, search and score against numpy in float64."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.anogan import AnoGAN, AnoGANObjective
from esad.networks.spec import NetworkSpec

MEMBERS, N, SHAPE, LATENT = 2, 5, (3, 8, 8), 3


def make(*, search_steps=4):
    spec = NetworkSpec("dcgan", SHAPE, hidden=(4, 6), latent=LATENT, n_members=MEMBERS, dense=(7,))
    objective = AnoGANObjective(spec, feature_weight=0.3, search_steps=search_steps).double()
    objective.reset(MemberRandom(range(MEMBERS), dtype=torch.float64))
    return objective


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def test_losses_are_equations_2_and_3():
    objective, x = make(), pictures(MEMBERS, N, *SHAPE)
    codes = MemberRandom(range(MEMBERS), dtype=torch.float64).normal(N, LATENT)
    drawn = objective.generator(codes).tanh()
    real, made = (objective.judge(some).detach().numpy()[..., 0] for some in (2 * x - 1, drawn))
    found = objective.judge_loss(batch_of(x))["judge"].detach()
    np.testing.assert_allclose(found, -(log_sigmoid(real) + log_sigmoid(-made)).mean(1), rtol=1e-9)
    np.testing.assert_allclose(objective.loss(batch_of(x))["generator"].detach(), -log_sigmoid(made).mean(1), rtol=1e-9)


def test_score_is_equation_6_at_the_code_that_adam_finds():
    objective, x = make().eval(), pictures(N, *SHAPE)
    with torch.inference_mode():  # as scoring runs
        found = {name: term.numpy() for name, term in objective.scorer()(x).items()}

    code = objective.start[:, None].repeat(1, N, 1).numpy()
    first, second = np.zeros_like(code), np.zeros_like(code)
    for step, rate in enumerate([0.01, 0.01, 0.001, 0.0005], start=1):  # of four: until 2/5, until 3/5, the rest
        slope = terms_and_slope(objective, x, code)[2]
        first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
        corrected = first / (1 - 0.9**step), second / (1 - 0.999**step)
        code = code - rate * 500 / 4 * corrected[0] / (np.sqrt(corrected[1]) + 1e-8)
    pixels, features, _ = terms_and_slope(objective, x, code)
    np.testing.assert_allclose(found["pixels"], pixels, rtol=1e-6)
    np.testing.assert_allclose(found["features"], features, rtol=1e-6)


def terms_and_slope(objective, x, code):
    """Eq. (4) in numpy from what the networks give, and its slope."""
    z = torch.from_numpy(code).requires_grad_()
    made = objective.generator(z).tanh()
    target = (2 * x - 1).expand(MEMBERS, *x.shape)
    f_made, f_real = objective.judge.features_and_code(made)[0], objective.judge.features_and_code(target)[0]
    total = 0.7 * (target - made).abs().sum() + 0.3 * (f_real - f_made).abs().sum()
    (slope,) = torch.autograd.grad(total, z)
    pixels = np.abs(target.numpy() - made.detach().numpy()).sum(axis=(2, 3, 4))
    features = np.abs((f_real - f_made).detach().numpy()).sum(axis=2)
    return 0.7 * pixels, 0.3 * features, slope.numpy()


def test_a_score_does_not_depend_on_the_pictures_beside_it():
    objective, x = make(search_steps=10).eval(), pictures(N, *SHAPE)
    score = objective.scorer()
    for name, term in score(x).items():
        np.testing.assert_allclose(score(x[2:3])[name].detach()[:, 0], term.detach()[:, 2], rtol=1e-9)


def test_averages_follow_the_weights_and_take_their_place():
    objective = make()
    wanted = objective.generator.state_dict()["levels.0.convolution.weight"].clone().numpy()
    for step in (1, 2):
        with torch.no_grad():
            for parameter in objective.generator.parameters():
                parameter += step
        objective.after_step()
        keep = (1 + step) / (10 + step)
        now = objective.generator.state_dict()["levels.0.convolution.weight"].numpy()
        wanted = keep * wanted + (1 - keep) * now
    objective.keep_for_scoring()
    np.testing.assert_allclose(objective.generator.state_dict()["levels.0.convolution.weight"], wanted, rtol=1e-9)
    assert not [name for name in objective.state_dict() if name.startswith(("averages", "n_steps"))]


@pytest.mark.parametrize("wrong", [{"feature_weight": 1.5}, {"search_steps": 0}, {"search_steps": 10**9}])
def test_wrong_arguments_are_named(wrong):
    with pytest.raises(InputError, match=f"`{next(iter(wrong))}` must be"):
        AnoGAN(**wrong).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_large_pictures_get_more_levels():
    detector = AnoGAN()
    assert detector._make_network((3, 32, 32), torch.device("cuda")).hidden == (64, 128)
    assert detector._make_network((3, 64, 64), torch.device("cuda")).hidden == (64, 128, 256)
    assert detector._make_network((1, 28, 28), torch.device("cpu")).hidden == (16, 32)


@pytest.mark.extra
def test_digits_of_another_class_are_farther_from_what_can_be_made():
    digits = load_digits()
    normal, other = digits.images[digits.target == 0], digits.images[digits.target != 0][:60]
    detector = AnoGAN(feature_weight=0.01, hidden=(8, 8), latent=8, lr=2e-3, n_epochs=60, batch_size=32, random_state=0)
    detector.fit(np.uint8(normal[:120] * 15.9))
    scores = detector.anomaly_score(np.uint8(np.concatenate([normal[120:], other]) * 15.9))
    assert roc_auc_score(np.arange(len(scores)) >= len(normal) - 120, scores) > 0.8
