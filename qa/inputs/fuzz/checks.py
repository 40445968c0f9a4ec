"""A check for schemathesis: the service refuses a request that its schema allows only for rules beyond JSON Schema.

The module also tells schemathesis how to make the bodies of npz files.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import schemathesis
from hypothesis import strategies as st

if TYPE_CHECKING:
    from typing import Any

    from schemathesis import Case, CheckContext, Response

# Rules between members, and integers written as 3.0, which are integers to JSON Schema but not to the service.
_BEYOND_A_SCHEMA = {"value_error", "int_type"}
_UNPROCESSABLE = 422


def _npz(arrays: dict[str, list[float]]) -> bytes:
    file = io.BytesIO()
    members: dict[str, Any] = {name: np.array(values) for name, values in arrays.items()}
    np.savez(file, **members)
    return file.getvalue()


_NAMES = st.sampled_from(["weights", "mean", "neighbors", "x"])
_ARCHIVES = st.dictionaries(_NAMES, st.lists(st.floats(width=32), max_size=8)).map(_npz)
schemathesis.openapi.media_type("application/zip", st.binary(max_size=200) | _ARCHIVES, aliases=["application/x-npz"])


@schemathesis.check
def schema_is_what_is_parsed(ctx: CheckContext, response: Response, case: Case[Any]) -> bool | None:
    """Raise AssertionError if the service refused an allowed request for a reason that a schema can express."""
    del ctx
    if case.meta is None or not case.meta.generation.mode.is_positive or response.status_code != _UNPROCESSABLE:
        return None
    problem = response.json()
    if problem["type"] == "urn:glle:problem:invalid-request":
        kinds = {error["kind"] for error in problem["details"]["errors"]}
        if "int_type" in kinds:  # of an integer or a word, each of which is an error
            kinds.discard("literal_error")
        assert kinds <= _BEYOND_A_SCHEMA, f"The schema allows the request, the service refused it: {problem['detail']}"
    return None
