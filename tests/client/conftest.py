"""The service's test app for the client's commands, and a fake clock for the client's retries."""

import pytest

from tests.client.answers import Clock
from tests.service.conftest import _authorities, _readers, _routes, _service, client, stores

__all__ = ["_authorities", "_readers", "_routes", "_service", "client", "stores"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Replace the client's clock by a fake one, so that retries do not wait."""
    return Clock(monkeypatch)
