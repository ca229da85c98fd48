"""Pictures per second that trainings of the paper's network reach on one GPU, alone and packed.

    python benchmarks/packed.py [--packed 1 2 4 8] [--compiled] [--precision float32] [--batch 128 32]

Random pictures of 32 x 32 pixels; each training has a thread and a stream of its own and replays its steps as CUDA
graphs, as `esad bench --jobs N` does. The clock runs from step 50 of all trainings to the end of the last one.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from esad import ESAD
from esad.train.graphs import use_own_stream

FIRST_STEP = 50
N_NORMAL, N_LABELLED = 2560, 128


class Clock:
    """A callback that lets all trainings begin their timed part together."""

    def __init__(self, together: threading.Barrier) -> None:
        self.together = together
        self.started = self.ended = 0.0

    def on_start(self, state: Any) -> None:
        """Nothing to prepare."""

    def on_step(self, state: Any) -> None:
        """Wait for the others, then start."""
        if state.step == FIRST_STEP:
            torch.cuda.current_stream().synchronize()
            self.together.wait()
            self.started = time.perf_counter()

    def on_end(self, state: Any) -> None:
        """Stop when the device is done."""
        torch.cuda.current_stream().synchronize()
        self.ended = time.perf_counter()


def rate(n_packed: int, *, batch: tuple[int, int], compiled: bool, precision: str, n_epochs: int) -> float:
    """Pictures per second over all trainings."""
    X = np.random.default_rng(0).integers(0, 256, (N_NORMAL + N_LABELLED, 32, 32, 3)).astype(np.uint8)
    y = np.r_[np.zeros(N_NORMAL, dtype=int), np.full(N_LABELLED, -1)]
    together = threading.Barrier(n_packed)
    clocks = [Clock(together) for _ in range(n_packed)]

    def train(number: int) -> None:
        detector = ESAD(
            batch_size=batch[0],
            labelled_batch_size=batch[1],
            n_epochs=n_epochs,
            decoys=0.0,
            compiled=compiled,
            precision=precision,
            device="cuda",
            random_state=number,
        )
        with use_own_stream(torch.device("cuda")):
            detector.fit(X, y, callbacks=[clocks[number]])

    with ThreadPoolExecutor(n_packed) as threads:
        list(threads.map(train, range(n_packed)))
    n_steps = n_epochs * -(-N_NORMAL // batch[0]) - FIRST_STEP
    seconds = max(clock.ended for clock in clocks) - min(clock.started for clock in clocks)
    return n_packed * n_steps * sum(batch) / seconds


def main() -> None:
    """Read the options, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--packed", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--batch", nargs=2, type=int, default=[128, 32], metavar=("UNLABELLED", "LABELLED"))
    parser.add_argument("--compiled", action="store_true")
    parser.add_argument("--precision", default="auto", help="auto is bfloat16 on a GPU")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("This needs a GPU.")
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name(0)}, batches of {sum(options.batch)}")
    for n_packed in options.packed:
        found = rate(
            n_packed,
            batch=tuple(options.batch),
            compiled=options.compiled,
            precision=options.precision,
            n_epochs=options.epochs,
        )
        how = f"{options.precision}{', compiled' if options.compiled else ''}"
        print(f"{n_packed} packed, {how}: {found:,.0f} pictures/s", flush=True)


if __name__ == "__main__":
    main()
