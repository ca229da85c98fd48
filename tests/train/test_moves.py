"""Moves of the loop: networks that learn against each other, each moved by its own loss alone."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812

from esad.core.random import MemberRandom, member_seeds
from esad.networks.mlp import StackedMLP
from esad.persist.checkpoint import Checkpoint
from esad.train.loop import Settings, train
from esad.train.objective import Batch, Move, Objective, RowPool

SETTINGS = Settings(
    n_steps=12,
    batch_size=16,
    labelled_batch_size=6,
    lr=1e-2,
    beta_1=0.5,
    schedule="constant",
    warmup_ratio=0,
    clip=None,
)


def rows():
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 5)))
    return x, torch.tensor([-1] * 4 + [1] * 5 + [0] * 51, dtype=torch.int8)


class KillAt:
    """Ends training after some steps, as a kill would, with a checkpoint written before."""

    def __init__(self, step, checkpoint):
        self.step, self.checkpoint = step, checkpoint

    def on_start(self, state): ...

    def on_step(self, state):
        if state.step == self.step:
            self.checkpoint.write(state)
            raise KeyboardInterrupt

    def on_end(self, state): ...


class Game(Objective):
    """A generator of rows and a critic of them, without hidden layers; the generator moves in every second step."""

    def __init__(self, n_members, *, every=2, lr_ratio=1.0):
        super().__init__()
        self.n_members, self.every, self.lr_ratio = n_members, every, lr_ratio
        self.generator = StackedMLP([2, 5], n_members=n_members)
        self.critic = StackedMLP([5, 1], n_members=n_members)
        self.register_buffer("average", torch.zeros(n_members, self.generator.weights.shape[1]))

    def reset(self, random):
        self.generator.reset(random)
        self.critic.reset(random)

    def moves(self):
        judge = Move(self.critic_loss, (self.critic,), lr_ratio=self.lr_ratio)
        return judge, Move(self.loss, (self.generator,), every=self.every)

    def critic_loss(self, batch):
        real, made = self.critic(batch.unlabelled), self.critic(self._make(batch))
        return {"critic": (F.softplus(-real) + F.softplus(made)).mean((1, 2))}

    def loss(self, batch):
        return {"generator": F.softplus(-self.critic(self._make(batch))).mean((1, 2))}

    def _make(self, batch):
        return self.generator(batch.random.normal(batch.unlabelled.shape[1], 2))

    def after_step(self):
        with torch.no_grad():
            self.average.lerp_(self.generator.weights, 0.5)

    def scorer(self):
        return lambda x: {"doubt": -self.critic(x.expand(self.n_members, *x.shape))[..., 0]}


def run(seeds, *, settings=SETTINGS, callbacks=(), **game):
    objective = Game(len(seeds), **game).double()
    random = MemberRandom(seeds, dtype=torch.float64)
    objective.reset(random)
    data = RowPool.from_shared_rows(*rows(), n_members=len(seeds))
    curves = train(objective, data, settings, random=random, callbacks=callbacks, identity="this one")
    return objective, curves


class Follow:
    """Keeps a copy of the weights before the first step and after every one."""

    def __init__(self):
        self.seen = []

    def on_start(self, state):
        self.on_step(state)

    def on_step(self, state):
        self.seen.append(copy.deepcopy(state.objective.state_dict()))

    def on_end(self, state): ...


def test_a_move_is_of_the_networks_that_it_names_and_every_so_many_steps():
    follow = Follow()
    objective, curves = run([1, 2], callbacks=[follow], every=3)
    for step, (before, after) in enumerate(zip(follow.seen, follow.seen[1:], strict=False)):
        assert not torch.equal(before["critic.weights"], after["critic.weights"])
        assert torch.equal(before["generator.weights"], after["generator.weights"]) == (step % 3 > 0)
    assert (curves["generator"][1:3] == curves["generator"][0]).all()  # stays where it was
    assert curves["generator"][3] != curves["generator"][0]
    assert all(parameter.requires_grad for parameter in objective.parameters())


@pytest.mark.parametrize("lr_ratio", [1.0, 2.5])
def test_moves_are_what_two_optimisers_by_hand_do(lr_ratio):
    n_steps = 5
    objective, _ = run([3], settings=replace(SETTINGS, n_steps=n_steps), every=1, lr_ratio=lr_ratio)

    byhand = Game(1).double()
    random = MemberRandom([3], dtype=torch.float64)
    byhand.reset(random)
    x, y = rows()
    normal, known = x[y == 0], int((y != 0).sum())
    networks = {byhand.critic: byhand.critic_loss, byhand.generator: byhand.loss}
    rates = {byhand.critic: 1e-2 * lr_ratio, byhand.generator: 1e-2}
    optimisers = {net: torch.optim.Adam(net.parameters(), lr=rates[net], betas=(0.5, 0.999)) for net in networks}
    order = torch.empty(1, 0, dtype=torch.int64)
    for _ in range(n_steps):
        if order.shape[1] < 16:
            order = torch.cat([order, random.permutation(len(normal))], dim=1)
        picked, order = order[0, :16], order[:, 16:]
        random.integers(known, 6)  # the labelled rows, which nobody looks at
        for network, loss in networks.items():
            optimisers[network].zero_grad()
            next(
                iter(loss(Batch(normal[None, picked], normal[None, :0], normal[None, :0, 0], random)).values())
            ).sum().backward()
            optimisers[network].step()
    for name in ("generator.weights", "critic.weights"):
        torch.testing.assert_close(objective.state_dict()[name], byhand.state_dict()[name], rtol=1e-9, atol=1e-12)


def test_a_stacked_member_plays_as_it_would_alone():
    seeds = member_seeds(7, 3)
    together, _ = run(seeds)
    for member, seed in enumerate(seeds):
        for name, value in run([seed])[0].state_dict().items():
            torch.testing.assert_close(together.state_dict()[name][member], value[0], rtol=1e-9, atol=1e-12)


def test_a_batch_in_parts_is_the_same_step():
    whole, parts = (run([1, 2], settings=replace(SETTINGS, labelled_batch_size=8, accumulate=n)) for n in (1, 4))
    for name, value in whole[0].state_dict().items():
        torch.testing.assert_close(parts[0].state_dict()[name], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop"])
@pytest.mark.parametrize("step", [6, 7])  # with and without a move of the generator to come
def test_resuming_in_the_middle_of_a_game_gives_the_same_bits(tmp_path, step, optimizer):
    settings = replace(SETTINGS, optimizer=optimizer)
    whole, whole_curves = run([1, 2], settings=settings)
    path = tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run([1, 2], settings=settings, callbacks=[KillAt(step, Checkpoint(path))])
    resumed, curves = run([1, 2], settings=settings, callbacks=[Checkpoint(path, resume=True)])
    assert all(torch.equal(whole.state_dict()[k], v) for k, v in resumed.state_dict().items())
    assert all(torch.equal(whole_curves[k], v) for k, v in curves.items())


def test_an_average_follows_the_weights_after_every_step():
    follow = Follow()
    run([1], callbacks=[follow])
    for before, after in zip(follow.seen, follow.seen[1:], strict=False):
        wanted = (before["average"] + after["generator.weights"]) / 2
        torch.testing.assert_close(after["average"], wanted, rtol=1e-12, atol=0)
