"""Events of a stream."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Event = tuple[int, str, dict[str, Any]]


def parse_events(lines: Iterator[str]) -> Iterator[Event]:
    """Yield (id, event, data) of a stream of lines without comments."""
    event: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(": ")
        if name in {"id", "event", "data"}:
            event[name] = value
        elif not line and "data" in event:
            yield int(event["id"]), event["event"], json.loads(event["data"])
            event = {}
