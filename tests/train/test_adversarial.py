"""What judges learn, against plain numpy; and that networks which only judge do not stay in a model."""

import numpy as np
import torch

from esad.core.random import MemberRandom
from esad.networks.spec import NetworkSpec
from esad.train.adversarial import deception_loss, judge_loss
from esad.train.objective import Objective

SPEC = NetworkSpec("mlp", in_shape=(3,), hidden=(4,), latent=2, n_members=2)


class Game(Objective):
    """An encoder, and in a box that cannot draw weights itself another one, which judges."""

    for_training = ("box",)

    def __init__(self):
        super().__init__()
        self.n_members, self.encoder = SPEC.n_members, SPEC.encoder()
        self.box = torch.nn.ModuleList([SPEC.encoder()])

    def loss(self, batch):
        return {}

    def scorer(self):
        return lambda x: {}


def test_the_losses_of_judges_are_those_of_the_equations():
    logits = np.random.default_rng(0).normal(size=(2, 2, 5, 1))  # on real and on made rows, of two members
    believed = 1 / (1 + np.exp(-logits[..., 0]))
    on_real, on_made = (torch.from_numpy(one) for one in logits)
    wanted = -(np.log(believed[0]) + np.log(1 - believed[1])).mean(1)
    np.testing.assert_allclose(judge_loss(on_real, on_made), wanted, rtol=1e-12)
    np.testing.assert_allclose(deception_loss(on_made), -np.log(believed[1]).mean(1), rtol=1e-12)


def test_all_networks_are_drawn_in_the_order_they_were_made():
    game, first, second = Game(), SPEC.encoder(), SPEC.encoder()
    game.reset(MemberRandom([1, 2]))
    random = MemberRandom([1, 2])
    first.reset(random), second.reset(random)
    assert torch.equal(game.encoder.weights, first.weights)
    assert torch.equal(game.box[0].weights, second.weights)


def test_what_only_the_training_needs_is_forgotten():
    game = Game()
    kept = {name for name in game.state_dict() if name.startswith("encoder")}
    game.keep_for_scoring()
    assert set(game.state_dict()) == kept
