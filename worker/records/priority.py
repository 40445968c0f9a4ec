"""The terms of a job: by when it is to end, and whether someone waits for it.

They are no part of what is made: equal requests share one job whatever their terms, and it is then made on the
kindest of them. The later deadline counts, or none; what one of them waits for goes before what nobody waits for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from worker.base.clock import now_ms

if TYPE_CHECKING:
    from worker.records.draws import DrawsSpec

Priority = Literal["interactive", "batch"]

# A fit below all of these took less than two seconds on one core, noise without any sheet included.
QUICK_POINTS = 2000
QUICK_NEIGHBORS = 25
QUICK_VALUES = 200_000


@dataclass(frozen=True)
class Terms:
    """The terms of a job.

    Parameters
    ----------
    deadline
        When it fails unless it has ended, in milliseconds since 1970; None: never.
    priority
        ``interactive``: before all that is not; for what takes seconds at most.

    """

    deadline: int | None = None
    priority: Priority = "batch"

    @classmethod
    def within(cls, seconds: float | None, priority: Priority = "batch") -> Self:
        """Return the terms of a job that is to end within so many seconds from now."""
        return cls(None if seconds is None else now_ms() + int(1000 * seconds), priority)


ANY_TIME = Terms()


def is_quick_draws(spec: DrawsSpec, seconds: float) -> bool:
    """Say whether draws take no longer than a shard may."""
    return not spec.is_auto and spec.seconds <= seconds


def is_quick_fit(n: int, d: int, spec: dict[str, Any]) -> bool:
    """Say whether the fit of n points with d features takes no longer than a shard may."""
    return (
        n <= QUICK_POINTS
        and n * d <= QUICK_VALUES
        and spec["n_neighbors"] <= QUICK_NEIGHBORS
        and spec["variant"] == "constrained"
    )
