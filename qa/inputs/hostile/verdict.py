"""What must be true of every answer to a hostile body."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.hostile.bodies.caps import MOST_BYTES, MOST_SECONDS
from service.schemas.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from qa.inputs.hostile.case import Told


def faults(told: Told, *, taken: bool | None = None) -> list[str]:
    """Return what is wrong with an answer; `taken` is whether the body is good, None where either will do."""
    refused = 400 <= told.status < 500
    found = []
    if not refused and told.status not in {200, 201}:
        found.append(f"status {told.status} {told.code}")
    elif taken is not None and taken == refused:
        found.append(f"{'refused' if refused else 'taken'}: {told.status} {told.code}")
    if refused and (told.media != MEDIA_TYPE or not told.code):
        found.append(f"{told.media} for a problem")
    if told.seconds > MOST_SECONDS:
        found.append(f"{told.seconds:.1f} s of processor time")
    if told.peak > MOST_BYTES:
        found.append(f"{told.peak / 2**20:.0f} MB of memory")
    if told.left:
        found.append(f"left behind: {told.left}")
    return found
