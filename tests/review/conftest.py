"""What the tests of the review share: a small table or a few pictures on a session, and people who use the page."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from browsing import CHROMIUM, PATIENCE, WIDE

from esad import ESAD, Autoencoder, IsolationForest
from esad.review.access import Access
from esad.review.app import guard_app, review_app
from esad.review.dataset import ReviewDataset
from esad.review.ranking import Ranking
from esad.review.session import ReviewSession
from esad.review.store import JudgementStore
from esad.web.server import bind, in_background

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it would like another package than httpx
    from starlette.testclient import TestClient

N_ROWS, N_ODD = 120, 8
EVIL = '<script>document.title="run"</script><img src=x onerror="document.title=1">'


def table(n_rows: int = N_ROWS) -> pa.Table:
    """Numbers of which the last few rows are odd, and a column of text."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_rows, 3))
    X[-N_ODD:] += 6
    words = rng.choice(["red", EVIL, "blue"], n_rows)
    return pa.table({f"x{index}": X[:, index] for index in range(3)} | {f"<b>{EVIL}": words})


def row_dataset(n_rows: int = N_ROWS) -> ReviewDataset:
    cells = table(n_rows)
    names = [f"S{row:03d}" for row in range(n_rows)]
    return ReviewDataset(
        title="parts.csv", X=cells, known=np.zeros(n_rows, np.int8), names=names, id_name="serial", cells=cells
    )


def picture_dataset(n_pictures: int = 24) -> ReviewDataset:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 90, (n_pictures, 1, 16, 16), dtype=np.uint8)
    pictures[0] += 150
    names = [f"a/{number}.png" for number in range(n_pictures)]
    return ReviewDataset(
        title="pictures", X=pictures, known=np.zeros(n_pictures, np.int8), names=names, id_name="file", cells=None
    )


METHODS = {
    "forest": lambda: IsolationForest(random_state=0),
    "esad": lambda: ESAD(n_members=2, hidden=[8], latent=2, n_epochs=4, random_state=0),
    "pictures": lambda: Autoencoder(hidden=(4, 4), n_epochs=1, random_state=0),
}


@pytest.fixture
def make_session(tmp_path) -> Iterator[Callable[..., ReviewSession]]:
    """Sessions of a method, closed at the end."""
    made: list[ReviewSession] = []

    def make(method: str = "forest", dataset: ReviewDataset | None = None, folder: Path = tmp_path) -> ReviewSession:
        dataset = dataset or (picture_dataset() if method == "pictures" else row_dataset())
        detector = METHODS[method]().fit(dataset.X, calibration_ratio=0.2 if method == "forest" else None)
        if method == "esad":
            detector.calibrate()
        model = folder / "parts.esad"
        detector.save(model)
        store = JudgementStore(folder / "parts.labels.db", fingerprint=dataset.fingerprint(), n_rows=dataset.n_rows)
        made.append(ReviewSession(dataset, store, Ranking.of(detector, dataset.X), model))
        return made[-1]

    yield make
    for session in made:
        session.close()


@pytest.fixture
def open_page() -> Callable[..., SimpleNamespace]:
    """A way into the page of a session: clients by the names of reviewers."""

    def open_it(session: ReviewSession) -> SimpleNamespace:
        access, entered = Access(), []
        app = guard_app(review_app(session, access, on_enter=entered.append))

        def enter(name: str) -> TestClient:
            client = TestClient(app, base_url="http://127.0.0.1:8000")
            assert client.get("/", params={"token": access.new_link(name)}).status_code == 200
            return client

        stranger = TestClient(app, base_url="http://127.0.0.1:8000")
        return SimpleNamespace(app=app, access=access, enter=enter, entered=entered, stranger=stranger)

    return open_it


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> object:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("it did not happen in time")


@pytest.fixture(scope="session")
def kit() -> SimpleNamespace:
    return SimpleNamespace(
        evil=EVIL, n_rows=N_ROWS, n_odd=N_ODD, rows=row_dataset, pictures=picture_dataset, wait_for=wait_for
    )


@pytest.fixture(scope="module")
def chromium():
    if CHROMIUM is None:
        pytest.skip("needs Chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def serve(chromium):
    """Puts a session on the web and lets reviewers in, each in a browser profile of their own that outlives it."""
    contexts = []

    @contextmanager
    def serving(session, port=0):
        access = Access()
        with in_background(guard_app(review_app(session, access)), bind(port=port)) as url:

            def enter(name="ann", *, intercepted=True, **options):
                context = chromium.new_context(viewport=WIDE, **options)
                contexts.append(context)
                page = context.new_page()
                page.set_default_timeout(PATIENCE)
                if intercepted:  # from the start: a request right after the first route of all may slip past it
                    page.route("**/no-such-page", lambda route: route.abort())
                page.problems = []
                page.on("pageerror", lambda error: page.problems.append(str(error)))
                page.on("console", lambda said: said.type == "error" and page.problems.append(said.text))
                page.goto(link(name))
                page.wait_for_selector("#item[data-row]")
                return page

            def link(name):
                return f"{url}/?token={access.new_link(name)}"

            yield SimpleNamespace(url=url, enter=enter, link=link)

    yield serving
    for context in contexts:
        context.close()


@pytest.fixture
def opened(make_session, serve):
    """A session and its page, which must not have complained in the end."""
    session = make_session()
    with serve(session) as site:
        page = site.enter()
        yield session, page
        assert page.problems == []
