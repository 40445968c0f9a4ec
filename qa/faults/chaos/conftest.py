"""Fixtures of `tests` that the tests in this folder use."""

from tests.conftest import server_settings, settings, stores

__all__ = ["server_settings", "settings", "stores"]
