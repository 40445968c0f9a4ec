"""A check of our own: what the contract's schemas allow is refused for reasons that no schema can tell, only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import schemathesis

if TYPE_CHECKING:
    from typing import Any

    from schemathesis import Case, CheckContext, Response

# Rules between members, and integers written as 3.0, which JSON Schema calls integers and the service does not.
_BEYOND_A_SCHEMA = {"value_error", "int_type"}
_UNPROCESSABLE = 422


@schemathesis.check
def schema_is_what_is_parsed(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Fail when a request that the schema allows was refused by the parser of requests."""
    del ctx
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != _UNPROCESSABLE:
        return None
    problem = response.json()
    if problem["type"] == "urn:glle:problem:invalid-request":
        kinds = {error["kind"] for error in problem["details"]["errors"]}
        assert kinds <= _BEYOND_A_SCHEMA, f"The schema allows it, the service does not: {problem['detail']}"
    return None
