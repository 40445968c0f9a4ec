"""The contract of the HTTP API: `python -m openapi.contract` writes openapi/openapi.json and the client's types."""

from __future__ import annotations

import json
import sys

from openapi import client_types
from openapi.client_types import CONTRACT
from service.app import create_app
from worker.base.settings import Settings
from worker.stores import Stores

_UNUSED = "redis://127.0.0.1:1"  # the contract needs no server


def contract_text() -> str:
    """Return the contract of the app."""
    app = create_app(Stores.connect(Settings(redis_url=_UNUSED, cache_url=_UNUSED)))
    return json.dumps(app.openapi(), indent=1) + "\n"


def main() -> int:
    """Write the contract and the client's types; return the exit code."""
    CONTRACT.write_text(contract_text(), encoding="utf-8")
    return client_types.main()


if __name__ == "__main__":
    sys.exit(main())
