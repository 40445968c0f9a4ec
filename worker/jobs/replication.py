"""Jobs that a failover does not lose: accepted when replicas have them, if GLLE_REPLICAS says how many.

A master tells its replicas after it has answered. Killed in between, it takes the last moments along; the replica that
becomes the master has what happened up to some moment, in order. Replicas that have one write have all before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.clock import now_ms
from worker.base.problems import refuse
from worker.jobs.store import job_key

if TYPE_CHECKING:
    import redis

MARK = "glle:replicated"
MARK_SECONDS = 60
WAIT_MS = 1000


def replicated(client: redis.Redis, replicas: int, job: str) -> None:
    """Return once so many replicas have a job, and everything that was written before; 0: at once.

    Raises
    ------
    ProblemError
        ``not-replicated``, when they do not within a second, or the master changed meanwhile and took the job along.

    """
    if not replicas:
        return
    with client.pipeline(transaction=False) as together:
        together.set(MARK, now_ms(), ex=MARK_SECONDS)  # a server waits for the writes of the same connection
        together.wait(replicas, WAIT_MS)
        together.exists(job_key(job))  # on another master than it was written to, it may not be
        _, have, is_there = together.execute()
    if int(have) < replicas or not is_there:
        raise refuse(
            "not-replicated",
            503,
            f"{have} of {replicas} replicas of the queue's Redis have job {job}: it could be lost."
            if is_there
            else f"The queue's Redis changed its master before that had job {job}.",
            "Send the request again in some seconds: what it began already is not begun twice.",
            replicas=int(have),
            wanted=replicas,
        )
