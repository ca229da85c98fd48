"""GANomaly: losses and score against numpy in float64, and gradients that keep to their own networks."""

import numpy as np
import pytest
import torch
from support import batch_of, pictures, tiny

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.methods.ganomaly import GANomaly, GANomalyObjective
from esad.networks.spec import NetworkSpec
from esad.persist import bundle

MEMBERS, N, SHAPE = 2, 6, (1, 8, 8)
KINDS = ("conv", "lenet", "dcgan")
GENERATOR_TERMS = ("adversarial", "context", "encoding")


def make(kind="conv", *, n_members=MEMBERS, weights=(1.0, 50.0, 1.0), squared=False):
    dense = (6,) if kind == "lenet" else ()  # a hidden layer with batch norm of its own
    spec = NetworkSpec(kind, in_shape=SHAPE, hidden=(3, 4), latent=5, n_members=n_members, dense=dense)
    objective = GANomalyObjective(spec, *weights, squared=squared).double()
    objective.reset(MemberRandom(range(n_members), dtype=torch.float64))
    return objective


def decoded(objective, code):
    picture = objective.decoder(code)
    return 2 * (picture.sigmoid() if objective.has_logits else picture) - 1


def numpy_pass(objective, x):
    """x, z, x^, z^, f(x), f(x^), and the discriminator's answers to both."""
    signed = 2 * x - 1
    code = objective.encoder_1(signed)
    rebuilt = decoded(objective, code)
    second_code = objective.encoder_2(rebuilt)
    features = [objective.features(pictures) for pictures in (signed, rebuilt)]
    answers = [objective.head(some) for some in features]
    return [value.detach().numpy() for value in (signed, code, rebuilt, second_code, *features, *answers)]


@pytest.mark.parametrize("kind", KINDS)
def test_losses_are_equations_3_to_7(kind):
    objective, x = make(kind, weights=(0.7, 30.0, 0.3)), pictures(MEMBERS, N, *SHAPE)
    got = {name: term.detach().numpy() for name, term in objective.loss(batch_of(x)).items()}
    signed, code, rebuilt, second_code, real, fake, real_logit, fake_logit = numpy_pass(objective, x)
    answers = [1 / (1 + np.exp(-logit[..., 0])) for logit in (real_logit, fake_logit)]
    wanted = {
        "adversarial": 0.7 * ((real - fake) ** 2).mean(axis=(1, 2)),
        "context": 30.0 * np.abs(rebuilt - signed).mean(axis=(1, 2, 3, 4)),
        "encoding": 0.3 * ((second_code - code) ** 2).mean(axis=(1, 2)),
        "discriminator": -(np.log(answers[0]) + np.log(1 - answers[1])).mean(axis=1) / 2,
    }
    assert got.keys() == wanted.keys()
    for name, term in wanted.items():
        np.testing.assert_allclose(got[name], term, rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("squared", [False, True])
def test_score_is_the_distance_of_the_two_codes(squared):
    objective, x = make(squared=squared).eval(), pictures(N, *SHAPE)
    got = objective.scorer()(x)["encoding"].detach()
    _, code, _, second_code, *_ = numpy_pass(objective, x.expand(MEMBERS, *x.shape))
    apart = np.abs(second_code - code)
    np.testing.assert_allclose(got, (apart**2 if squared else apart).mean(2), rtol=1e-9)


def test_as_published_has_the_authors_networks_and_settings():
    with torch.device("meta"):
        detector = GANomaly.as_published()
        seen = np.zeros(640, dtype=np.int8)
        (phase,) = detector._phases(np.empty((640, 3, 32, 32), dtype=np.float32), seen, torch.device("cpu"))
    widths = [tuple(m.weight.shape) for m in phase.objective.encoder_1.modules() if isinstance(m, torch.nn.Conv2d)]
    assert widths == [(64, 3, 4, 4), (128, 64, 4, 4), (256, 128, 4, 4), (100, 256, 4, 4)]
    assert sum(p.numel() for p in phase.objective.head.parameters()) == 256 * 4 * 4 + 1
    settings = phase.settings
    assert (settings.n_steps, settings.batch_size, settings.lr) == (150, 64, 2e-4)
    assert (settings.beta_1, settings.schedule, settings.clip) == (0.5, "constant", None)


def parameters(objective):
    """Those of the generator, those of the discriminator."""
    named = dict(objective.named_parameters())
    discriminator = [name for name in named if name.startswith(("features.", "head."))]
    return [named[name] for name in named if name not in discriminator], [named[name] for name in discriminator]


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_keep_to_their_own_networks(kind):
    objective = make(kind)
    terms = objective.loss(batch_of(pictures(MEMBERS, N, *SHAPE)))
    generator, discriminator = parameters(objective)
    assert generator
    assert discriminator
    generators_loss = sum(terms[name].sum() for name in GENERATOR_TERMS)
    for loss, foreign in ((generators_loss, discriminator), (terms["discriminator"].sum(), generator)):
        found = torch.autograd.grad(loss, foreign, retain_graph=True, allow_unused=True)
        assert all(gradient is None for gradient in found)


@pytest.mark.parametrize("kind", KINDS)
def test_one_backward_pass_gives_the_gradients_of_the_two_losses(kind):
    objective, x = make(kind), pictures(MEMBERS, N, *SHAPE)
    sum(term.sum() for term in objective.loss(batch_of(x)).values()).backward()
    generator, discriminator = parameters(objective)

    signed = 2 * x - 1
    code = objective.encoder_1(signed)
    rebuilt = decoded(objective, code)
    second_code = objective.encoder_2(rebuilt)
    real, fake = objective.features(signed), objective.features(rebuilt)
    generators_loss = (
        (real - fake).square().mean(dim=(1, 2)).sum()
        + 50 * (rebuilt - signed).abs().mean(dim=(1, 2, 3, 4)).sum()
        + (second_code - code).square().mean(dim=(1, 2)).sum()
    )
    discriminators_loss = (
        -(objective.head(real).sigmoid().log() + (1 - objective.head(fake).sigmoid()).log()).mean(dim=(1, 2)).sum() / 2
    )
    for loss, own in ((generators_loss, generator), (discriminators_loss, discriminator)):
        for parameter, wanted in zip(own, torch.autograd.grad(loss, own, retain_graph=True), strict=True):
            np.testing.assert_allclose(parameter.grad, wanted, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("kind", KINDS)
def test_the_generators_look_at_the_features_leaves_no_trace_in_batch_norm(kind):
    objective, x = make(kind), pictures(MEMBERS, N, *SHAPE)
    plain = make(kind)
    objective.loss(batch_of(x))
    numpy_pass(plain, x)  # the discriminator sees x, then x^, once each
    for (name, value), wanted in zip(objective.named_buffers(), plain.buffers(), strict=True):
        np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-12, err_msg=name)


def test_a_member_trains_as_it_would_alone():
    x = pictures(MEMBERS, N, *SHAPE)
    together, alone = make().loss(batch_of(x)), make(n_members=1).loss(batch_of(x[:1]))
    for name, term in alone.items():
        np.testing.assert_allclose(term.detach()[0], together[name].detach()[0], rtol=1e-9)


def test_the_discriminator_is_not_kept(tmp_path):
    detector = tiny("ganomaly", hidden=(3, 3)).fit(np.random.default_rng(0).random((8, 8, 8)))
    detector.save(tmp_path / "model.esad")
    _, tensors = bundle.read(tmp_path / "model.esad")
    kept = {name.split(".")[2] for name in tensors if name.startswith("model.weights.")}
    assert kept == {"encoder_1", "decoder", "encoder_2"}


def test_weights_must_not_be_negative():
    with pytest.raises(InputError, match=r"`lambda_context` must be a number, 0 or more\. Got -1"):
        GANomaly(lambda_context=-1).fit(np.zeros((4, 8, 8), dtype=np.uint8))


def test_unusual_pictures_score_higher():
    rng = np.random.default_rng(0)
    x = rng.integers(0, 40, size=(80, 8, 8), dtype=np.uint8)
    x[:, :3] += 150  # bright above
    detector = GANomaly(hidden=(4, 4), latent=4, n_epochs=40, random_state=0).fit(x[:60])
    turned = np.rot90(x[60:], axes=(1, 2))
    assert np.median(detector.anomaly_score(turned)) > detector.anomaly_score(x[60:]).max()
