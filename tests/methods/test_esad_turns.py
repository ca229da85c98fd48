"""The second bound on the mutual information: turns told from the code, against plain numpy, and in real trainings."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from esad import export, load
from esad.core.processes import BatchShare
from esad.core.random import MemberRandom
from esad.errors import InputError, ModelFileError
from esad.methods.esad import ESAD
from esad.methods.esad.loss import LossSettings
from esad.methods.esad.turns import N_NEAREST, TEMPERATURE, TERMS, Turns, TurnsObjective, have_upper_side
from esad.networks.spec import NetworkSpec
from esad.persist import bundle
from esad.train.objective import Batch, RowPool

SPEC = NetworkSpec("conv", in_shape=(1, 8, 8), hidden=(2, 3), latent=4, n_members=2)
SETTINGS = LossSettings(turns=4.0, places=1, crop=0.75, n_codes=9)


def turns(settings: LossSettings = SETTINGS) -> Turns:
    made = TurnsObjective(SPEC, settings).double()
    made.reset(MemberRandom([0, 1], dtype=torch.float64))
    return made.turns


def pictures(n: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).uniform(size=(n, 1, 8, 8)))


def batch(y: list[float], seed: int = 3) -> Batch:
    random = MemberRandom([seed, seed + 1], dtype=torch.float64)
    labels = torch.tensor([y, y], dtype=torch.float64)
    return Batch(random.uniform(5, 1, 8, 8), random.uniform(len(y), 1, 8, 8), labels, random)


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def test_the_loss_is_eq_11():
    """Turn and both places; a labelled anomaly is to tell nothing, a labelled normal picture what it is."""
    own, given = turns(), batch([-1.0, 1.0, -1.0])
    state = given.random.state()
    views, changes = own._views(torch.cat([given.unlabelled, given.labelled], dim=1), given.random)
    with torch.no_grad():
        logits = own._logits(own._pool_levels(views)[-1]).numpy()
    given.random.set_state(state)
    found = own.loss_terms(given)["turn"]
    right, uniform = np.zeros(logits.shape[:2]), np.zeros(logits.shape[:2])
    for part, change in zip(np.split(logits, [4, 7], axis=2), changes, strict=True):
        log_q = log_softmax(part)
        right -= np.take_along_axis(log_q, change.numpy()[..., None], 2)[..., 0]
        uniform -= log_q.mean(2)
    right, uniform = (values.reshape(2, 8, 4).mean(2) for values in (right, uniform))
    labelled = np.stack([uniform[:, 5], right[:, 6], uniform[:, 7]], axis=1)
    np.testing.assert_allclose(found.detach().numpy(), right[:, :5].mean(1) + labelled.mean(1), rtol=1e-9)


def test_contrast_is_eq_13():
    """Two pictures made of each, apart for unlabelled and labelled normal ones; a known anomaly has no part in it."""
    own, given = turns(replace(SETTINGS, contrast=0.5)), batch([-1.0, 1.0])
    state = given.random.state()
    shown = torch.cat([given.unlabelled, given.labelled], dim=1)
    views = torch.cat([own._views(shown, given.random)[0] for _ in range(2)], dim=1)
    with torch.no_grad():
        code = own._pool_levels(views)[-1].numpy()
    given.random.set_state(state)
    found = own.loss_terms(given)["contrast"].detach().numpy()
    for member in range(2):
        first, second = (weight[member].detach().numpy() for weight in own.projection)
        projected = np.maximum(code[member] @ first, 0) @ second
        projected /= np.linalg.norm(projected, axis=1, keepdims=True)
        alike = projected @ projected.T / TEMPERATURE
        n = len(alike)
        losses = np.array([np.log(np.exp(np.delete(alike[i], i)).sum()) - alike[i, (i + n // 2) % n] for i in range(n)])
        by_picture = losses.reshape(2, 7, 4).mean((0, 2))
        assert found[member] == pytest.approx(0.5 * (by_picture[:5].mean() + by_picture[6] / 2), rel=1e-9)


def test_contrast_is_for_colour_pictures_without_known_anomalies_on_a_gpu():
    y, colour = np.zeros(50, dtype=np.int8), (3, 16, 16)
    assert ESAD().recipe_for(colour, y, "cuda").loss.contrast > 0
    assert ESAD().recipe_for(colour, y, "cpu").loss.contrast == 0
    assert ESAD().recipe_for((1, 16, 16), y, "cuda").loss.contrast == 0
    y[0] = -1
    assert ESAD().recipe_for(colour, y, "cuda").loss.contrast == 0


def test_every_picture_is_seen_in_all_turns():
    own = turns(LossSettings(turns=1.0, crop=1.0, n_codes=9))
    x = pictures(3).expand(2, 3, 1, 8, 8)
    views, (told,) = own._views(x, MemberRandom([0, 1], dtype=torch.float64))
    assert told.tolist() == [[0, 1, 2, 3] * 3] * 2
    smooth = torch.cumsum(torch.cumsum(x[0], -1), -2) / 64  # which a cut-out changes little
    views, _ = own._views(smooth.expand(2, 3, 1, 8, 8), MemberRandom([0, 1], dtype=torch.float64))
    for number, view in enumerate(views[0]):
        turned = [torch.rot90(smooth[number // 4], turn, dims=(-2, -1)) for turn in range(4)]
        alike = [torch.corrcoef(torch.stack([view.flatten(), one.flatten()]))[0, 1] for one in turned]
        assert int(torch.stack(alike).argmax()) == number % 4


def test_scores_are_eq_12():
    own = turns()
    x = pictures(40)
    rows = torch.arange(9).expand(2, 9)
    none = torch.empty((2, 0), dtype=torch.int64)
    own.eval()
    own.keep_codes(RowPool(x, rows, none, torch.empty(2, 0), 0))
    found = own.raw_terms(x[5:12])
    for member in range(2):
        logit, cosine = np.zeros(7), np.zeros(7)
        for turn in range(4):
            pooled = [
                own._pool_levels(torch.rot90(some, turn, (-2, -1)).expand(2, *some.shape)) for some in (x[5:12], x[:9])
            ]
            codes, known = ([level[member].detach().numpy() for level in levels] for levels in pooled)
            bias = own.bias[member].detach().numpy()
            logit += (codes[-1] @ own.weight[member].detach().numpy() + bias)[:, turn] / 4
            similar = np.mean(
                [
                    (a / np.linalg.norm(a, axis=1, keepdims=True)) @ (b / np.linalg.norm(b, axis=1, keepdims=True)).T
                    for a, b in zip(codes, known, strict=True)
                ],
                axis=0,
            )
            cosine += -np.sort(-similar, axis=1)[:, 1 : N_NEAREST + 1].mean(1) / 4
            if turn == 0:
                length = np.linalg.norm(codes[-1], axis=1)
        expected = {"turn": -logit, "length": -length, "nearest": 1 - cosine}
        for name in TERMS:
            np.testing.assert_allclose(found[name][member].detach().numpy(), expected[name], rtol=1e-9, atol=1e-12)


def test_parts_of_a_batch_draw_what_the_whole_draws():
    own, x = turns(), pictures(6).expand(2, 6, 1, 8, 8)
    whole, _ = own._views(x, MemberRandom([0, 1], dtype=torch.float64))
    by_picture = torch.unflatten(whole, 1, (6, 4))
    for rank in range(2):
        part = MemberRandom([0, 1], dtype=torch.float64).for_part(BatchShare(rank, 2))
        views, _ = own._views(x[:, rank::2], part)
        assert torch.allclose(torch.unflatten(views, 1, (3, 4)), by_picture[:, rank::2])


# ---------------------------------------------------------------------- whether turns can be told


def digits() -> tuple[np.ndarray, np.ndarray]:
    found = load_digits()
    return (found.images / 16 * 255).astype(np.uint8), found.target


def test_digits_have_an_upper_side_and_noise_has_none():
    images, target = digits()
    assert have_upper_side(images[target == 3][:, None].astype(np.float32) / 255)
    noise = np.random.default_rng(0).uniform(size=(300, 1, 8, 8)).astype(np.float32)
    assert not have_upper_side(noise)
    assert not have_upper_side(noise[:10])


def small(**changes) -> ESAD:
    settings = {"hidden": [4, 8], "latent": 8, "n_epochs": 2, "random_state": 0, "device": "cpu"}
    return ESAD(**settings | changes)


def test_turns_are_taken_where_they_can_be_told():
    images, target = digits()
    threes = images[target == 3]
    noise = np.random.default_rng(0).integers(0, 256, (100, 8, 8)).astype(np.uint8)
    assert small().fit(threes).recipe_.loss.turns > 0
    assert small().fit(noise).recipe_.loss.turns == 0
    assert small(mutual_information="reconstruction").fit(threes).recipe_.loss.turns == 0
    assert small(mutual_information="both").fit(noise).recipe_.loss.turns > 0
    assert small(decoys=0.5).fit(threes).recipe_.loss.turns == 0
    assert ESAD.as_published().mutual_information == "reconstruction"


def test_turns_are_for_pictures_in_the_deep_network():
    with pytest.raises(InputError, match="mutual_information"):
        ESAD(mutual_information="both").fit(np.random.default_rng(0).normal(size=(20, 3)))
    images, _ = digits()
    with pytest.raises(InputError, match="conv"):
        ESAD(mutual_information="both", network="lenet", n_epochs=1).fit(np.kron(images[:50], np.ones((1, 4, 4))))


# ---------------------------------------------------------------------- a real training


@pytest.fixture(scope="module")
def fitted() -> tuple[ESAD, np.ndarray, np.ndarray]:
    """Threes are normal, some fives are known; the rest of all digits is for judging."""
    images, target = digits()
    normal, known = np.flatnonzero(target == 3)[:120], np.flatnonzero(target == 5)[:8]
    X = images[np.r_[normal, known]]
    y = np.r_[np.zeros(120, dtype=int), np.full(8, -1)]
    rest = np.setdiff1d(np.arange(len(images)), np.r_[normal, known])
    detector = small(n_epochs=60, hidden=[8, 16], latent=16).fit(X, y)
    return detector, images[rest], target[rest] != 3


def test_it_ranks_other_digits_above_threes(fitted):
    detector, images, truth = fitted
    from sklearn.metrics import roc_auc_score

    assert roc_auc_score(truth, detector.anomaly_score(images)) > 0.95
    assert roc_auc_score(truth, detector.score_terms(images)["nearest"]) > 0.95


def test_a_training_picture_is_not_its_own_neighbour(fitted):
    """Else those whose codes are kept would look more normal than those that were left out."""
    detector, _, _ = fitted
    scores, seen = detector.training_scores_, detector.training_unseen_by_
    held_out = scores[(seen >= 0) & np.isfinite(scores)]
    images, target = digits()
    total = detector.anomaly_score(images[np.flatnonzero(target == 3)[:120]])
    assert abs(np.median(held_out) - np.median(total)) < np.std(total)


def test_it_saves_and_loads(fitted, tmp_path):
    detector, images, _ = fitted
    detector.save(tmp_path / "turns.esad")
    assert np.array_equal(load(tmp_path / "turns.esad").anomaly_score(images[:20]), detector.anomaly_score(images[:20]))


def test_a_file_with_too_few_known_codes_is_refused(fitted, tmp_path):
    """Else there are no six of which to leave the nearest out."""
    path = tmp_path / "turns.esad"
    fitted[0].save(path)
    manifest, tensors = bundle.read(path)
    manifest = {key: value for key, value in manifest.items() if key not in bundle._STATED}
    manifest["model"]["objective"]["loss"]["n_codes"] = N_NEAREST
    name = "model.weights.view.turns.known"
    bundle.write(path, manifest, {**tensors, name: tensors[name][:, :, :N_NEAREST]})
    with pytest.raises(ModelFileError, match="n_codes"):
        load(path)


def test_codes_that_are_nearly_alike_are_told_apart_in_float32(tmp_path):
    """After a short training they differ in their third digit; another runtime must find the same distances."""
    pytest.importorskip("onnxruntime")
    images, target = digits()
    normal, known = images[target == 3][:100], images[target == 5][:8]
    y = np.r_[np.zeros(92, dtype=int), np.ones(8, dtype=int), np.full(8, -1)]
    detector = small(n_epochs=10, mutual_information="both").fit(np.r_[normal, known], y)
    assert export(detector, tmp_path / "turns.onnx", X=images[:200]).difference < 5e-5


def test_reasons_add_up(fitted):
    detector, images, _ = fitted
    maps = detector.explain(images[:2])
    assert np.isfinite(maps.heat).all()
    shares = sum(share.sum((1, 2)) for share in maps.shares.values())
    np.testing.assert_allclose(shares + sum(maps.base.values()), maps.score, atol=1e-3)


def test_two_members_are_the_mean_of_two(fitted):
    images, target = digits()
    detector = small(n_members=2, mutual_information="both").fit(images[target == 3])
    assert detector.objective_.view.turns.known.shape[:2] == (2, 4)
    assert np.isfinite(detector.anomaly_score(images[:5])).all()
