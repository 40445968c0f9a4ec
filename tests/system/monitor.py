"""Commands that Redis servers execute during a window, read by MONITOR."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections import Counter
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import redis

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_IDS = re.compile(r"[0-9a-f]{8,}|\d+(\.\d+)?|worker-\S+")
_WITH_SCRIPT = frozenset({"EVAL", "EVALSHA", "FCALL", "EVAL_RO", "EVALSHA_RO", "FCALL_RO"})


@dataclass
class Commands:
    """Commands by server, name and key.

    Attributes
    ----------
    sent : Counter
        Commands that clients sent, MULTI and EXEC included.
    inner : Counter
        Commands that Lua scripts called.
    seconds : float
        Length of the window.

    """

    sent: Counter[str] = field(default_factory=Counter)
    inner: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@dataclass(frozen=True)
class Cost:
    """Commands of one repetition of an operation, by what they are; a mean, so that a fraction is possible."""

    sent: Mapping[str, float]
    inner: Mapping[str, float]

    def __str__(self) -> str:
        """Return both totals and the most frequent commands."""
        parts = [f"{sum(self.sent.values()):.1f} sent, {sum(self.inner.values()):.1f} inside Lua"]
        for title, counts in (("sent", self.sent), ("inside Lua", self.inner)):
            rows = sorted(counts.items(), key=lambda row: -abs(row[1]))
            parts += [f"  {count:7.2f}  {title}: {what}" for what, count in rows if abs(count) >= 0.05]
        return "\n".join(parts)

    @property
    def total(self) -> float:
        """Number of sent commands."""
        return sum(self.sent.values())

    @property
    def total_inner(self) -> float:
        """Number of commands inside Lua."""
        return sum(self.inner.values())


def cost(busy: Commands, idle: Commands, times: int) -> Cost:
    """Return the commands of one repetition: those of a busy window less those of an idle one of the same length.

    The idle window has the heartbeats and the maintenance of processes without work, which belong to no operation.
    """
    scale = busy.seconds / idle.seconds

    def less(of_busy: Counter[str], of_idle: Counter[str]) -> dict[str, float]:
        return {what: (of_busy[what] - scale * of_idle[what]) / times for what in of_busy | of_idle}

    return Cost(less(busy.sent, idle.sent), less(busy.inner, idle.inner))


@contextmanager
def monitored(**urls: str) -> Iterator[Commands]:
    """Count the commands of several servers, from the start to the end of the block.

    Markers, sent on a separate connection, delimit the window on each server.

    Parameters
    ----------
    urls
        URLs of the servers by name.

    """
    commands = Commands()
    with ExitStack() as stack:
        started = time.monotonic()
        for name, url in urls.items():
            client = stack.enter_context(redis.Redis.from_url(url, socket_timeout=None))  # MONITOR waits for commands
            stack.enter_context(_monitored(name, client, commands))
        yield commands
        commands.seconds = time.monotonic() - started


@contextmanager
def _monitored(name: str, client: redis.Redis, commands: Commands) -> Iterator[None]:
    first, last = uuid.uuid4().hex, uuid.uuid4().hex
    client.ping()  # opens the connection of the markers
    with client.monitor() as monitor:  # type: ignore[no-untyped-call] # redis-py's own
        reader = threading.Thread(target=_read, args=(monitor, first, last, name, commands), name=f"monitor {name}")
        reader.start()
        client.echo(first)
        try:
            yield
        finally:
            client.echo(last)
            reader.join()


def _read(monitor: Any, first: str, last: str, name: str, commands: Commands) -> None:
    """Count the commands between two markers."""
    is_open = False
    for event in monitor.listen():
        text = event["command"]
        if last in text:
            return
        if is_open:
            counts = commands.inner if event["client_type"] == "lua" else commands.sent
            counts[f"{name}: {_shape(text)}"] += 1
        is_open = is_open or first in text


def _shape(text: str) -> str:
    """Return the name of a command and its first key, with * in place of ids and numbers."""
    words = text.split(" ", 4)
    command = words[0].upper()
    if command in _WITH_SCRIPT:
        script = words[1][:6]
        return f"{command} {script} {_IDS.sub('*', words[3])}" if len(words) > 3 else f"{command} {script}"
    return " ".join([command, *(_IDS.sub("*", word)[:48] for word in words[1:2])])
