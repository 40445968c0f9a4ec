"""Authorisation rules by route, and docs/reference/authorisation.md, which is generated from them and the contract.

`python -m tests.docs.authorisation` writes the page.
"""

import json
from pathlib import Path
from typing import Literal

from openapi import client_types
from service.middleware.access_policy import METRICS, OPEN_PATHS
from worker.storage.api_keys import SCOPES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "authorisation.md"
PATHS = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))["paths"]
# Deletions come last, so that the other requests find their resources.
OPERATIONS = sorted(
    ((method.upper(), path) for path, methods in PATHS.items() for method in methods),
    key=lambda operation: (operation[0] == "DELETE", operation[1], operation[0]),
)
Outcome = Literal["open", "401", "403", "404", "yes"]

_HEAD = """# Authorisation

Look up which scope a route needs. A key has one tenant and one scope ([create one](../how-to/keys.md)).

```sh
curl -H "Authorization: Bearer $KEY" http://127.0.0.1:8000/v1/datasets
```

| situation | result |
|---|---|
| open path | no key needed; it reveals no tenant's data |
| no valid key on any other path | 401 |
| GET | needs the scope `read` |
| POST, PATCH, DELETE | need the scope `write`; otherwise 403 |
| `/metrics` | needs the scope `admin`; otherwise 403 |
| resource of another tenant | 404; lists show the key's tenant only |
| loopback, before the first key exists | no key needed, except for requests through a proxy |

`python -m tests.docs.authorisation` writes this page from the contract and these rules.
`tests/service/middleware/access/test_authorisation.py` checks each route against the service.

| method | path | no valid key | read | write | admin | another tenant's resource |
|---|---|---|---|---|---|---|
"""


def outcome(method: str, path: str, scope: str | None, *, own: bool = True) -> Outcome:
    """Return the outcome of a request on loopback.

    Parameters
    ----------
    scope
        Scope of the key; None without a valid key.
    own
        Whether the resource in the path belongs to the key's tenant.

    """
    if path in OPEN_PATHS:
        return "open"
    if scope is None:
        return "401"
    if path == METRICS and scope != "admin":
        return "403"
    if method != "GET" and scope == "read":
        return "403"
    return "yes" if own or "{id}" not in path else "404"


def at_once(method: str, path: str) -> dict[str, int]:
    """Return the query of a request that waits for no job."""
    names = {parameter["name"] for parameter in PATHS[path][method.lower()].get("parameters", ())}
    return {"wait": 0} if "wait" in names else {}


def page() -> str:
    """Return the page."""
    rows = []
    for method, path in sorted(OPERATIONS, key=lambda operation: (operation[1], operation[0])):
        cells = [outcome(method, path, scope) for scope in (None, *SCOPES)]
        other = outcome(method, path, "admin", own=False) if "{id}" in path else ""
        rows.append(f"| {method} | `{path}` | {' | '.join(cells)} | {other} |\n")
    return _HEAD + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
