"""App of the service's tests, for the client's commands."""

from tests.service.conftest import _authorities, _readers, _routes, _served, client, stores

__all__ = ["_authorities", "_readers", "_routes", "_served", "client", "stores"]
