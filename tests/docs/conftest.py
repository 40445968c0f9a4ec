"""The running service of the system tests, for the examples of the pages."""

from tests.system.conftest import client, up

__all__ = ["client", "up"]
