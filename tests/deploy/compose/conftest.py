"""Fixtures: the container engine and the composed service, once for the whole suite."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.conftest import until

from .engine import Engine, import_standins, run_engine

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

API = "http://127.0.0.1:8000"


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """Yield a container engine with the stand-in images."""
    if "ENGINE_FOLDER" not in os.environ:
        pytest.fail("The engine needs separate namespaces: bash tests/deploy/compose/run", pytrace=False)
    with run_engine(Path(os.environ["ENGINE_FOLDER"]), os.environ["ENGINE_CGROUP"]) as engine:
        import_standins(engine, Path(os.environ["STANDIN_BASE"]), Path(os.environ["STANDIN_WHEELS"]))
        yield engine


@pytest.fixture(scope="session")
def stack(engine: Engine) -> Iterator[Engine]:
    """Yield the engine with two workers, whose image `up` builds first; remove everything at the end."""
    try:
        up(engine)
        yield engine
    finally:
        engine.compose("down", "--volumes")
        left = engine.docker("ps", "--all", "--quiet") + engine.docker("volume", "ls", "--quiet")
        assert left == "", "down --volumes leaves nothing"


@pytest.fixture
def client(stack: Engine) -> Iterator[httpx.Client]:
    """Yield a client of the API at its published port."""
    with httpx.Client(base_url=API, timeout=90) as client:
        yield client


def up(engine: Engine) -> None:
    """Start the service with two workers and wait until it is ready."""
    engine.compose("up", "--detach", "--scale", "worker=2")

    def ready() -> bool:
        try:
            return httpx.get(f"{API}/readyz").is_success
        except httpx.TransportError:
            return False

    try:
        until(ready)
    except AssertionError as error:
        error.add_note(engine.compose("ps") + engine.compose("logs", "--no-color", "--tail=50"))
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Attach the container logs to the report of a failed test."""
    report = yield
    stack = getattr(item, "funcargs", {}).get("stack")
    if report.failed and stack is not None:
        report.sections.append(("containers", stack.compose("logs", "--no-color", "--tail=40", check=False)))
    return report
