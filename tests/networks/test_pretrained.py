"""Fixed networks: official names and numbers, files that are refused, and downloads from a server on this machine."""

import hashlib
import http.server
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from esad.datasets import download
from esad.datasets.download import Remote
from esad.errors import DataFileError
from esad.networks import inception, pretrained, resnet, vgg
from esad.networks.inception import InceptionResNetV2
from esad.networks.pretrained import PublishedWeights, fill_weights, get_weights, hide_path, read_weights
from esad.networks.vgg import VGG19


def small():
    """A network of the form of a published one."""
    return nn.Sequential(nn.Conv2d(3, 2, 3), nn.BatchNorm2d(2))


@pytest.fixture
def published():
    return PublishedWeights("Small", Remote(("http://127.0.0.1/small.pth",)), small, ("fc.",))


def official(network):
    """Weights as a publisher would put them into a file, with a classifier."""
    torch.manual_seed(0)
    weights = {name: torch.randn_like(value.float()) for name, value in network.state_dict().items()}
    return weights | {"fc.weight": torch.zeros(2, 2)}


def without_counters(weights):
    """As files from before torch 0.4.1."""
    return {name: value for name, value in weights.items() if not name.endswith("num_batches_tracked")}


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("change", [dict, without_counters])
def test_a_file_fills_a_network(published, tmp_path, suffix, change):
    weights = change(official(small()))
    path = tmp_path / f"small{suffix}"
    (torch.save if suffix == ".pth" else save_file)(weights, path)
    network = small()
    fill_weights(network, published, path, seed=0)
    torch.testing.assert_close(network[0].weight, weights["0.weight"])
    torch.testing.assert_close(network[1].running_var, weights["1.running_var"])


@pytest.mark.parametrize(
    "change",
    [
        lambda weights: weights | {"0.weight": torch.zeros(1)},
        lambda weights: {name: value for name, value in weights.items() if name != "0.bias"},
        lambda weights: weights | {"1.more": torch.zeros(1)},
        lambda weights: [1],
    ],
)
def test_other_weights_are_refused(published, tmp_path, change):
    torch.save(change(official(small())), tmp_path / "other.pth")
    with pytest.raises(DataFileError, match="are not those of Small"):
        read_weights(tmp_path / "other.pth", published)


def test_nothing_in_a_file_can_run(published, tmp_path):
    torch.save({"0.weight": small()}, tmp_path / "whole.pth")  # a pickled module, not weights
    for path in (tmp_path / "whole.pth", tmp_path / "none.pth"):
        with pytest.raises(DataFileError, match="cannot be read"):
            read_weights(path, published)


def test_random_features_are_the_seeds_and_said_to_be_random(published, caplog):
    first, second, third = small(), small(), small()
    for network, seed in ((first, 1), (second, 1), (third, 2)):
        fill_weights(network, published, "random", seed=seed)
    assert "Small is untrained" in caplog.text
    torch.testing.assert_close(first[0].weight, second[0].weight)
    assert not torch.equal(first[0].weight, third[0].weight)
    assert [hide_path(value) for value in ("random", "imagenet", "/home/me/vgg.pth")] == [
        "random",
        "imagenet",
        "imagenet",
    ]


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A web server for a folder on this machine; what was asked for is noted."""
    folder = tmp_path / "served"
    folder.mkdir()
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args):
            super().__init__(*args, directory=str(folder))

        def log_message(self, *args):
            asked.append(self.path)

    monkeypatch.setattr(download, "_PAUSE", 0.0)
    monkeypatch.setenv("ESAD_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    running = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=running.serve_forever, daemon=True).start()
    yield folder, f"http://127.0.0.1:{running.server_port}", asked
    running.shutdown()
    running.server_close()


def test_official_weights_are_downloaded_once_and_checked_by_the_digits_in_their_name(published, server, tmp_path):
    folder, address, asked = server
    torch.save(official(small()), folder / "small.pth")
    checksum = hashlib.sha256((folder / "small.pth").read_bytes()).hexdigest()
    wanted = replace(published, remote=Remote((f"{address}/small.pth",), sha256=checksum[:8]))
    for _ in range(2):
        network = small()
        fill_weights(network, wanted, "imagenet", seed=0)
    assert asked == ["/small.pth"]
    assert get_weights(wanted) == tmp_path / "data" / "weights" / "small.pth"
    torch.testing.assert_close(network[0].bias, official(small())["0.bias"])


def test_a_download_that_fails_says_what_else_there_is(published, server):
    folder, address, _ = server
    (folder / "small.pth").write_bytes(b"something else")
    forged = replace(published, remote=Remote((f"{address}/small.pth",), sha256="0000"))
    missing = replace(published, remote=Remote((f"{address}/none.pth",), sha256="0000"))
    for one, reason in ((forged, "its checksum is another one"), (missing, "404")):
        with pytest.raises(DataFileError, match=rf"{reason}.*given as a file, features='PATH'; features='random'"):
            fill_weights(small(), one, "imagenet", seed=0)


# ---------------------------------------------------------------------- the networks


def test_vgg19_has_torchvisions_names_and_layers():
    with torch.device("meta"):
        whole, r32 = VGG19(), VGG19("r32")
    indices = [0, 2, 5, 7, 10, 12, 14, 16, 19, 21, 23, 25, 28, 30, 32, 34]
    assert list(whole.state_dict()) == [f"features.{index}.{kind}" for index in indices for kind in ("weight", "bias")]
    assert sum(value.numel() for value in whole.state_dict().values()) == 20_024_384
    assert list(r32.state_dict()) == list(whole.state_dict())[:12]
    assert vgg.WEIGHTS.remote.file.split("-")[1].startswith(vgg.WEIGHTS.remote.sha256)


def test_vgg19_is_convolutions_relu_and_pooling_of_standardised_colours():
    network = VGG19("r21").double()
    fill_weights(network, vgg.WEIGHTS, "random", seed=0)
    x = torch.rand(2, 1, 8, 6, dtype=torch.float64)
    mean, std = (np.array(values)[:, None, None] for values in (pretrained.MEAN, pretrained.STD))
    h = torch.from_numpy((np.repeat(x.numpy(), 3, axis=1) - mean) / std)
    for index in (0, 2, 5):
        h = torch.nn.functional.max_pool2d(h, 2) if index == 5 else h
        weights = network.features[index]
        h = torch.relu(torch.nn.functional.conv2d(h, weights.weight, weights.bias, padding=1))
    torch.testing.assert_close(network(x), h)
    assert h.shape == (2, 128, 4, 3)


def test_inception_resnet_has_the_published_names_and_numbers():
    with torch.device("meta"):
        whole = InceptionResNetV2()
    weights = without_counters(whole.state_dict())
    assert sum(value.numel() for name, value in weights.items() if "running" not in name) == 55_843_464 - 1000 * 1537
    for name, shape in {
        "conv2d_1a.conv.weight": (32, 3, 3, 3),
        "mixed_5b.branch3.1.conv.weight": (64, 192, 1, 1),
        "repeat.9.branch2.2.bn.running_var": (64,),
        "repeat.0.conv2d.bias": (320,),
        "mixed_6a.branch1.2.conv.weight": (384, 256, 3, 3),
        "repeat_1.19.branch1.1.conv.weight": (160, 128, 1, 7),
        "mixed_7a.branch2.2.conv.weight": (320, 288, 3, 3),
        "repeat_2.8.branch1.2.conv.weight": (256, 224, 3, 1),
        "block8.conv2d.weight": (2080, 448, 1, 1),
        "conv2d_7b.bn.weight": (1536,),
    }.items():
        assert tuple(weights[name].shape) == shape, name
    assert inception.WEIGHTS.remote.file.split("-")[1].startswith(inception.WEIGHTS.remote.sha256)
    assert resnet.WEIGHTS.remote.file.split("-")[1].startswith(resnet.WEIGHTS.remote.sha256)


def test_inception_resnet_pools_the_layers_that_were_asked_for():
    for layer, n_features in (("mixed_5b", 320), ("concat", sum(inception.LAYERS.values()))):
        with torch.device("meta"):
            network = InceptionResNetV2(layer, 75).eval()
            assert network(torch.empty(2, 1, 28, 28)).shape == (2, n_features)
            assert network.n_features == n_features
    assert [name for name, _ in InceptionResNetV2("maxpool_3a", 75).named_children()] == list(inception.LAYERS)[:4]
