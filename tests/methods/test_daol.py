"""DAOL, as we read it: losses against numpy in float64, whose moves they are, and digits that it was not shown."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures

import esad
from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.daol import DAOL, DAOLObjective
from esad.networks.spec import NetworkSpec

MEMBERS, N, SHAPE = 2, 6, (1, 8, 8)


@pytest.fixture
def objective():
    spec = NetworkSpec("dcgan", in_shape=SHAPE, hidden=(3, 4), latent=5, n_members=MEMBERS)
    made = DAOLObjective(spec, 0.7, 30.0, 0.3).double()
    made.reset(MemberRandom(range(MEMBERS), dtype=torch.float64))
    return made.eval()  # batch norm with its own statistics: calls do not change each other


def sigmoid(logit):
    return 1 / (1 + np.exp(-logit.detach().numpy()[..., 0]))


def test_losses_are_equations_2_to_6(objective):
    x = pictures(MEMBERS, N, *SHAPE)
    batch = batch_of(x)
    state = batch.random.state()
    found = []
    for loss in (objective.loss, objective.judges_loss):
        batch.random.set_state(state)
        found.append({name: term.detach().numpy() for name, term in loss(batch).items()})
    batch.random.set_state(state)
    prior = batch.random.normal(N, 5)
    code = objective.encoder_1(x)
    rebuilt, made = objective.generator(code).sigmoid(), objective.generator(prior).sigmoid()
    on_real, on_rebuilt, on_made = (sigmoid(objective.judge(some)) for some in (x, rebuilt, made))
    on_prior, on_code = (sigmoid(objective.code_judge(some)) for some in (prior, code))
    apart = (rebuilt - x).detach().numpy()
    second = (objective.encoder_2(rebuilt) - code).detach().numpy()
    makers = {
        "rebuilt": -0.7 * np.log(on_rebuilt).mean(axis=1),
        "made": -0.7 * np.log(on_made).mean(axis=1),
        "codes": -0.7 * np.log(on_code).mean(axis=1),
        "context": 30.0 * np.abs(apart).mean(axis=(1, 2, 3, 4)),
        "encoding": 0.3 * (second**2).mean(axis=(1, 2)),
    }
    judges = {
        "judge": -(np.log(on_real) + (np.log(1 - on_rebuilt) + np.log(1 - on_made)) / 2).mean(axis=1),
        "judge of codes": -(np.log(on_prior) + np.log(1 - on_code)).mean(axis=1),
    }
    for got, wanted in zip(found, (makers, judges), strict=True):
        assert got.keys() == wanted.keys()
        for name, term in wanted.items():
            np.testing.assert_allclose(got[name], term, rtol=1e-9, err_msg=name)


def test_score_is_the_error_of_the_rebuilt_picture(objective):
    x = pictures(N, *SHAPE)
    both = x.expand(MEMBERS, *x.shape)
    wanted = np.abs((objective.generator(objective.encoder_1(both)).sigmoid() - both).detach().numpy())
    np.testing.assert_allclose(objective.scorer()(x)["context"].detach(), wanted.mean(axis=(2, 3, 4)), rtol=1e-9)
    np.testing.assert_allclose(objective.summands()(x)["context"].detach(), wanted / 64, rtol=1e-9)


def test_the_discriminators_move_first_and_then_the_others(objective):
    judges, makers = objective.moves()
    assert judges.networks == (objective.judge, objective.code_judge)
    assert makers.networks == (objective.encoder_1, objective.generator, objective.encoder_2)


def test_digits_that_it_was_not_shown_are_rebuilt_worse(tmp_path):
    digits = load_digits()
    x = (digits.images * 15).astype(np.uint8)
    normal, others = x[digits.target == 1], x[digits.target == 0]
    detector = DAOL(hidden=(8, 16), latent=8, lr=3e-3, n_epochs=20, batch_size=32, random_state=0).fit(normal[:120])
    test = np.concatenate([normal[120:], others])
    score = detector.anomaly_score(test)
    assert roc_auc_score(np.arange(len(test)) >= len(normal) - 120, score) > 0.8
    detector.save(tmp_path / "model.esad")
    again = esad.load(tmp_path / "model.esad")
    np.testing.assert_array_equal(again.anomaly_score(test), score)
    assert {name.split(".")[0] for name in again.objective_.state_dict()} == {"encoder_1", "generator"}


def test_weights_must_not_be_negative():
    with pytest.raises(InputError, match=r"`lambda_context` must be a number, 0 or more\. Got -1"):
        DAOL(lambda_context=-1).fit(np.zeros((4, 8, 8), dtype=np.uint8))
