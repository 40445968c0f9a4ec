"""Conditions that every answer to a hostile body must meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.hostile.bodies.caps import MOST_BYTES, MOST_SECONDS
from service.schemas.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from qa.inputs.hostile.case import Outcome


def faults(result: Outcome, *, taken: bool | None = None) -> list[str]:
    """Return the faults of an answer; `taken` is whether the body is valid, or None if either outcome is right."""
    refused = 400 <= result.status < 500
    found = []
    if not refused and result.status not in {200, 201}:
        found.append(f"status {result.status} {result.code}")
    elif taken is not None and taken == refused:
        found.append(f"{'refused' if refused else 'taken'}: {result.status} {result.code}")
    if refused and (result.media != MEDIA_TYPE or not result.code):
        found.append(f"{result.media} for a problem")
    if result.seconds > MOST_SECONDS:
        found.append(f"{result.seconds:.1f} s of processor time")
    if result.peak > MOST_BYTES:
        found.append(f"{result.peak / 2**20:.0f} MB of memory")
    if result.left:
        found.append(f"left behind: {result.left}")
    return found
