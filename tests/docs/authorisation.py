"""Who may ask what: one rule, and the page docs/reference/authorisation.md that it makes of the contract.

`python -m tests.docs.authorisation` writes the page.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

from service.cli import main
from service.middleware.access_policy import METRICS, OPEN_PATHS
from worker.tenancy.api_keys import SCOPES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "authorisation.md"
PATHS = json.loads(main.CONTRACT.read_text(encoding="utf-8"))["paths"]
# What is deleted comes last, so that everything else is asked of what is there.
OPERATIONS = sorted(
    ((method.upper(), path) for path, methods in PATHS.items() for method in methods),
    key=lambda operation: (operation[0] == "DELETE", operation[1], operation[0]),
)
Outcome = Literal["open", "401", "403", "404", "yes"]

_HEAD = """# Who may ask what

Written by `python -m tests.docs.authorisation` from the contract and one rule, and checked against the service route
by route (`tests/service/middleware/test_authorisation.py`). See [API keys](../how-to/keys.md).

The rule: open paths tell nothing of anyone's data. Everything else needs a key, else 401. GET needs the scope read, all
other methods write; a key without it is 403. What belongs to another tenant is 404, as if it were not there; lists show
one's own alone, and an id in a body is looked for among one's own. `/metrics` needs admin. On loopback, as long as no
key was made, a client of the machine needs none, and one that comes through a proxy does.

| | | no key, or a bad one | read | write | admin | another tenant's, with any scope that would do |
|---|---|---|---|---|---|---|
"""


def outcome(method: str, path: str, scope: str | None, *, own: bool = True) -> Outcome:
    """Return what comes of a request on loopback.

    Parameters
    ----------
    scope
        Of the key; None without one, or with one that is not good.
    own
        Whether what the path names belongs to the key's tenant.

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
