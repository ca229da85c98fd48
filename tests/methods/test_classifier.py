"""The supervised classifier: its loss against plain numpy in float64, what counts as negative, what it learns."""

import numpy as np
import pytest
import torch
from support import perceptrons, tiny

from esad import SupervisedClassifier
from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.classifier import SupervisedObjective
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch

MEMBERS, FEATURES, N, M = 2, 5, 9, 4
SPEC = NetworkSpec.as_published("mlp", (FEATURES,), n_members=MEMBERS)


@pytest.fixture
def objective():
    made = SupervisedObjective(SPEC).double()
    made.reset(MemberRandom([1, 2], dtype=torch.float64))
    return made


def batch_of(n=N, m=M, seed=3):
    random = MemberRandom([seed, seed + 1], dtype=torch.float64)
    return Batch(random.normal(n, FEATURES), random.normal(m, FEATURES), -random.uniform(m).ceil(), random)


def logits_by_hand(objective, x, *, training):
    codes = perceptrons(objective.encoder, x, training=training)
    hidden = np.where(codes > 0, codes, 0.01 * codes)
    return perceptrons(objective.output, hidden, training=training)[:, :, 0]


def test_the_loss_is_the_cross_entropy_of_each_class_averaged_apart(objective):
    batch = batch_of()
    x = np.concatenate([batch.unlabelled.numpy(), batch.labelled.numpy()], axis=1)
    probability = 1 / (1 + np.exp(-logits_by_hand(objective, x, training=True)))
    found = objective.loss(batch)
    np.testing.assert_allclose(found["negatives"].detach(), -np.log(1 - probability[:, :N]).mean(1), rtol=1e-9)
    np.testing.assert_allclose(found["positives"].detach(), -np.log(probability[:, N:]).mean(1), rtol=1e-9)


@pytest.mark.parametrize(("n", "m"), [(N, 0), (0, M)])
def test_a_class_without_rows_drops_out(objective, n, m):
    terms = objective.loss(batch_of(n, m))
    assert (terms["negatives"] > 0).all() == (n > 0)
    assert (terms["positives"] > 0).all() == (m > 0)
    assert all(torch.isfinite(term).all() for term in terms.values())


def test_the_score_is_the_mean_logit_of_the_members(rows):
    detector = tiny("classifier", precision="float64").fit(*rows)
    x = detector.inputs_.transform(rows[0]).astype(np.float64)
    wanted = logits_by_hand(detector.objective_, np.stack([x, x]), training=False).mean(0)
    np.testing.assert_allclose(detector.anomaly_score(rows[0]), wanted, rtol=1e-9)


def test_known_normal_rows_are_negatives_like_the_unlabelled_ones(rows):
    X, y = rows
    detector = SupervisedClassifier()
    (phase,) = detector._phases(X.astype(np.float32), y.astype(np.int8), torch.device("cpu"))
    np.testing.assert_array_equal(phase.y, np.where(y == -1, -1, 0))


def test_the_logit_estimates_the_log_likelihood_ratio():
    """Unit Gaussians around 0 and around (1, 1): log p(x | anomaly) / p(x | normal) = x1 + x2 - 1, however rare."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(9000, 2)), rng.normal(1, 1, size=(900, 2))]
    y = np.r_[np.zeros(9000, dtype=int), np.full(900, -1)]
    detector = SupervisedClassifier(n_members=4, n_epochs=20, random_state=0).fit(X, y)
    x = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 0.5], [1.0, 1.0], [0.0, -1.0], [2.0, 0.5]])
    np.testing.assert_allclose(detector.anomaly_score(x), x.sum(1) - 1, atol=0.4)


def test_an_anomaly_hidden_among_the_unlabelled_rows_counts_as_normal(rows):
    X, _ = rows  # the last ten rows are odd
    y = np.zeros(100, dtype=int)
    y[-10:-5] = -1
    alone = SupervisedClassifier(n_epochs=400, random_state=0).fit(X[:-5], y[:-5]).anomaly_score(X[-5:])
    hidden = SupervisedClassifier(n_epochs=400, random_state=0).fit(X, y).anomaly_score(X[-5:])
    assert hidden.mean() < alone.mean() - 1


def test_wrong_arguments_are_refused(rows):
    for wrong in ({"network": "lenet"}, {"hidden": (0,)}, {"labelled_batch_size": 0}, {"batch_size": "auto"}):
        with pytest.raises(InputError, match=f"`{next(iter(wrong))}` must be"):
            SupervisedClassifier(**wrong).fit(*rows)
