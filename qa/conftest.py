"""Fixtures of `tests` that these programs' tests share."""

from tests.conftest import server_settings, settings, stores

__all__ = ["server_settings", "settings", "stores"]
