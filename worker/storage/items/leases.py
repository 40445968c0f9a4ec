"""Leases: locks in the queue's Redis that end by themselves, so that a killed holder does not block others.

A holder may be suspended beyond the end of its lease, and never notices. So each change of the index names the leases
of its request, and Redis refuses it unless all of them are still held (`Leases.fences`). A refused change loses
nothing: the request is repeated.
"""

from __future__ import annotations

import contextlib
import logging
import secrets
import time
from contextvars import ContextVar
from typing import TYPE_CHECKING

import redis

from worker.base.problems import refuse
from worker.connections.event_loop import pause
from worker.records.ids import text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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

_HELD: ContextVar[Mapping[str, str]] = ContextVar("leases", default={})  # noqa: B039 # never changed in place

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

    @property
    def fences(self) -> Mapping[str, str]:
        """Keys and tokens of the leases that this request, or task, holds as far as it knows."""
        return _HELD.get()

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
        while not self._take(key, token):
            if time.monotonic() > deadline:
                raise lost()
            pause(POLL_SECONDS)
        former = _HELD.set({**_HELD.get(), key: token})
        try:
            yield
        except BaseException:
            self._end(key, token)
            raise
        finally:
            _HELD.reset(former)
        if not self._end(key, token):
            raise lost()

    def _take(self, key: str, token: str) -> bool:
        """Take a free lease; after a repeated command it may be taken already."""
        if self._client.set(key, token, nx=True, ex=LEASE_SECONDS):
            return True
        holder = self._client.get(key)
        return holder is not None and text(holder) == token

    def _end(self, key: str, token: str) -> bool:
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
