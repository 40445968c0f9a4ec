"""The contract of the HTTP API: `python -m openapi.contract` writes openapi/openapi.json and the clients' types.

With `--check` it writes nothing, and the exit code is 1 if the file differs from the app.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from openapi import client_types, typescript_types
from openapi.client_types import CONTRACT
from service.app import create_app
from worker.base.settings import Settings
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Sequence

_UNUSED = "redis://127.0.0.1:1"  # the contract needs no server


def contract_text() -> str:
    """Return the contract of the app."""
    app = create_app(Stores.connect(Settings(redis_url=_UNUSED, cache_url=_UNUSED)))
    return json.dumps(app.openapi(), indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Write or check the contract; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m openapi.contract", description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare the file with the app")
    is_check, text = parser.parse_args(arguments).check, contract_text()
    if not is_check:
        CONTRACT.write_text(text, encoding="utf-8")
        return client_types.main() or typescript_types.main()
    if CONTRACT.read_text(encoding="utf-8") == text:
        return 0
    sys.stderr.write(f"{CONTRACT} differs from the app: run `make generate` and review the difference.\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
