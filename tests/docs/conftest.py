"""The client of the running service, for the examples of the pages."""

from tests.system.conftest import client

__all__ = ["client"]
