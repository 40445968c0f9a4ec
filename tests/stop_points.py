"""Stop-points: the moments at which the death of a process leaves different things behind.

What a process leaves in Redis and on disk changes only with its writes, so there is a stop-point before each of them: a
command that writes, a transaction, a command of a pipeline without a transaction (a server may get a part of it), and a
file that is created, renamed or removed. A test, or the chaos, ends a process at one of them.
"""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from redis.connection import AbstractConnection

from worker.storage.object_store.backend import Bucket

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Commands that change nothing, or nothing but the connection.
_READS = """
ACL AUTH CLIENT CONFIG DISCARD DBSIZE ECHO EXISTS GET HELLO HEXISTS HGET HGETALL HLEN HMGET INFO KEYS LLEN LPOS LRANGE
MEMORY MGET PING PSUBSCRIBE READONLY ROLE SCAN SCARD SCRIPT SELECT SISMEMBER SMEMBERS SRANDMEMBER SUBSCRIBE TIME TTL
TYPE UNSUBSCRIBE UNWATCH WAIT WATCH XINFO XLEN XPENDING XRANGE ZCARD ZCOUNT ZRANGE ZRANGEBYLEX ZRANGEBYSCORE
ZREVRANGEBYLEX ZSCORE
"""
READS = frozenset(_READS.split())
# Keys that say which workers are alive or clean up: they expire by themselves, and nothing else depends on them.
WORKERS = ("rq:worker:", "rq:workers", "rq:clean_", "rq:queues", "glle:worker")
FILE_CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"})
SENT_SECONDS = 0.02  # the first commands of a pipeline arrive at the server

# What is called with the name of each write before it happens; returns whether the process dies now.
_decide: Callable[[str], bool] | None = None
_die: Callable[[], None] = sys.exit


class Stopped(BaseException):
    """The process has died: nothing that it does afterwards has an effect."""


class StopAt:
    """Stop at a stop-point by its number, from 0, and refuse all later writes and commands, as a dead process.

    Parameters
    ----------
    number
        Of the stop-point; a negative number counts the stop-points and stops at none.

    Attributes
    ----------
    names
        Of the stop-points that were reached.

    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.names: list[str] = []
        self.is_dead = False

    def __call__(self, name: str) -> bool:
        """Return whether the process is dead before this write."""
        if not self.is_dead:
            self.names.append(name)
            self.is_dead = len(self.names) - 1 == self.number
        return self.is_dead

    @staticmethod
    def die() -> None:
        """End the work of the process."""
        raise Stopped


@contextmanager
def stopping(number: int) -> Iterator[StopAt]:
    """Let the block run as a process that dies at a stop-point."""
    stop = StopAt(number)
    install(stop, stop.die)
    try:
        yield stop
    except Stopped:
        assert stop.is_dead
    finally:
        install(None, stop.die)


def install(decide: Callable[[str], bool] | None, die: Callable[[], None]) -> None:
    """Ask `decide` before each write of this process, from now on, and call `die` when it says so."""
    global _decide, _die  # hooks of the process
    _decide, _die = decide, die
    if not hasattr(AbstractConnection.send_packed_command, "stops"):
        _patch()


def _stop(name: str) -> None:
    if _decide is not None and _decide(name):
        _die()


def _patch() -> None:
    send_all, remove = AbstractConnection.send_packed_command, Bucket.remove

    def send(self: AbstractConnection, command: Any, check_health: bool = True) -> None:  # noqa: FBT001, FBT002 # of redis-py
        if _decide is not None:
            packet = b"".join(command) if isinstance(command, list) else bytes(command)
            for name, start in _writes(packet):
                if _decide(name):
                    if start:
                        send_all(self, [packet[:start]], check_health)  # type: ignore[no-untyped-call]
                        time.sleep(SENT_SECONDS)
                    self.disconnect()  # type: ignore[no-untyped-call]
                    _die()
        send_all(self, command, check_health)  # type: ignore[no-untyped-call]

    def remove_object(self: Bucket, path: str) -> None:
        _stop("remove")
        remove(self, path)

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        if _decide is None:
            return
        is_new = event == "open" and isinstance(arguments[2], int) and arguments[2] & 0o100
        if (event in FILE_CHANGES or is_new) and not str(arguments[0]).endswith((".pyc", ".nbi", ".nbc")):
            _stop("create" if is_new else event)

    send.stops = True  # type: ignore[attr-defined] # marks the patch
    AbstractConnection.send_packed_command = send  # type: ignore[method-assign]
    Bucket.remove = remove_object  # type: ignore[method-assign]
    sys.addaudithook(audit)


def _writes(packet: bytes) -> list[tuple[str, int]]:
    """Return name and position of the commands that write; a transaction is one, at its beginning."""
    writes: list[tuple[str, int]] = []
    position = 0
    while position < len(packet):
        start, words = position, []
        position = packet.index(b"\r\n", position) + 2
        for _ in range(int(packet[start + 1 : position - 2])):
            end = packet.index(b"\r\n", position)
            size = int(packet[position + 1 : end])
            words.append(packet[end + 2 : end + 2 + size])
            position = end + 4 + size
        name = words[0].split()[0].decode().upper()
        if name == "MULTI":
            return [*writes, ("MULTI", start)]
        key = words[1].decode(errors="replace") if len(words) > 1 else ""
        if name not in READS and not key.startswith(WORKERS):
            place = 3 if name in {"EVAL", "EVALSHA"} else 1  # of the first key
            first = [word.decode(errors="replace") for word in words[place : place + 1]]
            writes.append((" ".join([name, *first]), start))
    return writes
