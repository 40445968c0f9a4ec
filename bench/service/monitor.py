"""Count the commands that Redis servers execute during a block of code, by the command MONITOR."""

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
    from collections.abc import Iterator

_IDS = re.compile(r"[0-9a-f]{8,}|\d+(\.\d+)?|worker-\S+")


@dataclass
class Commands:
    """Counts of Redis commands, by texts such as "queue: HGET glle:job:*".

    `sent` counts the commands of clients, with MULTI and EXEC, `inner` those inside of Lua scripts, and `seconds` is
    the time of the measurement.
    """

    sent: Counter[str] = field(default_factory=Counter)
    inner: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0


@contextmanager
def count_commands(**urls: str) -> Iterator[Commands]:
    """Yield counts of the commands that the servers execute within the context; complete when the context ends.

    `urls` maps names of servers, such as "queue", to their URLs.
    """
    commands = Commands()
    with ExitStack() as stack:
        started = time.monotonic()
        for name, url in urls.items():
            client = stack.enter_context(redis.Redis.from_url(url, socket_timeout=None))  # MONITOR waits for commands
            stack.enter_context(_count_server(name, client, commands))
        yield commands
        commands.seconds = time.monotonic() - started


@contextmanager
def _count_server(name: str, client: redis.Redis, commands: Commands) -> Iterator[None]:
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
    """Count the commands between two ECHO commands with the texts `first` and `last`; ids and numbers become *."""
    is_open = False
    for event in monitor.listen():
        text = event["command"]
        if last in text:
            return
        if is_open:
            counts = commands.inner if event["client_type"] == "lua" else commands.sent
            counts[" ".join([f"{name}:", *(_IDS.sub("*", word)[:48] for word in text.split(" ", 2)[:2])])] += 1
        is_open = is_open or first in text
