"""What the tests of the service share: models that train in a moment, and a way to ask without a network."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("fastapi")
httpx = pytest.importorskip("httpx")

from serving import table  # noqa: E402

from esad.cli.app import run  # noqa: E402
from esad.serve.app import Service, ServiceSettings  # noqa: E402

TINY = ("--members", "2", "--set", "n_epochs=2", "--set", "hidden=[8]", "--set", "latent=2")


def fit(folder: Path, *options: str, seed: int = 0, name: str = "parts.esad") -> Path:
    data = folder / "train.csv"
    data.write_text(table(200, seed=seed))
    roles = ("--label-column", "verdict", "--id-column", "serial")
    assert run(["fit", str(data), *roles, "--out", str(folder / name), "--quiet", *options]) == 0
    return folder / name


@pytest.fixture(scope="session")
def parts(tmp_path_factory) -> Path:
    """An ESAD model of such a table with a calibration; not to be changed."""
    return fit(tmp_path_factory.mktemp("serve"), *TINY, "--calibration-ratio", "0.3")


@pytest.fixture(scope="session")
def forest(tmp_path_factory) -> Path:
    """A forest of such a table; not to be changed."""
    return fit(tmp_path_factory.mktemp("serve"), "--method", "iforest")


@pytest.fixture(scope="session")
def numbers(tmp_path_factory) -> Path:
    """A model of an array, whose columns have no names."""
    from esad import IsolationForest

    path = tmp_path_factory.mktemp("serve") / "numbers.esad"
    IsolationForest(n_trees=10, random_state=0).fit(np.random.default_rng(0).normal(size=(200, 3))).save(path)
    return path


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """A model of grey pictures, 12 pixels wide and 10 high."""
    pytest.importorskip("PIL")
    from esad import IsolationForest

    path = tmp_path_factory.mktemp("serve") / "pictures.esad"
    images = np.random.default_rng(0).integers(0, 100, size=(40, 10, 12), dtype=np.uint8)
    IsolationForest(n_trees=10, random_state=0).fit(images).save(path)
    return path


Ask = Callable[..., Any]


def asker(service: Service) -> Ask:
    """A function that asks a service, in this process."""

    def ask(method: str, route: str, **options: Any) -> Any:
        async def once() -> Any:
            transport = httpx.ASGITransport(service.guard, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.request(method, route, **options)

        return asyncio.run(once())

    ask.service = service  # type: ignore[attr-defined]
    return ask


@pytest.fixture
def asking() -> Iterator[Callable[..., Ask]]:
    """Makes a function that asks a service of its own."""
    services = []

    def of(path: Path, **settings: Any) -> Ask:
        services.append(Service(path, ServiceSettings(**settings)))
        return asker(services[-1])

    yield of
    for service in services:
        service.close()


@pytest.fixture(scope="session")
def send() -> Iterator[Callable[..., Any]]:
    """Sends a body to /score of a model; services are shared, for the sake of their warm readers."""
    services: dict[Any, Service] = {}

    def call(path: Path, media_type: str, content: bytes | str, *, route: str = "/score", **settings: Any) -> Any:
        named = path, tuple(settings.items())
        if named not in services:
            services[named] = Service(path, ServiceSettings(**settings))
        return asker(services[named])("POST", route, content=content, headers={"content-type": media_type})

    yield call
    for service in services.values():
        service.close()
