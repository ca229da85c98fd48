"""OCGAN: losses, mining and score against numpy in float64; the two phases and what is kept."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures, tiny

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.ocgan import OCGAN, OCGANObjective
from esad.networks.spec import NetworkSpec
from esad.persist import bundle

MEMBERS, N, SHAPE, LATENT = 2, 4, (3, 8, 8), 3


def make(*, mines=True):
    spec = NetworkSpec("dcgan", SHAPE, hidden=(8, 16), latent=LATENT, n_members=MEMBERS)
    objective = OCGANObjective(spec, sigma=0.3, lambda_context=11.0, mining_step=2.0, mines=mines).double()
    objective.reset(MemberRandom(range(MEMBERS), dtype=torch.float64))
    return objective


def draws(*kinds):
    """Noise for pictures ("x") and uniform codes ("u") in the order in which a loss draws them."""
    random = MemberRandom(range(MEMBERS), dtype=torch.float64)
    return [0.3 * random.normal(N, *SHAPE) if kind == "x" else 2 * random.uniform(N, LATENT) - 1 for kind in kinds]


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def numbers(network, x):
    return network(x).detach().numpy()[..., 0]


def test_the_judges_losses_are_equations_2_and_3():
    objective, x = make(), pictures(MEMBERS, N, *SHAPE)
    real_code, other_code, noise = draws("u", "u", "x")
    code = objective.encoder(2 * x - 1 + noise).tanh()
    made = objective.decoder(other_code).tanh()
    found = {name: term.detach().numpy() for name, term in objective.judge_loss(batch_of(x)).items()}
    yes, no = numbers(objective.code_judge, real_code), numbers(objective.code_judge, code)
    np.testing.assert_allclose(found["code_judge"], -(log_sigmoid(yes) + log_sigmoid(-no)).mean(1) / 2, rtol=1e-9)
    yes, no = numbers(objective.picture_judge, 2 * x - 1), numbers(objective.picture_judge, made)
    np.testing.assert_allclose(found["picture_judge"], -(log_sigmoid(yes) + log_sigmoid(-no)).mean(1) / 2, rtol=1e-9)


def test_the_classifiers_loss_is_equation_4():
    objective, x = make(), pictures(MEMBERS, N, *SHAPE)
    other_code, noise = draws("u", "x")
    rebuilt = objective.decoder(objective.encoder(2 * x - 1 + noise).tanh()).tanh()
    yes, no = (
        numbers(objective.classifier, rebuilt),
        numbers(objective.classifier, objective.decoder(other_code).tanh()),
    )
    found = objective.classifier_loss(batch_of(x))["classifier"].detach()
    np.testing.assert_allclose(found, -(log_sigmoid(yes) + log_sigmoid(-no)).mean(1) / 2, rtol=1e-9)


@pytest.mark.parametrize("mines", [False, True])
def test_the_autoencoders_loss_is_equation_6_with_the_codes_of_equation_5(mines):
    objective, x = make(mines=mines), pictures(MEMBERS, N, *SHAPE)
    start, noise = draws("u", "x")
    if mines:
        slope = np.zeros(start.shape)
        for index in np.ndindex(start.shape):  # d/dv of -log(1 - C), by differences
            sides = []
            for sign in (1, -1):
                moved = start.clone()
                moved[index] += sign * 1e-6
                worst = -log_sigmoid(-numbers(objective.classifier, objective.decoder(moved.tanh()).tanh()))
                sides.append(worst.sum())
            slope[index] = (sides[0] - sides[1]) / 2e-6
        start = start - 2.0 * torch.from_numpy(slope)
    code = objective.encoder(2 * x - 1 + noise).tanh()
    rebuilt = objective.decoder(code).tanh().detach().numpy()
    judged = numbers(objective.picture_judge, objective.decoder(start.tanh()).tanh())
    wanted = {
        "codes": -10 * log_sigmoid(numbers(objective.code_judge, code)).mean(1),
        "pictures": -log_sigmoid(judged).mean(1),
        "reconstruction": 11 / 2 * ((2 * x.numpy() - 1 - rebuilt) ** 2).mean(axis=(1, 2, 3, 4)),
    }
    found = {name: term.detach().numpy() for name, term in objective.loss(batch_of(x)).items()}
    assert found.keys() == wanted.keys()
    for name, term in wanted.items():
        np.testing.assert_allclose(found[name], term, rtol=1e-6, err_msg=name)


def test_score_is_the_error_of_the_reconstruction():
    objective, x = make().eval(), pictures(N, *SHAPE)
    signed = (2 * x - 1).expand(MEMBERS, *x.shape)
    rebuilt = objective.decoder(objective.encoder(signed).tanh()).tanh().detach().numpy()
    wanted = ((signed.numpy() - rebuilt) ** 2).mean(axis=(2, 3, 4))
    np.testing.assert_allclose(objective.scorer()(x)["reconstruction"].detach(), wanted, rtol=1e-9)


def test_mining_is_the_last_quarter_and_goes_on_from_what_was_learned():
    first, last = OCGAN(n_epochs=8, batch_size=5, hidden=(4,), latent=2)._phases(
        np.zeros((10, 1, 8, 8), dtype=np.float32), np.zeros(10, dtype=np.int8), torch.device("cpu")
    )
    assert (first.objective.mines, last.objective.mines) == (False, True)
    assert (first.settings.n_steps, last.settings.n_steps) == (12, 4)
    first.objective.reset(MemberRandom([1]))
    last.objective.inherit(first.objective)
    assert torch.equal(last.objective.state_dict()["decoder.levels.0.convolution.weight"],
                       first.objective.state_dict()["decoder.levels.0.convolution.weight"])  # fmt: skip


def test_judges_and_classifier_are_not_kept(tmp_path):
    detector = tiny("ocgan").fit(np.random.default_rng(0).random((8, 8, 8)))
    detector.save(tmp_path / "model.esad")
    _, tensors = bundle.read(tmp_path / "model.esad")
    assert {name.split(".")[2] for name in tensors if name.startswith("model.weights.")} == {"encoder", "decoder"}


def test_weights_must_not_be_negative():
    with pytest.raises(InputError, match=r"`mining_step` must be a number, 0 or more\. Got -1"):
        OCGAN(mining_step=-1).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_digits_of_another_class_are_rebuilt_worse():
    digits = load_digits()
    normal, other = digits.images[digits.target == 0], digits.images[digits.target != 0][:100]
    detector = OCGAN(hidden=(8, 8), latent=4, lr=2e-3, batch_size=32, n_epochs=15, random_state=0)
    detector.fit(np.uint8(normal[:120] * 15.9))
    scores = detector.anomaly_score(np.uint8(np.concatenate([normal[120:], other]) * 15.9))
    assert roc_auc_score(np.arange(len(scores)) >= len(normal) - 120, scores) > 0.85
