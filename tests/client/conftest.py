"""App of the service's tests, for the client's commands, and a clock for its retries."""

import pytest

from tests.client.answers import Clock
from tests.service.conftest import _authorities, _readers, _routes, _service, client, stores

__all__ = ["_authorities", "_readers", "_routes", "_service", "client", "stores"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Clock of the client."""
    return Clock(monkeypatch)
