"""Fixtures of `tests` that the tests of these programs use, too."""

from tests.conftest import server_settings, settings, stores

__all__ = ["server_settings", "settings", "stores"]
