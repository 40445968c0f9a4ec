"""Fixtures of `tests` that the tests of the checks use."""

from tests.conftest import server_settings, settings, stores

__all__ = ["server_settings", "settings", "stores"]
