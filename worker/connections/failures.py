"""The problem (RFC 9457) with which the service answers a request when a Redis server fails."""

from __future__ import annotations

import logging

import redis

from worker.base.problems import Problem

log = logging.getLogger(__name__)


def redis_problem(error: redis.RedisError) -> Problem:
    """Log an error of a Redis server, and return the problem with status 503 that describes the error."""
    log.error("Redis: %s", error)
    code = "redis-unavailable"
    if isinstance(error, redis.BusyLoadingError):
        detail = "A Redis server was restarted and is still loading its data from disk."
        remedy = "Try again in some seconds; the server recovers by itself."
    elif isinstance(error, redis.OutOfMemoryError):
        code, detail = "redis-full", "The queue's Redis is out of memory and rejects writes. Reads still work."
        remedy = "Try again later; raise GLLE_QUEUE_BYTES (or its maxmemory), or lower GLLE_JOB_TTL."
    elif str(error).startswith("MISCONF"):
        code, detail = "redis-full", "The queue's Redis cannot write to its disk and rejects writes. Reads still work."
        remedy = "Free space on the disk of this server's log; the server then recovers by itself."
    else:
        detail = f"A Redis server does not answer as expected ({type(error).__name__})."
        if isinstance(error, redis.exceptions.MovedError | redis.exceptions.ClusterCrossSlotError):
            remedy = "GLLE_*_URL names one server of a Redis Cluster; `glle doctor` reports which, and the remedy."
        else:
            remedy = "Try again in some seconds; if it persists, check the servers behind GLLE_*_URL."
    return Problem(code=code, status=503, detail=detail, remedy=remedy)
