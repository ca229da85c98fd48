"""Networks: shapes for any picture size, the paper's table, members kept apart, folding."""

import numpy as np
import pytest
import torch

from esad.core.random import MemberRandom
from esad.errors import InputError
from esad.networks.conv import ConvDecoder, ConvEncoder
from esad.networks.mlp import StackedMLP
from esad.networks.spec import NetworkSpec


@pytest.mark.parametrize("size", [(28, 28), (32, 32), (50, 50), (64, 64), (30, 45)])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("kind", ["conv", "lenet", "dcgan"])
def test_decoded_pictures_have_the_size_of_the_originals(kind, channels, size):
    hidden = (4, 4, 6, 6) if kind == "conv" else (4, 6)
    spec = NetworkSpec(kind, in_shape=(channels, *size), hidden=hidden, latent=5, n_members=2)
    encoder, decoder = spec.encoder(), spec.decoder()
    for network in (encoder, decoder):
        network.reset(MemberRandom([1, 2]))
    pictures = torch.rand(2, 3, channels, *size)
    code = encoder(pictures)
    assert code.shape[:2] == (2, 3)
    if kind == "conv":  # padded to a multiple of 16
        assert code.shape[2] == 5 * -(-size[0] // 16) * -(-size[1] // 16)
    assert decoder(code).shape == pictures.shape


def test_conv_widths_are_the_papers_table():
    widths = (64, 128, 256, 512, 512)
    with torch.device("meta"):
        encoder = ConvEncoder((3, 32, 32), widths, n_members=1)
        decoder = ConvDecoder((3, 32, 32), widths, n_members=1)
    shapes = [
        [m.weight.shape[:2] for m in net.modules() if isinstance(m, torch.nn.Conv2d)] for net in (encoder, decoder)
    ]
    down = [(64, 3), (64, 64), (128, 64), (128, 128), (256, 128), (256, 256), (512, 256), (512, 512), (512, 512)]
    up = [(256, 512), (256, 256), (128, 256), (128, 128), (64, 128), (64, 64), (64, 64), (64, 64), (3, 64)]
    assert [tuple(s) for s in shapes[0]] == [*down, (512, 512)]
    assert [tuple(s) for s in shapes[1]] == up
    kernels = {m.kernel_size for m in encoder.modules() if isinstance(m, torch.nn.Conv2d)}
    assert kernels == {(3, 3)}


@pytest.mark.parametrize("kind", ["mlp", "conv", "lenet", "dcgan", "wide", "residual"])
def test_a_member_never_sees_another_members_rows(kind):
    in_shape = (6,) if kind == "mlp" else (1, 16, 16)
    spec = NetworkSpec(kind, in_shape=in_shape, hidden=(5, 4), latent=3, n_members=2)
    encoder = spec.encoder()
    encoder.reset(MemberRandom([1, 2]))
    x = torch.rand(2, 4, *in_shape, requires_grad=True)
    encoder(x)[0].square().sum().backward()
    assert x.grad[0].abs().sum() > 0
    assert x.grad[1].abs().sum() == 0


@pytest.mark.parametrize("sigmoid", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_folding_batch_norm_keeps_the_function(bias, sigmoid):
    network = StackedMLP([6, 8, 5, 3], n_members=3, bias=bias, sigmoid=sigmoid).double()
    network.reset(MemberRandom([1, 2, 3], dtype=torch.float64))
    for _ in range(5):
        network(torch.randn(3, 20, 6, dtype=torch.float64) * 3 + 1)
    network.eval()
    x = torch.randn(9, 6, dtype=torch.float64)
    wanted = network(x.expand(3, 9, 6)).detach()
    got = network.freeze()(x.t()[None]).transpose(1, 2)
    torch.testing.assert_close(got, wanted, rtol=1e-12, atol=1e-12)


def test_running_statistics_follow_torch():
    network = StackedMLP([4, 5, 2], n_members=1)
    network.reset(MemberRandom([1]))
    norm = torch.nn.BatchNorm1d(5, eps=1e-4, affine=False)
    for _ in range(3):
        x = torch.randn(1, 16, 4)
        network(x)
        norm(x[0] @ network.layers()[0][0][0].t())
    torch.testing.assert_close(network.mean_0[0], norm.running_mean)
    torch.testing.assert_close(network.variance_0[0], norm.running_var)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"kind": "transformer"}, "must be one of mlp, conv, lenet"),
        ({"kind": "conv"}, "takes pictures"),
        ({"hidden": (0,)}, "positive whole numbers"),
        ({"hidden": (4,) * 100}, "positive whole numbers"),
        ({"latent": -1}, "positive whole numbers"),
    ],
)
def test_wrong_descriptions_are_refused(values, says):
    with pytest.raises(InputError, match=says):
        NetworkSpec(**{"kind": "mlp", "in_shape": (4,), "hidden": (3,), "latent": 2} | values)


def test_description_survives_json():
    spec = NetworkSpec("lenet", in_shape=(1, 28, 28), hidden=(16, 32), latent=64, n_members=2, dense=(128,))
    assert NetworkSpec.from_json(spec.to_json()) == spec
    with pytest.raises(InputError):
        NetworkSpec.from_json(spec.to_json() | {"evil": 1})


def test_initial_weights_are_uniform_with_the_linear_layers_bound():
    network = StackedMLP([100, 50, 10], n_members=1)
    network.reset(MemberRandom([3]))
    first = network.layers()[0][0].detach().numpy()
    assert np.abs(first).max() <= 0.1
    assert np.std(first) == pytest.approx(0.1 / np.sqrt(3), rel=0.05)


def test_a_wide_network_is_torchs_layers_in_the_order_of_its_paper():
    spec = NetworkSpec("wide", in_shape=(3, 10, 9), hidden=(3, 4), latent=5)
    encoder = spec.encoder().double()
    encoder.reset(MemberRandom([1], dtype=torch.float64))
    x = torch.rand(1, 6, 3, 10, 9, dtype=torch.float64)
    weights = [module.weight for module in encoder.modules() if isinstance(module, torch.nn.Conv2d)]
    first, *rest = weights
    conv, relu = torch.nn.functional.conv2d, torch.relu

    def normal(h):
        mean, variance = h.mean((0, 2, 3), keepdim=True), h.var((0, 2, 3), correction=0, keepdim=True)
        return (h - mean) / (variance + 1e-5).sqrt()

    h = conv(x[0], first, padding=1)
    for stride, (one, two, shortcut) in zip((1, 2), (rest[:3], rest[3:]), strict=True):
        seen = relu(normal(h))
        h = conv(relu(normal(conv(seen, one, stride=stride, padding=1))), two, padding=1)
        h = h + conv(seen, shortcut, stride=stride)
    torch.testing.assert_close(encoder(x)[0], relu(normal(h)).mean((2, 3)))
    with pytest.raises(InputError, match="cannot rebuild"):
        spec.decoder()
