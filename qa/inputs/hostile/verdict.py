"""Conditions that every answer to a hostile body must meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.inputs.hostile.bodies.caps import MAX_BYTES, MAX_SECONDS
from service.schemas.problems import MEDIA_TYPE

if TYPE_CHECKING:
    from qa.inputs.hostile.case import Outcome


def faults(result: Outcome, *, is_accepted: bool | None = None) -> list[str]:
    """Return the faults of an answer; `is_accepted` is whether the body is valid, or None for either."""
    refused = 400 <= result.status < 500
    findings = []
    if not refused and result.status not in {200, 201}:
        findings.append(f"status {result.status} {result.code}")
    elif is_accepted is not None and is_accepted == refused:
        findings.append(f"{'refused' if refused else 'taken'}: {result.status} {result.code}")
    if refused and (result.media != MEDIA_TYPE or not result.code):
        findings.append(f"{result.media} for a problem")
    if result.seconds > MAX_SECONDS:
        findings.append(f"{result.seconds:.1f} s of processor time")
    if result.peak > MAX_BYTES:
        findings.append(f"{result.peak / 2**20:.0f} MB of memory")
    if result.left:
        findings.append(f"left behind: {result.left}")
    return findings
