"""Leases: locks in the queue's Redis that end by themselves, so that a killed holder does not block others.

A holder may be suspended beyond the end of its lease, and never notices. So each change of the index names the leases
of its thread, and Redis refuses it unless all of them are still held (`Leases.fences`). A refused change loses
nothing: the request is repeated.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING

import redis

from worker.base.problems import refuse
from worker.connections.event_loop import pause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.base.problems import ProblemError

LEASE_SECONDS = 30  # a holder writes one small object, and the index
PATIENCE_SECONDS = 60.0
POLL_SECONDS = 0.02
RETRY_SECONDS = 2

# KEYS: a lease. ARGV: its token. Returns whether it was still held.
_RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""

log = logging.getLogger(__name__)


class Leases:
    """Leases of this process.

    Parameters
    ----------
    client
        The queue's Redis.

    """

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._release = client.register_script(_RELEASE)
        self._local = threading.local()

    @property
    def fences(self) -> dict[str, str]:
        """Keys and tokens of the leases that this thread holds, as it believes."""
        held: dict[str, str] = self._local.__dict__.setdefault("held", {})
        return held

    @contextlib.contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """Hold a lease; wait for another holder.

        Raises
        ------
        ProblemError
            ``lease-lost``: another holder keeps it, or it ended too soon. What was changed meanwhile stays consistent.

        """
        key, token = f"glle:lease:{name}", secrets.token_hex(8)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._client.set(key, token, nx=True, ex=LEASE_SECONDS):
            if time.monotonic() > deadline:
                raise lost()
            pause(POLL_SECONDS)
        self.fences[key] = token
        try:
            yield
        except BaseException:
            self._end(key, token)
            raise
        if not self._end(key, token):
            raise lost()

    def _end(self, key: str, token: str) -> bool:
        del self.fences[key]
        try:
            return bool(self._release(keys=[key], args=[token]))
        except redis.RedisError as error:
            log.warning("A lease could not be released, and ends by itself: %s", type(error).__name__)
            return True


def lost() -> ProblemError:
    """Return the refusal of a change whose lease has ended."""
    return refuse(
        "lease-lost",
        503,
        "Another request changes the same data, or this one was suspended for too long.",
        "Send the request again: a repetition changes nothing twice.",
        retry_after=RETRY_SECONDS,
    )
