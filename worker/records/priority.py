"""Terms of a job: deadline and priority.

They are not part of the result. Equal requests share one job, which gets the latest deadline of them and the highest
priority.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from worker.base.clock import now_ms

if TYPE_CHECKING:
    from worker.records.draws import DrawsSpec

Priority = Literal["interactive", "batch"]

# A fit below all of these took less than two seconds on one core, also for noise without a manifold.
QUICK_POINTS = 2000
QUICK_NEIGHBORS = 25
QUICK_VALUES = 200_000


@dataclass(frozen=True)
class Terms:
    """Terms of a job.

    Parameters
    ----------
    deadline
        Milliseconds since 1970; an open job fails then. None: never.
    priority
        ``interactive`` goes before ``batch``; for work of a few seconds.

    """

    deadline: int | None = None
    priority: Priority = "batch"

    @classmethod
    def within(cls, seconds: float | None, priority: Priority = "batch") -> Self:
        """Return terms with a deadline in `seconds` from now."""
        return cls(None if seconds is None else now_ms() + int(1000 * seconds), priority)


ANY_TIME = Terms()


def is_quick_draws(spec: DrawsSpec, seconds: float) -> bool:
    """Return whether a draws job takes at most `seconds` by estimate."""
    return not spec.is_auto and spec.seconds <= seconds


def is_quick_fit(n: int, d: int, spec: dict[str, Any]) -> bool:
    """Return whether the fit of n points with d features takes at most the time of a shard."""
    return (
        n <= QUICK_POINTS
        and n * d <= QUICK_VALUES
        and spec["n_neighbors"] <= QUICK_NEIGHBORS
        and spec["variant"] == "constrained"
    )
