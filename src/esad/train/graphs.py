"""CUDA graphs: on a GPU the steps of a training are launched whole, so that several trainings can share the device.

A step of a small network is over before Python has launched it kernel by kernel. As a graph it costs one launch, and
trainings in threads of one process, each on its own stream, fill the device together.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from esad.train.loop import LoopState

N_WARM_UP = 3  # steps before recording, in which libraries choose their algorithms and allocate their memory
N_AHEAD = 50  # steps whose rows are drawn at once
_capturing = threading.Lock()  # one thread at a time: capturing waits for the whole device


class Recording:
    """A step of the loop, recorded once and replayed from then on.

    What changes from step to step is on the device: the number of the step, and by it the learning rate, the rows
    drawn ahead and where the loss is noted.

    Parameters
    ----------
    state : LoopState
        A training that has done `N_WARM_UP` steps.
    update : callable
        Takes the numbers of the unlabelled rows to use, (members, batch), and gives the loss terms. It must have fixed
        shapes and must not look at values on the host.
    draw_ahead : callable
        Makes sure that the state's order holds the rows of so many steps.
    """

    def __init__(
        self, state: LoopState, update: Callable[[Tensor], dict[str, Tensor]], draw_ahead: Callable[[int], None]
    ) -> None:
        self._state, self._draw_ahead = state, draw_ahead
        device = state.data.x.device
        self._size = min(state.settings.batch_size, state.data.n_unlabelled)
        self._rows = torch.empty((state.data.n_members, N_AHEAD, self._size), dtype=torch.int64, device=device)
        self._fill_rows()
        self._step = torch.tensor([state.step], device=device)
        self._rates = torch.tensor([state.settings.lr_at(step) for step in range(state.n_steps)], device=device)
        self._losses = torch.stack(list(state.losses.values()))
        state.losses = dict(zip(state.losses, self._losses, strict=True))
        self._graph = self._record(update)

    def replay(self) -> None:
        """Do one step."""
        state = self._state
        if state.step % N_AHEAD == 0:
            self._fill_rows()
        self._graph.replay()
        state.order = state.order[:, self._size :]
        state.step += 1

    def _fill_rows(self) -> None:
        done = self._state.step % N_AHEAD
        self._draw_ahead(N_AHEAD - done)
        coming = self._state.order[:, : (N_AHEAD - done) * self._size]
        self._rows[:, done:] = torch.unflatten(coming, 1, (-1, self._size))

    def _record(self, update: Callable[[Tensor], dict[str, Tensor]]) -> torch.cuda.CUDAGraph:
        state = self._state
        graph = torch.cuda.CUDAGraph()
        state.random.register(graph)
        state.optimizer.zero_grad(set_to_none=True)  # gradients get their place in the graph's own memory
        here = torch.cuda.current_stream()
        with _capturing, torch.cuda.graph(graph, stream=here, capture_error_mode="thread_local"):
            for group in state.optimizer.param_groups:
                group["lr"].copy_(self._rates[self._step][0] * group["ratio"])
            terms = update(self._rows.index_select(1, self._step % N_AHEAD)[:, 0])
            noted = torch.stack([terms[name] for name in state.losses])[:, None].to(self._losses.dtype)
            self._losses.index_copy_(1, self._step, noted)
            self._step += 1
        return graph


@contextlib.contextmanager
def use_own_stream(device: torch.device) -> Iterator[None]:
    """Run the block on a stream of its own, since the default one cannot be recorded; no effect on a CPU."""
    if device.type != "cuda" or torch.cuda.current_stream(device) != torch.cuda.default_stream(device):
        yield
        return
    outer = torch.cuda.current_stream(device)
    inner = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
    inner.wait_stream(outer)
    with torch.cuda.stream(inner):
        yield
    outer.wait_stream(inner)
