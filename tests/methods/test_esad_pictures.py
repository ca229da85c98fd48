"""What ESAD does with pictures besides: moved ones, and decoys, turned pictures that stand for anomalies."""

import numpy as np
import pytest
import torch

from esad import load
from esad.core.processes import ALONE
from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.esad import ESAD
from esad.methods.esad.loss import ESADObjective, LossSettings
from esad.methods.esad.recipe import MAX_PRODUCTS
from esad.methods.esad.views import Decoys
from esad.networks.spec import NetworkSpec
from esad.train.objective import Batch

SPEC = NetworkSpec("conv", in_shape=(1, 8, 8), hidden=(2, 2), latent=2, n_members=2)


def objective(**settings) -> ESADObjective:
    made = ESADObjective(SPEC, LossSettings(phi="none", decoys=0.5, **settings)).double()
    made.reset(MemberRandom([0, 1], dtype=torch.float64))
    return made


def batch(n: int = 8, m: int = 2) -> Batch:
    random = MemberRandom([3, 4], dtype=torch.float64)
    y = torch.full((2, m), -1.0, dtype=torch.float64)
    return Batch(random.uniform(n, 1, 8, 8), random.uniform(m, 1, 8, 8), y, random)


def pictures(n: int, *, colour: bool = False) -> np.ndarray:
    shape = (n, 16, 16, 3) if colour else (n, 16, 16)
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def test_augmentation_moves_labelled_anomalies_only():
    spec = NetworkSpec("conv", in_shape=(1, 16, 16), hidden=(3,) * 4, latent=3, n_members=1)
    given = torch.rand(1, 4, 1, 16, 16)
    drawn = Batch(given, given, torch.tensor([[-1.0, 1.0, -1.0, 1.0]]), MemberRandom([3]))
    moved = ESADObjective(spec, LossSettings(augment=2)).view.augment(drawn)
    assert torch.equal(moved.unlabelled, given)
    assert torch.equal(moved.labelled[:, 1::2], given[:, 1::2])
    assert not torch.equal(moved.labelled[:, ::2], given[:, ::2])
    assert set(moved.labelled.flatten().tolist()) <= set(given.flatten().tolist())


@pytest.mark.parametrize("decoys", [0.0, 0.5])
def test_without_the_norm_pictures_are_scored_by_their_reconstruction(decoys):
    X, y = pictures(24), np.r_[-np.ones(4), np.zeros(20)].astype(int)
    settings = {"mutual_information": "reconstruction", "hidden": [2, 2], "latent": 2, "n_epochs": 1}
    detector = ESAD(lambda_norm=0, decoys=decoys, random_state=0, **settings).fit(X, y)
    terms = detector.score_terms(X)
    assert not terms["norm"].any()
    np.testing.assert_allclose(detector.anomaly_score(X), terms["reconstruction"])


def test_half_of_the_unlabelled_pictures_are_turned_and_none_is_left_upright():
    given = batch()
    decoys, turns = objective().view.decoys.draw(given)
    assert decoys.shape == (2, 4, 1, 8, 8)
    assert set(turns.flatten().tolist()) <= {1, 2, 3}
    for member in range(2):
        for k in range(4):
            wanted = torch.rot90(given.unlabelled[member, k], int(turns[member, k]), dims=(-2, -1))
            assert torch.equal(decoys[member, k], wanted)


def test_the_norm_of_decoys_counts_inverted_and_weighted():
    made = objective(gain=3.0, offset=0.5, lambda_norm=2.0).eval()
    given, told_apart = batch(m=0), torch.tensor([[1.0, 0.5, 1.0, 0.2]] * 2)
    made.view.decoys.told_apart.copy_(told_apart)
    normal_term = 2.0 * made.norm(made(given.unlabelled)[2]).mean(1)
    stream = given.random.state()
    decoys, turns = made.view.decoys.draw(given)
    given.random.set_state(stream)
    got = made.loss(given)["norm"]
    inverse = 3.0 / (made.norm(made(decoys)[2]) + 0.5)
    wanted = normal_term + 2.0 * (inverse * made.view.decoys.told_apart.gather(1, turns)).mean(1)
    torch.testing.assert_close(got, wanted)


def test_a_turn_is_weighed_by_how_well_it_is_told_apart():
    decoys, turns = objective().view.decoys, torch.tensor([[1, 2]] * 2)
    decoys.told_apart.copy_(torch.tensor([[1.0, 0.5, 1.0, 1.0]] * 2))
    norm, normal = torch.tensor([[1.0, 2.0]] * 2, dtype=torch.float64), torch.zeros(2, 5, dtype=torch.float64)
    weights = decoys.weigh(turns, norm, normal, ALONE)  # every decoy is told apart
    np.testing.assert_allclose(weights.numpy(), [[0.5 + Decoys.RATE * (1.0 - 0.5), 1.0]] * 2)


def test_a_turn_that_cannot_be_told_apart_loses_its_weight():
    decoys, turns = objective().view.decoys, torch.tensor([[1, 2]] * 2)
    normal = torch.arange(10, dtype=torch.float64).repeat(2, 1)
    for _ in range(2000):
        decoys.weigh(turns, torch.tensor([[2.0, 9.0]] * 2, dtype=torch.float64), normal, ALONE)
    np.testing.assert_allclose(decoys.told_apart.numpy(), [[1.0, Decoys.MIN_TOLD_APART, 1.0, 1.0]] * 2, atol=1e-6)


def test_decoys_enter_the_norm_term_alone():
    made, without = objective(), ESADObjective(SPEC, LossSettings(phi="none")).double()
    without.load_state_dict({name: value for name, value in made.state_dict().items() if "told_apart" not in name})
    made.eval()  # batch norm would mix decoys and pictures
    without.eval()
    with_decoys, plain = made.loss(batch()), without.loss(batch())
    torch.testing.assert_close(with_decoys["reconstruction"], plain["reconstruction"])
    assert (with_decoys["norm"] > plain["norm"]).all()


def test_the_score_holds_a_picture_against_its_turned_copies():
    made = objective(combine="scaled", norm_offset=1.0).eval()
    made.view.decoys.told_apart.copy_(torch.tensor([[1.0, 0.2, 0.6, 1.0]] * 2))
    x = torch.rand(5, 1, 8, 8, dtype=torch.float64)
    terms = made.scorer()(x)
    norms = [made.norm(made(torch.rot90(x, k, dims=(-2, -1)).expand(2, *x.shape))[2]) for k in range(4)]
    turned = sum(w * torch.log(norm + 1) for w, norm in zip((0.2, 0.6, 1.0), norms[1:], strict=True)) / 3
    torch.testing.assert_close(made.log("norm", terms), torch.log(norms[0] + 1) - turned)


def test_colour_pictures_have_decoys_and_grey_ones_do_not():
    small = {"hidden": (2, 2), "latent": 2, "n_epochs": 1, "random_state": 0, "device": "cpu"}
    grey = ESAD(**small).fit(pictures(20))
    colour = ESAD(**small).fit(pictures(20, colour=True))
    assert grey.recipe_.loss.decoys == 0
    assert (colour.recipe_.loss.decoys, colour.recipe_.loss.flip, colour.recipe_.loss.shift) == (0.5, True, 2)
    assert colour.recipe_.loss.decoys_alone
    assert np.isfinite(colour.anomaly_score(pictures(4, colour=True))).all()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"decoys": 1.5}, "`decoys`"),
        ({"decoys": 0.5, "restore": "rotate"}, "exclude each other"),
        ({"flip": "maybe"}, "`flip`"),
        ({"shift": -1}, "`shift`"),
        ({"compiled": "yes"}, "`compiled`"),
    ],
)
def test_wrong_arguments_are_named(arguments, words):
    with pytest.raises(InputError, match=words):
        ESAD(**arguments).fit(pictures(6))


def test_decoys_are_for_pictures():
    with pytest.raises(InputError, match="table"):
        ESAD(decoys=0.5).fit(np.random.default_rng(0).normal(size=(20, 3)))


def test_pictures_on_a_cpu_take_minutes_at_most_unless_more_is_asked_for(caplog):
    y = np.array([0] * 300 + [-1] * 10, dtype=np.int8)
    small, large = (ESAD().recipe_for((1, side, side), y) for side in (28, 64))
    assert "8 channels in the first level" in caplog.text
    assert "batches of 32 pictures, not 64; " in caplog.text and " steps, not 250" in caplog.text
    assert (small.settings.n_steps, small.settings.batch_size) == (250, 64)
    assert 50 < large.settings.n_steps < 250
    assert large.count_products(y) <= MAX_PRODUCTS
    asked = ESAD(n_epochs=50).recipe_for((1, 64, 64), y)
    assert (asked.settings.n_steps, asked.settings.batch_size) == (125, 64)
    caplog.clear()
    ESAD(n_epochs=5000, hidden=(8, 8)).recipe_for((1, 64, 64), y)
    assert "hours on one core" in caplog.text
    assert ESAD().recipe_for((1, 64, 64), y, "cuda").settings.n_steps == 250


def test_as_published_restores_what_was_hidden_from_mirrored_pictures():
    y = np.array([0] * 20 + [-1] * 4, dtype=np.int8)
    for shape in ((1, 16, 16), (3, 16, 16)):
        loss = ESAD.as_published().recipe_for(shape, y).loss
        assert (loss.restore, loss.flip, loss.signed) == ("both", True, True)
        assert (loss.augment, loss.shift, loss.decoys, loss.turns) == (0, 0, 0.0, 0.0)
    ours = ESAD().recipe_for((1, 16, 16), y).loss
    assert (ours.restore, ours.signed) == ("none", False)
    assert ESAD.as_published().recipe_for((5,), y).loss.restore == "none"


@pytest.mark.parametrize("skips", [False, True])
def test_the_published_loss_is_of_grey_turned_signed_pictures(skips):
    spec = NetworkSpec("conv", in_shape=(3, 8, 8), hidden=(2, 2), latent=2, n_members=2)
    made = ESADObjective(spec, LossSettings(restore="both", signed=True, flip=True, skips=skips)).double()
    made.reset(MemberRandom([0, 1], dtype=torch.float64))
    made.eval()
    x = MemberRandom([5], dtype=torch.float64).uniform(3, 3, 8, 8)[0]
    signed = (2 * x - 1).expand(2, 3, 3, 8, 8)
    grey = signed.mean(2, keepdim=True).expand_as(signed)
    errors, norms = [], []
    for turn in range(4):
        _, rebuilt, code = made(torch.rot90(grey, turn, dims=(-2, -1)))
        errors.append((rebuilt - signed).square().flatten(2).mean(2))
        norms.append(code.flatten(2).square().mean(2).sqrt())
    terms = made.scorer()(x)
    torch.testing.assert_close(terms["reconstruction"], torch.stack(errors).mean(0))
    torch.testing.assert_close(terms["norm"], torch.stack(norms).mean(0), rtol=0, atol=1e-6)  # kept away from 0
    shown = made.rebuilder()(x)
    assert shown.shape == (2, 3, 3, 8, 8)
    torch.testing.assert_close(made.summands()(x)["reconstruction"].flatten(2).sum(2), terms["reconstruction"])


def test_a_model_with_skips_is_saved_and_loaded(tmp_path):
    x, y = pictures(24, colour=True), np.array([0] * 20 + [-1] * 4)
    detector = ESAD.as_published(network="unet", hidden=(3, 3), latent=3, n_epochs=1, random_state=0).fit(x, y)
    detector.save(tmp_path / "m.esad")
    np.testing.assert_array_equal(load(tmp_path / "m.esad").anomaly_score(x), detector.anomaly_score(x))
