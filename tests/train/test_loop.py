"""The loop: the same bits again, members as if alone, clipping, schedules, resuming."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from esad.core.random import MemberRandom, member_seeds
from esad.errors import InputError, ModelFileError, TrainingError
from esad.methods.esad.loss import ESADObjective, LossSettings
from esad.networks.spec import NetworkSpec
from esad.persist import bundle
from esad.persist.checkpoint import Checkpoint
from esad.train.callbacks import StopTraining
from esad.train.loop import Settings, _draw_labelled, clip_per_member, train
from esad.train.objective import HELD_OUT, RowPool
from esad.train.sharing import even_batches
from esad.train.stopping import EarlyStopping

SETTINGS = Settings(n_steps=25, batch_size=16, labelled_batch_size=6, lr=5e-3)


def rows(n=60, features=5):
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(n, features)))
    y = torch.zeros(n, dtype=torch.int8)
    y[:4], y[4:9] = -1, 1
    return x, y


def run(seeds, *, settings=SETTINGS, callbacks=(), kind="mlp", loss=None, data=None, hidden=(8, 6)):
    x, y = data or rows()
    spec = NetworkSpec(kind, in_shape=tuple(x.shape[1:]), hidden=hidden, latent=3, n_members=len(seeds))
    loss = loss or LossSettings(input_noise=(0.3,) * len(seeds), reduction="sum", gain=10.0, offset=0.1)
    objective = ESADObjective(spec, loss).double()
    random = MemberRandom(seeds, dtype=torch.float64)
    objective.reset(random)
    data = RowPool.from_shared_rows(x, y, n_members=len(seeds))
    curves = train(objective, data, settings, random=random, callbacks=callbacks, identity="this one")
    return objective, curves


def member_weights(objective, member):
    """Every parameter and running statistic of one member."""
    n = objective.n_members
    state = {k: v for k, v in objective.state_dict().items() if v.dim() and not k.startswith(("centre", "spread"))}
    return {name: value.reshape(n, -1)[member].clone() for name, value in state.items()}


@pytest.mark.parametrize("kind", ["mlp", "conv", "lenet"])
def test_a_stacked_member_equals_the_same_member_trained_alone(kind):
    data = None
    if kind != "mlp":
        x = torch.from_numpy(np.random.default_rng(1).random((30, 1, 8, 8)))
        data = x, torch.tensor([-1] * 3 + [1] * 2 + [0] * 25, dtype=torch.int8)
    seeds = member_seeds(7, 3)
    together, _ = run(seeds, kind=kind, data=data)
    for member, seed in enumerate(seeds):
        alone, _ = run([seed], kind=kind, data=data)
        for name, value in member_weights(alone, 0).items():
            torch.testing.assert_close(member_weights(together, member)[name], value, rtol=1e-7, atol=1e-9)


def test_member_seeds_do_not_depend_on_the_number_of_members():
    assert member_seeds(3, 5)[:2] == member_seeds(3, 2)


def test_the_same_seeds_give_the_same_bits():
    first, second = run([1, 2])[0].state_dict(), run([1, 2])[0].state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_batch_taken_in_parts_is_the_same_step_where_there_is_no_batch_norm():
    whole, parts = (
        run([1, 2], settings=replace(SETTINGS, labelled_batch_size=8, accumulate=n), hidden=()) for n in (1, 4)
    )
    for name, value in whole[0].state_dict().items():
        torch.testing.assert_close(parts[0].state_dict()[name], value, rtol=1e-9, atol=1e-12)
    for name, curve in whole[1].items():
        torch.testing.assert_close(parts[1][name], curve)


def test_batch_norm_sees_one_part_at_a_time():
    whole, parts = (run([1], settings=replace(SETTINGS, labelled_batch_size=8, accumulate=n))[0] for n in (1, 4))
    assert not torch.allclose(whole.state_dict()["decoder.weights"], parts.state_dict()["decoder.weights"])


def test_batches_that_cannot_be_parted_evenly_grow_or_shrink_a_little():
    x, y = rows(n=60)
    data = RowPool.from_shared_rows(x, y, n_members=1)  # 51 unlabelled rows
    grown = even_batches(replace(SETTINGS, batch_size=16, labelled_batch_size=7), data, 3)
    assert (grown.batch_size, grown.labelled_batch_size) == (18, 9)
    assert even_batches(replace(SETTINGS, batch_size=51), data, 4).batch_size == 48
    assert even_batches(SETTINGS, data, 2) is SETTINGS
    with pytest.raises(InputError, match="51 unlabelled rows cannot be taken in 64 parts"):
        even_batches(SETTINGS, data, 64)


def test_other_seeds_give_other_weights():
    first, second = run([1])[0].state_dict(), run([2])[0].state_dict()
    assert not torch.equal(first["decoder.weights"], second["decoder.weights"])


def test_gradients_are_clipped_member_by_member():
    objective, _ = run([1, 2, 3])
    for index, parameter in enumerate(objective.parameters()):
        parameter.grad = torch.ones_like(parameter) * (index + 1)
        parameter.grad[1] *= 1e-6  # the second member's gradient is tiny
    before = [p.grad.clone() for p in objective.parameters()]
    clip_per_member(list(objective.parameters()), 3, 1.0)
    after = [p.grad for p in objective.parameters()]
    norms = torch.stack([g.square().sum(1) for g in after]).sum(0).sqrt()
    torch.testing.assert_close(norms[[0, 2]], torch.ones(2, dtype=torch.float64), rtol=1e-4, atol=0)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(after, before, strict=True))


def test_cosine_schedule_warms_up_and_ends_near_zero():
    settings = Settings(n_steps=100, batch_size=1, labelled_batch_size=1, lr=1.0)
    rates = [settings.lr_at(step) for step in range(100)]
    assert rates[0] == pytest.approx(0.2)
    assert max(rates) == 1.0
    assert rates[-1] < 0.001


def test_every_unlabelled_row_is_drawn_once_per_epoch():
    x, y = rows()
    seen = []

    class Watch:
        def on_start(self, state):
            original = state.objective.loss

            def loss(batch):
                seen.append(batch.unlabelled[0])
                return original(batch)

            state.objective.loss = loss

        def on_step(self, state): ...

        def on_end(self, state): ...

    n_unlabelled = int((y == 0).sum())  # 51 rows in batches of 17
    run([1], settings=Settings(n_steps=3, batch_size=17, labelled_batch_size=2), callbacks=[Watch()])
    drawn = torch.cat(seen)
    assert len(drawn) == n_unlabelled
    assert {tuple(r) for r in drawn.tolist()} == {tuple(r) for r in x[y == 0].tolist()}


def test_anomalies_get_half_of_the_labelled_draws_at_least():
    y = torch.tensor([-1, *[1] * 99, *[0] * 10], dtype=torch.int8)
    data = RowPool.from_shared_rows(torch.zeros(len(y), 1), y, n_members=2)
    settings = Settings(n_steps=1, batch_size=1, labelled_batch_size=20)
    drawn = _draw_labelled(data, settings, MemberRandom([1, 2]))
    assert ((drawn < data.n_anomalies).sum(1) == 10).all()


def test_held_out_rows_are_never_drawn():
    y = torch.tensor([-1, HELD_OUT, 0, HELD_OUT, 1], dtype=torch.int8)
    data = RowPool.from_shared_rows(torch.arange(5.0)[:, None], y, n_members=1)
    assert data.unlabelled.tolist() == [[2]]
    assert data.labelled.tolist() == [[0, 4]]


def test_every_member_leaves_out_its_own_part():
    y = torch.zeros(20, dtype=torch.int8)
    unseen_by = torch.arange(20) % 4
    data = RowPool.from_shared_rows(torch.zeros(20, 1), y, n_members=6, unseen_by=unseen_by)
    for member in range(6):
        assert set(unseen_by[data.unlabelled[member]].tolist()) == {0, 1, 2, 3} - {member % 4}


def test_early_stopping_does_not_take_a_tie_for_a_gain():
    x, y = rows()
    stopper = EarlyStopping(x, y, n_checks=25, patience=4)
    stopper._precision = lambda state: 0.7
    _, curves = run([1], callbacks=[stopper])
    assert len(curves["norm"]) == 5  # one best look, four without a gain


def test_divergence_is_reported_with_what_to_do():
    settings = Settings(n_steps=200, batch_size=16, labelled_batch_size=6, lr=1e6, optimizer="sgd", clip=None)
    with pytest.raises(TrainingError, match="Lower `lr`"):
        run([1], settings=settings, loss=LossSettings(reduction="sum"))


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


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd", "rmsprop"])
def test_resuming_gives_the_bits_of_an_uninterrupted_run(tmp_path, optimizer):
    settings = Settings(n_steps=25, batch_size=16, labelled_batch_size=6, lr=5e-3, optimizer=optimizer)
    whole, whole_curves = run([1, 2], settings=settings)
    path = tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run([1, 2], settings=settings, callbacks=[KillAt(11, Checkpoint(path))])
    resumed, curves = run([1, 2], settings=settings, callbacks=[Checkpoint(path, resume=True)])
    assert all(torch.equal(whole.state_dict()[k], v) for k, v in resumed.state_dict().items())
    assert all(torch.equal(whole_curves[k], v) for k, v in curves.items())


@pytest.mark.parametrize(
    ("name", "forged"),
    [
        ("order", np.zeros((2, 4), dtype=np.float32)),
        ("order", np.full((2, 4), 10**6)),
        ("order", np.zeros(4, dtype=np.int64)),
        ("random", np.zeros((2, 5056), dtype=np.int8)),
        ("step", np.array(10**6)),
        ("step", np.array(-1)),
        ("losses.reconstruction", np.zeros(3, dtype=np.float32)),
        ("optimizer.0.step", np.zeros(2, dtype=np.float32)),
        ("optimizer.0.step", np.array(3)),
        ("optimizer.0.exp_avg", None),
        ("objective.encoder_1.weights", np.zeros(3, dtype=np.float32)),
    ],
)
def test_a_state_of_another_form_is_refused_in_a_line(tmp_path, name, forged):
    """However well its checksum fits."""
    path = tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run([1, 2], callbacks=[KillAt(6, Checkpoint(path))])
    manifest, tensors = bundle.read(path)
    assert name in tensors
    kept = {key: value for key, value in tensors.items() if key != name}
    manifest = {key: manifest[key] for key in ("kind", "identity", "phase", "step")}
    bundle.write(path, manifest, kept if forged is None else {**kept, name: forged})
    with pytest.raises(ModelFileError, match="is damaged") as caught:
        run([1, 2], callbacks=[Checkpoint(path, resume=True)])
    assert len(str(caught.value).splitlines()) == 1


def test_resuming_keeps_what_early_stopping_has_seen(tmp_path):
    x, y = rows()

    def stopper():
        return EarlyStopping(x, y, n_checks=12, patience=3)

    whole, whole_curves = run([1], callbacks=[stopper()])
    path = tmp_path / "run.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        run([1], callbacks=[stopper(), KillAt(6, Checkpoint(path))])
    resumed, curves = run([1], callbacks=[stopper(), Checkpoint(path, resume=True)])
    assert all(torch.equal(whole.state_dict()[k], v) for k, v in resumed.state_dict().items())
    assert all(len(whole_curves[k]) == len(v) for k, v in curves.items())


def test_a_full_disk_costs_the_checkpoint_not_the_training(tmp_path, caplog):
    target = tmp_path / "folder.checkpoint"
    target.mkdir()  # cannot be replaced by a file
    run([1], callbacks=[Checkpoint(target, every_seconds=0.0)])
    assert "no checkpoint" in caplog.text


def test_a_callback_can_stop_training():
    class Stop:
        def on_start(self, state): ...

        def on_step(self, state):
            if state.step == 5:
                raise StopTraining

        def on_end(self, state): ...

    _, curves = run([1], callbacks=[Stop()])
    assert all(len(curve) == 5 for curve in curves.values())
