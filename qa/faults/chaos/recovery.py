"""Recovery times: from a kill until clients see the same function succeed again."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from qa.load.ledger import percentiles

if TYPE_CHECKING:
    from qa.faults.chaos.killer import Kill
    from qa.load.ledger import Ledger

# Operations that succeed only with a process of that kind.
_SHOWN_BY = {
    "API": ("GET data", "GET datasets", "GET jobs", "GET job", "GET posterior", "GET draw"),
    "queue server": ("GET jobs", "GET job", "GET posterior", "GET posteriors", "POST draws"),
    "cache server": ("GET draw", "GET arrays", "GET summary", "GET coordinates"),
    "worker": ("GET draw", "GET summary", "POST posterior"),
    "sampler": ("GET draw",),
    "quick RQ worker": ("GET summary", "POST posterior"),
    "batch RQ worker": ("GET summary", "POST posterior"),
    "work-horse": ("GET draw", "GET summary", "POST posterior"),
}


def recoveries(kills: list[Kill], ledger: Ledger) -> dict[str, dict[str, float]]:
    """Return percentiles of the seconds from a kill to the end of the next success that began after it, by kind."""
    recovery_seconds: dict[str, list[float]] = {}
    for kind, operations in _SHOWN_BY.items():
        good = sorted(
            (attempt.at, attempt.at + attempt.seconds)
            for attempt in ledger.attempts
            if attempt.operation in operations and attempt.status in {200, 201, 202}
        )
        begun = [at for at, _ in good]
        for kill in kills:
            if kill.kind == kind and (place := bisect_left(begun, kill.at)) < len(good):
                ends = [end for _, end in good[place : place + 50]]
                recovery_seconds.setdefault(kind, []).append(min(ends) - kill.at)
    return {kind: percentiles(seconds) for kind, seconds in recovery_seconds.items()}
