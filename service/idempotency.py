"""Idempotency-Key: the same key and body is the same answer, another body is refused.

What is asked for is named by its content already, so a replay shares the job or finds the result; the key
adds that a job that failed or was cancelled is told again, not done again, and that a reused key is noticed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Header

from worker.identity import digest
from worker.problems import refuse
from worker.tenants import DEFAULT, own

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.jobs import Job
    from worker.stores import Stores

KEPT_SECONDS = 86400

Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=200,
        description="Chosen by the client: a repeat with the same key and body, within a day, gets the same job.",
    ),
]


def once(here: Stores, key: str | None, request: tuple[str, Any], create: Callable[[], Job]) -> Job:
    """Return the job that was created under `key`, or create it now.

    Parameters
    ----------
    request
        The route and the body, JSON-able: what must be the same.

    Raises
    ------
    ProblemError
        ``idempotency-key-reused`` when it is not.

    """
    if key is None:
        return create()
    name, asked = own(f"glle:once:{digest(key)}", here.tenant or DEFAULT), digest(*request)
    raw = here.client.get(name)
    if raw is not None:
        known = json.loads(raw)
        if known["asked"] != asked:
            remedy = "Choose a new key for a new request."
            detail = f"The Idempotency-Key {key!r} was used with another request."
            raise refuse("idempotency-key-reused", 422, detail, remedy)
        if (job := here.jobs.get(known["job"])) is not None:
            return job
    job = create()
    here.client.set(name, json.dumps({"asked": asked, "job": job.id}), ex=KEPT_SECONDS)
    return job
