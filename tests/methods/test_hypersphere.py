"""Deep SVDD, Deep SAD and TLSAD: centre, losses and pretraining against plain numpy in float64."""

import numpy as np
import pytest
import torch
from support import perceptrons

from esad import TLSAD, DeepSAD, DeepSVDD
from esad.bench.execute import N_LOOKS, execute
from esad.bench.grid import Cell
from esad.core.random import MemberRandom
from esad.errors import DataFileError, InputError
from esad.methods import deep_svdd
from esad.methods.deep_sad import DeepSADObjective
from esad.methods.deep_svdd import OneClassObjective, SoftBoundaryObjective
from esad.methods.tlsad import Reference, TLSADObjective
from esad.networks.pretrained import read_weights
from esad.networks.resnet import WEIGHTS, ResNet18
from esad.networks.spec import NetworkSpec
from esad.train.autoencoder import AutoencoderObjective
from esad.train.callbacks import StopTraining
from esad.train.objective import Batch, RowPool
from esad.train.transforms import augment_pictures

MEMBERS, FEATURES = 2, 5
SPEC = NetworkSpec.as_published("mlp", (FEATURES,), n_members=MEMBERS)


def made(objective):
    random = MemberRandom([1, 2], dtype=torch.float64)
    objective.double().reset(random)
    return objective, random


def batch_of(random, n=7, m=4):
    y = torch.tensor([[-1.0, 1, -1, 1]] * MEMBERS, dtype=torch.float64)[:, :m]
    return Batch(random.normal(n, FEATURES), random.normal(m, FEATURES), y, random)


def training_data(n=40, n_labelled=4):
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(n, FEATURES)))
    y = torch.zeros(n, dtype=torch.int8)
    y[: n_labelled // 2], y[n_labelled // 2 : n_labelled] = -1, 1
    return RowPool.from_shared_rows(x, y, n_members=MEMBERS)


def encoded(encoder, x, member):
    """Codes of the rows x by one member, in plain numpy."""
    return perceptrons(encoder, np.broadcast_to(x, (MEMBERS, *x.shape)))[member]


def test_the_centre_is_the_mean_code_kept_away_from_zero():
    objective, _ = made(OneClassObjective(SPEC))
    data = training_data()
    objective.train()
    objective.prepare(data)
    assert objective.encoder.training
    for member in range(MEMBERS):
        wanted = encoded(objective.encoder, data.x.numpy(), member).mean(0)
        near = np.abs(wanted) < 0.1
        assert near.any()
        wanted[near] = np.where(wanted[near] < 0, -0.1, 0.1)
        np.testing.assert_allclose(objective.centre[member].numpy(), wanted, rtol=1e-10)


def test_one_class_loss_is_the_mean_squared_distance():
    objective, random = made(OneClassObjective(SPEC))
    objective.centre.fill_(0.3)
    batch = batch_of(random)
    objective.eval()
    found = objective.loss(batch)
    for member in range(MEMBERS):
        codes = encoded(objective.encoder, batch.unlabelled[member].numpy(), member)
        assert found["distance"][member].item() == pytest.approx(((codes - 0.3) ** 2).sum(1).mean(), rel=1e-10)


def test_soft_boundary_solves_the_radius_of_each_mini_batch():
    nu = 0.25
    objective, random = made(SoftBoundaryObjective(SPEC, nu=nu))
    objective.centre.fill_(0.3)
    batch = batch_of(random, n=41)
    objective.eval()
    found = objective.loss(batch)

    def loss_at(radius, distance):
        return radius**2 + np.maximum(0, distance**2 - radius**2).mean() / nu

    for member in range(MEMBERS):
        codes = encoded(objective.encoder, batch.unlabelled[member].numpy(), member)
        distance = np.sqrt(((codes - 0.3) ** 2).sum(1))
        radius = np.quantile(distance, 1 - nu)
        assert objective.radius[member].item() == pytest.approx(radius, rel=1e-6)
        total = sum(term[member].item() for term in found.values())
        assert total == pytest.approx(loss_at(radius, distance), rel=1e-6)
        others = [loss_at(other, distance) for other in np.linspace(0, distance.max(), 400)]
        assert total <= min(others) + 1e-9  # no other radius gives less


def test_the_last_radius_is_of_no_more_rows_than_torch_can_rank(monkeypatch):
    objective, _ = made(SoftBoundaryObjective(SPEC, nu=0.25))
    data = training_data()
    objective.eval().prepare(data)
    monkeypatch.setattr(deep_svdd, "MAX_RANKED", 40)
    objective.finish(data)
    for member, rows in enumerate(data.unlabelled.numpy()):
        codes = encoded(objective.encoder, data.x.numpy(), member)
        distance = np.sqrt(((codes - objective.centre[member].numpy()) ** 2).sum(1))
        assert objective.radius[member].item() == pytest.approx(np.quantile(distance[rows[::2]], 0.75), rel=1e-6)


def test_deep_sad_loss_is_the_printed_one():
    objective, random = made(DeepSADObjective(SPEC, eta=3.0))
    data = training_data()
    objective.prepare(data)  # 36 unlabelled, 4 labelled
    batch = batch_of(random)
    objective.eval()
    found = objective.loss(batch)
    for member in range(MEMBERS):
        centre = objective.centre[member].numpy()
        near = ((encoded(objective.encoder, batch.unlabelled[member].numpy(), member) - centre) ** 2).sum(1)
        known = ((encoded(objective.encoder, batch.labelled[member].numpy(), member) - centre) ** 2).sum(1) + 1e-6
        known = known ** batch.y[member].numpy()
        assert found["unlabelled"][member].item() == pytest.approx(36 / 40 * near.mean(), rel=1e-10)
        assert found["labelled"][member].item() == pytest.approx(3.0 * 4 / 40 * known.mean(), rel=1e-10)


def test_a_known_anomaly_moves_away_and_a_known_normal_row_moves_in():
    rng = np.random.default_rng(3)
    X = np.r_[rng.normal(size=(150, 4)), rng.normal(size=(2, 4))]
    y = np.r_[np.zeros(150, dtype=int), -1, 1]
    with_labels = DeepSAD(eta=20, n_epochs=60, random_state=0).fit(X, y).anomaly_score(X)
    ranks = with_labels.argsort().argsort() / len(X)
    assert ranks[150] > 0.9
    assert ranks[151] < 0.6


class Spy:
    """Keeps the weights that each phase starts and ends with."""

    def __init__(self):
        self.started, self.ended = [], []

    def on_start(self, state):
        self.started.append({k: v.clone() for k, v in state.objective.encoder.state_dict().items()})

    def on_step(self, state):
        pass

    def on_end(self, state):
        self.ended.append({k: v.clone() for k, v in state.objective.encoder.state_dict().items()})


@pytest.mark.parametrize("method", [DeepSAD, DeepSVDD])
@pytest.mark.parametrize("pictures", [False, True])
def test_pretraining_reaches_the_encoder(method, pictures):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 255, size=(30, 12, 12), dtype=np.uint8) if pictures else rng.normal(size=(60, 6))
    spy = Spy()
    method(pretrain_epochs=3, n_epochs=1, random_state=0).fit(X, callbacks=[spy])
    assert len(spy.started) == 2
    changed = False
    for name, value in spy.ended[0].items():
        torch.testing.assert_close(spy.started[1][name], value, rtol=0, atol=0)
        changed |= bool((value != spy.started[0][name]).any())
    assert changed


def test_without_pretraining_there_is_one_phase(rows):
    spy = Spy()
    DeepSAD(pretrain_epochs=0, n_epochs=1, random_state=0).fit(*rows, callbacks=[spy])
    assert len(spy.started) == 1


@pytest.mark.parametrize("method", [DeepSAD, DeepSVDD])
def test_networks_have_no_bias(method, rows):
    encoder = method(n_epochs=1, pretrain_epochs=0, random_state=0).fit(*rows).objective_.encoder
    assert encoder.n_bias == 0
    code = encoder(torch.zeros(1, 3, rows[0].shape[1]))
    for index in range(len(encoder.shapes) - 1):
        encoder.get_buffer(f"mean_{index}").zero_()
    assert (encoder(torch.zeros_like(code[..., :1]).expand(-1, -1, rows[0].shape[1])) == 0).all()


def test_deep_svdd_refuses_the_network_that_could_collapse():
    with pytest.raises(InputError, match=r"one of auto, lenet for pictures"):
        DeepSVDD(network="conv").fit(np.zeros((5, 16, 16), dtype=np.uint8))


def test_deep_sad_collapses_on_the_deep_network_and_not_on_lenet():
    """Without labels, the deep network's shifts let every code go to the centre; anomalies end up as near as others."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 120, size=(80, 16, 16), dtype=np.uint8)
    odd = rng.integers(120, 255, size=(40, 16, 16), dtype=np.uint8)
    spread = {}
    for network in ("lenet", "conv"):
        detector = DeepSAD(network=network, n_epochs=60, pretrain_epochs=1, lr=5e-3, random_state=0).fit(X)
        spread[network] = detector.anomaly_score(odd).mean() / np.linalg.norm(detector.objective_.centre)
    assert spread["conv"] < 0.3 * spread["lenet"]


def test_an_interrupted_second_phase_goes_on_where_it_was(rows, tmp_path):
    from esad.persist.checkpoint import Checkpoint

    class StopAt:
        def __init__(self, phase, step):
            self.phase, self.step = phase, step

        def on_start(self, state):
            pass

        def on_step(self, state):
            if (state.phase, state.step) == (self.phase, self.step):
                checkpoint.write(state)
                raise KeyboardInterrupt

        def on_end(self, state):
            pass

    settings = {"n_epochs": 6, "pretrain_epochs": 6, "batch_size": 32, "random_state": 0}
    whole = DeepSAD(**settings).fit(*rows).anomaly_score(rows[0])
    for phase in (0, 1):
        path = tmp_path / f"{phase}.checkpoint"
        checkpoint = Checkpoint(path)
        with pytest.raises(KeyboardInterrupt):
            DeepSAD(**settings).fit(*rows, callbacks=[checkpoint, StopAt(phase, 5)])
        resumed = Checkpoint(path, resume=True)
        again = DeepSAD(**settings).fit(*rows, callbacks=[resumed])
        assert resumed.resumed_step == 5
        np.testing.assert_array_equal(again.anomaly_score(rows[0]), whole)


def test_an_early_end_of_the_first_phase_does_not_skip_the_second(rows):
    class StopFirst:
        def on_start(self, state):
            if state.phase == 0:
                raise StopTraining

        def on_step(self, state):
            pass

        def on_end(self, state):
            pass

    detector = DeepSAD(n_epochs=2, pretrain_epochs=2, random_state=0).fit(*rows, callbacks=[StopFirst()])
    assert np.isfinite(detector.anomaly_score(rows[0])).all()


class TestTLSAD:
    @pytest.fixture
    def pictures(self):
        return np.random.default_rng(0).integers(0, 255, size=(24, 12, 12), dtype=np.uint8)

    def test_loss_is_deep_sads_plus_the_references_cross_entropy(self):
        spec = NetworkSpec.as_published("lenet", (1, 12, 12), n_members=MEMBERS)
        rng = np.random.default_rng(0)
        classes = rng.integers(0, 3, 15)
        reference = Reference.read(rng.random((15, 12, 12)), classes, (1, 12, 12))
        made_of = TLSADObjective(spec, eta=1.0, mu=0.5, n_classes=3, reweight=False, reference=reference)
        objective, random = made(made_of)
        objective.eval()
        objective.centre.fill_(0.2)
        x = random.normal(6, 1, 12, 12)
        batch = Batch(x, x[:, :0], torch.empty(MEMBERS, 0, dtype=torch.float64), random)
        state = random.state()
        found = objective.loss(batch)
        random.set_state(state)
        drawn = random.integers(15, 6)
        for member in range(MEMBERS):
            pictures = reference.x.double()[drawn[member]][None].expand(MEMBERS, -1, -1, -1, -1)
            logits = objective.head(objective.encoder(pictures))[member].detach().numpy()
            probability = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            wanted = -np.log(probability[np.arange(6), classes[drawn[member].numpy()]]).mean()
            assert found["reference"][member].item() == pytest.approx(0.5 * wanted, rel=1e-9)
        distance = ((objective.encoder(x) - 0.2) ** 2).sum(2).mean(1)
        torch.testing.assert_close(found["unlabelled"], distance)

    @pytest.mark.parametrize("m", [4, 0])
    def test_far_pictures_weigh_less_and_both_kinds_have_losses_of_one_size(self, m):
        objective, random = made(TLSADObjective(SPEC, eta=0.7, mu=1.0, n_classes=0))
        objective.eval()
        objective.centre.fill_(0.2)
        batch = batch_of(random, n=9, m=m)
        found = {name: term.detach().numpy() for name, term in objective.loss(batch).items()}
        for member in range(MEMBERS):
            near = ((encoded(objective.encoder, batch.unlabelled[member].numpy(), member) - 0.2) ** 2).sum(1)
            tau = 1e-6 + np.median(near)  # Eq. (2), of nine
            weight = tau / (tau + near)
            unlabelled = (weight * near).sum() / weight.sum()  # Eq. (3)
            np.testing.assert_allclose(found["unlabelled"][member], unlabelled, rtol=1e-9)
            np.testing.assert_allclose(found["labelled"][member], 0.7 * unlabelled if m else 0, rtol=1e-9)

    def test_gradients_take_the_weights_and_the_balance_for_constants(self):
        objective, random = made(TLSADObjective(SPEC, eta=0.7, mu=1.0, n_classes=0))
        objective.eval()
        objective.centre.fill_(0.2)
        batch = batch_of(random, n=9)
        weights = list(objective.encoder.parameters())
        got = torch.autograd.grad(sum(term.sum() for term in objective.loss(batch).values()), weights)
        squared = objective.squared_distance(torch.cat([batch.unlabelled, batch.labelled], dim=1))
        near, known = squared[:, :9], squared[:, 9:]
        tau = 1e-6 + near.median(1, keepdim=True).values
        weight = (tau / (tau + near)).detach()
        unlabelled = (weight * near).sum(1) / weight.sum(1)
        labelled = torch.where(batch.y < 0, 1 / (known + 1e-6), known + 1e-6).mean(1)
        wanted = torch.autograd.grad((unlabelled + 0.7 * unlabelled.detach() * labelled.log()).sum(), weights)
        for own, theirs in zip(got, wanted, strict=True):
            torch.testing.assert_close(own, theirs)

    def test_pollution_pulls_the_less_the_farther_it_lies(self):
        rng = np.random.default_rng(0)
        pictures = rng.integers(0, 60, size=(120, 8, 8), dtype=np.uint8)
        pictures[:100, :3] += 150  # bright above; the others are the pollution
        settings = {"reference": rng.random((30, 8, 8)), "n_epochs": 30, "pretrain_epochs": 5, "random_state": 0}
        gaps = []
        for reweight in (True, False):
            score = TLSAD(**settings, reweight=reweight).fit(pictures).anomaly_score(pictures)
            gaps.append(np.median(score[100:]) / np.median(score[:100]))
        assert gaps[0] > 1.2 * gaps[1] > 1.2

    def test_a_reference_of_another_size_and_colour_is_made_like_the_pictures(self):
        colour = np.zeros((4, 20, 30, 3), dtype=np.uint8)
        colour[..., 0] = 255
        reference = Reference.read(colour, None, (1, 12, 12))
        assert reference.x.shape == (4, 1, 12, 12)
        np.testing.assert_allclose(reference.x.numpy(), 1 / 3, rtol=1e-6)
        assert reference.n_classes == 4
        assert Reference.read(colour, ["a", "b", "a", "c"], (3, 12, 12)).n_classes == 3

    def test_a_folder_gives_pictures_and_classes(self, tmp_path, pictures):
        from PIL import Image

        for name in ("cats", "dogs"):
            (tmp_path / name).mkdir()
            for index in range(3):
                Image.fromarray(pictures[index]).save(tmp_path / name / f"{index}.png")
        reference = Reference.read(tmp_path, None, (1, 12, 12))
        assert reference.classes.tolist() == [0, 0, 0, 1, 1, 1]
        detector = TLSAD(reference=tmp_path, n_epochs=1, pretrain_epochs=1, random_state=0).fit(pictures)
        assert np.isfinite(detector.anomaly_score(pictures)).all()

    @pytest.mark.parametrize("given", [{}, {"reference": np.zeros((4, 9)), "weights": "x"}])
    def test_it_needs_exactly_one_source_of_features(self, given, pictures):
        with pytest.raises(InputError, match="TLSAD needs `reference`"):
            TLSAD(**given).fit(pictures)

    def test_wrong_references_are_refused(self, pictures):
        with pytest.raises(InputError, match="must be pictures"):
            TLSAD(reference=np.zeros((4, 9))).fit(pictures)
        with pytest.raises(InputError, match="one class per picture"):
            TLSAD(reference=pictures, reference_classes=[1, 2]).fit(pictures)
        with pytest.raises(InputError, match=r"one class per picture\. Got 1"):
            TLSAD(reference=pictures, reference_classes=7).fit(pictures)

    def test_the_model_file_holds_no_reference(self, pictures, tmp_path):
        detector = TLSAD(reference=pictures, n_epochs=1, pretrain_epochs=1, random_state=0).fit(pictures)
        assert detector.plain_parameters()["reference"] is None
        assert not [name for name in detector._state()[0] if name.startswith("weights.reference")]
        assert not [name for name, _ in detector.objective_.named_buffers() if name in ("reference", "classes")]

    def test_published_weights_are_fixed_features(self, pictures, tmp_path):
        import esad

        torch.manual_seed(0)
        weights = {**ResNet18().state_dict(), "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
        torch.save(weights, tmp_path / "resnet18.pth")
        detector = TLSAD(weights=tmp_path / "resnet18.pth", n_epochs=2, pretrain_epochs=2, random_state=0)
        scores = detector.fit(pictures).anomaly_score(pictures)
        assert np.isfinite(scores).all()
        assert detector.codes(pictures)["z"].shape == (len(pictures), detector.network_.latent)
        detector.save(tmp_path / "model.esad")
        (tmp_path / "resnet18.pth").unlink()
        np.testing.assert_array_equal(esad.load(tmp_path / "model.esad").anomaly_score(pictures), scores)

    def test_an_experiment_watches_and_maps_features(self, tmp_path):
        torch.save(ResNet18().state_dict(), tmp_path / "resnet18.pth")
        drawn = {"kind": "images", "normal_class": 1, "labelled_ratio": 0.1, "n_normal": 20, "test_ratio": 0.05}
        settings = {"weights": str(tmp_path / "resnet18.pth"), "n_epochs": N_LOOKS, "pretrain_epochs": 1}
        found = execute(Cell("tlsad", "digits", drawn, 0, settings, codes=6)).curves
        assert (len(found["test_auc"]), len(found["map z x"])) == (N_LOOKS - 1, 6)

    def test_weights_that_are_none_are_refused(self, pictures, tmp_path):
        path = tmp_path / "weights.pth"
        with pytest.raises(DataFileError, match="cannot be read"):
            read_weights(path, WEIGHTS)
        path.write_bytes(b"not a tensor in sight")
        with pytest.raises(DataFileError, match="cannot be read"):
            TLSAD(weights=path).fit(pictures)
        torch.save({"conv1.weight": torch.zeros(3)}, path)
        with pytest.raises(DataFileError, match="not those of a ResNet-18"):
            read_weights(path, WEIGHTS)


def test_an_autoencoders_loss_and_score_are_the_mean_squared_error():
    objective, random = made(AutoencoderObjective(SPEC))
    objective.eval()
    x = random.normal(7, FEATURES)
    rebuilt = objective.decoder(objective.encoder(x)).detach().numpy()
    wanted = ((rebuilt - x.numpy()) ** 2).mean(2)
    batch = Batch(x, x[:, :0], torch.empty(MEMBERS, 0), random)
    np.testing.assert_allclose(objective.loss(batch)["reconstruction"].detach(), wanted.mean(1), rtol=1e-12)
    scores = objective.scorer()(x[0])["reconstruction"].detach()
    np.testing.assert_allclose(scores[0], wanted[0], rtol=1e-9)


def test_the_authors_network_for_mnist_has_8_and_4_channels_and_a_code_of_32():
    pictures = np.random.default_rng(0).integers(0, 256, (30, 28, 28)).astype(np.uint8)
    detector = DeepSAD(network="lenet_small", pretrain_epochs=1, n_epochs=1, random_state=0).fit(pictures)
    network = detector.network_
    assert (network.kind, network.hidden, network.dense, network.latent) == ("lenet", (8, 4), (), 32)


def test_augmented_pictures_differ_in_training_alone():
    spec = NetworkSpec("lenet", in_shape=(3, 8, 8), hidden=(2,), latent=2)
    objective = DeepSADObjective(spec, eta=1.0, augment=augment_pictures)
    objective.reset(MemberRandom([0]))
    objective.eval()
    x = torch.rand(1, 4, 3, 8, 8)
    batches = [Batch(x, x[:, :0], torch.zeros(1, 0), MemberRandom([seed])) for seed in (1, 2)]
    first, other = (objective.loss(batch)["unlabelled"].item() for batch in batches)
    assert first != other
    scorer = objective.scorer()
    assert torch.equal(scorer(x[0])["distance"], scorer(x[0])["distance"])
    with pytest.raises(InputError, match="`augment` is for pictures"):
        DeepSAD(augment=True).fit(np.random.default_rng(0).normal(size=(30, 3)))
