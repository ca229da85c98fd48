"""What every test shares: one thread, repeatable hypothesis runs, Ctrl-C, the folder of real data."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

# Set before numpy and torch are loaded, and inherited by the processes that tests start: several tests run at once,
# and threads that fight over a core make each of them many times slower.
for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from hypothesis import settings  # noqa: E402
from web import Site  # noqa: E402

# The same examples in every run, so that a red test is never luck; HYPOTHESIS_PROFILE=explore looks further.
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("explore", deadline=None, max_examples=1000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

# A shell tells what it runs in the background to ignore Ctrl-C, and processes that tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder named by ESAD_DATA; without one the test is skipped."""
    folder = os.environ.get("ESAD_DATA")
    if not folder:
        pytest.skip("needs real data: set ESAD_DATA to its folder")
    return Path(folder)


@pytest.fixture
def site(monkeypatch) -> Iterator[Site]:
    """A web server of our own, and downloads that do not wait between attempts."""
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr("esad.datasets.download._PAUSE", 0.0)
    with Site() as served:
        yield served


@pytest.fixture(scope="session")
def rows() -> tuple[np.ndarray, np.ndarray]:
    """A hundred rows, ten of them odd; five odd ones are labelled, and five of the others as normal."""
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(90, 4)), rng.normal(5, 1, size=(10, 4))]
    y = np.zeros(100, dtype=int)
    y[-5:], y[:5] = -1, 1
    return X, y
