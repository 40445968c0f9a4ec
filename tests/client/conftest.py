"""The app of the service's tests, for commands that ask it."""

from tests.service.conftest import _served, client, stores

__all__ = ["_served", "client", "stores"]
