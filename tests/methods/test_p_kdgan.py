"""P-KDGAN: losses and score against numpy in float64; who moves in which phase, and what is kept."""

import copy

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score
from support import batch_of, pictures, tiny

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.p_kdgan import PKDGAN, WEIGHTS, PKDGANObjective
from esad.networks.spec import NetworkSpec
from esad.persist import bundle

MEMBERS, N, SHAPE = 2, 4, (3, 8, 8)
LAMBDAS = dict(zip(WEIGHTS, (5.0, 2.0, 3.0, 4.0), strict=True))


def make(stage="both"):
    spec = NetworkSpec("dcgan", SHAPE, hidden=(8, 12), latent=3, n_members=MEMBERS)
    objective = PKDGANObjective(spec, LAMBDAS, stage=stage).double()
    objective.reset(MemberRandom(range(MEMBERS), dtype=torch.float64))
    return objective


def log_sigmoid(x):
    return -np.log1p(np.exp(-x))


def played(player, x):
    return [value.detach().numpy() for value in player(x)]


def over_all(values):
    return values.reshape(MEMBERS, -1).mean(1)


@pytest.mark.parametrize("who", ["teacher", "student"])
def test_losses_are_equations_3_to_5(who):
    objective, x = make(), 2 * pictures(MEMBERS, N, *SHAPE) - 1
    player, judge = getattr(objective, who), getattr(objective, f"{who}_judge")
    other = objective.student if who == "teacher" else objective.teacher
    (code, rebuilt, second), (others_code, others_rebuilt, others_second) = played(player, x), played(other, x)
    f_real, real = (value.detach().numpy() for value in judge.features_and_code(x))
    f_made, made = (value.detach().numpy() for value in judge.features_and_code(torch.from_numpy(rebuilt)))
    wanted = {
        f"{who}_judge": over_all(-(log_sigmoid(real) + log_sigmoid(-made))),
        f"{who}_adversarial": over_all((f_real - f_made) ** 2),
        f"{who}_context": 5 * over_all(np.abs(rebuilt - x.numpy())),
        f"{who}_encoding": 2 * over_all((second - code) ** 2),
        f"{who}_codes": 3 * over_all((code - others_code) ** 2 + (second - others_second) ** 2),
        f"{who}_pictures": 4 * over_all(np.abs(rebuilt - others_rebuilt)),
    }
    losses = objective.judge_loss, objective.loss
    terms = [loss(batch_of((x + 1) / 2), name=who) for loss in losses]
    found = {name: term.detach().numpy() for part in terms for name, term in part.items()}
    assert found.keys() == wanted.keys()
    for name, term in wanted.items():
        np.testing.assert_allclose(found[name], term, rtol=1e-9, err_msg=name)


def test_score_is_the_distance_of_the_students_codes():
    objective, x = make().eval(), pictures(N, *SHAPE)
    code, _, second = played(objective.student, (2 * x - 1).expand(MEMBERS, *x.shape))
    np.testing.assert_allclose(objective.scorer()(x)["encoding"].detach(), ((second - code) ** 2).mean(2), rtol=1e-9)


def test_a_fixed_teacher_stays_as_it_is_to_the_last_statistic():
    objective = make("student").train()
    assert [move.networks for move in objective.moves()] == [(objective.student_judge,), (objective.student,)]
    before = copy.deepcopy(objective.teacher.state_dict())
    objective.loss(batch_of(pictures(MEMBERS, N, *SHAPE)))
    assert all(torch.equal(before[name], value) for name, value in objective.teacher.state_dict().items())
    assert objective.student.training


def test_phases_are_teacher_student_and_both():
    phases = PKDGAN(n_epochs=8, batch_size=5, hidden=(4,), latent=2)._phases(
        np.zeros((10, 1, 8, 8), dtype=np.float32), np.zeros(10, dtype=np.int8), torch.device("cpu")
    )
    assert [phase.objective.stage for phase in phases] == ["teacher", "student", "both"]
    assert [phase.settings.n_steps for phase in phases] == [8, 4, 4]
    assert [len(phase.objective.moves()) for phase in phases] == [2, 2, 4]


def test_only_the_student_is_kept_and_it_is_small(tmp_path):
    detector = tiny("p_kdgan", hidden=(8,)).fit(np.random.default_rng(0).random((8, 8, 8)))
    detector.save(tmp_path / "model.esad")
    _, tensors = bundle.read(tmp_path / "model.esad")
    weights = {name.removeprefix("model.weights.") for name in tensors if name.startswith("model.weights.")}
    assert {name.split(".")[0] for name in weights} == {"student"}
    assert tensors["model.weights.student.encoder_1.levels.0.convolution.weight"].shape[0] == 2 * 2  # of 8, two members


def test_weights_must_not_be_negative():
    with pytest.raises(InputError, match=r"`lambda_codes` must be a number, 0 or more\. Got -1"):
        PKDGAN(lambda_codes=-1).fit(np.zeros((4, 8, 8), dtype=np.uint8))


@pytest.mark.extra
def test_digits_of_another_class_have_codes_farther_apart():
    digits = load_digits()
    normal, other = digits.images[digits.target == 0], digits.images[digits.target != 0][:100]
    detector = PKDGAN(hidden=(16, 32), latent=8, lr=2e-3, batch_size=32, n_epochs=60, random_state=0)
    detector.fit(np.uint8(normal[:120] * 15.9))
    scores = detector.anomaly_score(np.uint8(np.concatenate([normal[120:], other]) * 15.9))
    assert roc_auc_score(np.arange(len(scores)) >= len(normal) - 120, scores) > 0.7
