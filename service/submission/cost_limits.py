"""What an embedding may take: refused before it is computed, with what would do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from glle_engine.base.errors import GlleError
from glle_engine.methods import METHODS
from worker.base.problems import ProblemError, refuse

if TYPE_CHECKING:
    from glle_engine.methods import Cost, Method, MethodSpec
    from worker.base.settings import Settings

QUICKER = 3  # methods that a refusal names


@dataclass(frozen=True)
class Allowance:
    """What an embedding may be expected to take.

    Parameters
    ----------
    seconds
        The factor of safety is off already.
    bytes
        Of working memory.

    """

    seconds: float
    bytes: int

    @classmethod
    def of(cls, settings: Settings, deadline: float | None = None) -> Self:
        """Return what the settings allow, within a deadline of so many seconds."""
        seconds = min(settings.job_timeout, deadline or settings.job_timeout)
        return cls(seconds / settings.cost_margin, settings.method_bytes)

    def covers(self, cost: Cost) -> bool:
        """Say whether a cost is within."""
        return cost.seconds <= self.seconds and cost.bytes <= self.bytes


def require_affordable(one: Method[Any], n: int, d: int, spec: MethodSpec, allowed: Allowance) -> None:
    """Raise the problem ``too-long`` or ``too-much-memory`` of what would not finish.

    `details` has what is expected and allowed, how it grows, the most points that would do, and methods that would.
    """
    cost = one.cost(n, d, spec)
    if allowed.covers(cost):
        return
    most, quicker = most_points(one, n, d, spec, allowed), _quicker(n, d, spec, allowed)
    ways = [f"give at most {most:,} points"] if most else []
    ways += [f"take {', '.join(quicker)}"] if quicker else []
    facts = {
        "growth": one.growth,
        "most_points": most,
        "quicker": quicker,
        "expected_seconds": _told(cost.seconds),
        "allowed_seconds": _told(allowed.seconds),
        "expected_bytes": _told(cost.bytes),
        "allowed_bytes": allowed.bytes,
    }
    if cost.seconds > allowed.seconds:
        ways.append("ask with a longer deadline, or raise GLLE_JOB_TIMEOUT")
        code, told = "too-long", f"some {_told(cost.seconds):,} s; {_told(allowed.seconds):,} are allowed"
    else:
        ways.append("raise GLLE_METHOD_BYTES")
        code, told = "too-much-memory", f"some {cost.bytes:,.0f} bytes of memory; {allowed.bytes:,} are allowed"
    detail = f"{one.title} of {n:,} points with {d:,} features takes {told}. It grows as {one.growth}."
    remedy = "; or ".join(ways)
    raise refuse(code, 422, detail, remedy[0].upper() + remedy[1:] + ".", **facts)


def require_affordable_together(costs: list[Cost], allowed: Allowance) -> None:
    """Raise the problem ``too-long`` of embeddings that one job would not finish one after the other."""
    seconds = sum(cost.seconds for cost in costs)
    if seconds > allowed.seconds:
        raise refuse(
            "too-long",
            422,
            f"{len(costs)} methods take some {_told(seconds):,} s together; {_told(allowed.seconds):,} are allowed.",
            "Compare fewer at a time: an embedding that is there already costs nothing, so make the longest ones with "
            "POST /v1/embeddings first; or ask with a longer deadline, or raise GLLE_JOB_TIMEOUT.",
            expected_seconds=_told(seconds),
            allowed_seconds=_told(allowed.seconds),
        )


def most_points(one: Method[Any], n: int, d: int, spec: MethodSpec, allowed: Allowance) -> int | None:
    """Return the most points, up to n, that a method can do within what is allowed; None: none."""
    if allowed.covers(one.cost(n, d, spec)):
        return n
    least, most = 0, n
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if allowed.covers(one.cost(middle, d, spec)) else (least, middle)
    try:
        one.require_possible(least, d, spec, labels=one.labels)
    except GlleError:
        return None
    return least


def _quicker(n: int, d: int, spec: MethodSpec, allowed: Allowance) -> list[str]:
    """Return the methods that would do with their defaults, the quickest first."""
    found = []
    for other in METHODS.values():
        try:
            other_spec = other.spec(n_components=spec.n_components)
            other.require_possible(n, d, other_spec)
        except (GlleError, ProblemError):
            continue
        cost = other.cost(n, d, other_spec)
        if allowed.covers(cost):
            found.append((cost.seconds, other.name))
    return [name for _, name in sorted(found)[:QUICKER]]


def _told(number: float) -> float:
    """Return three digits of a number: it is an estimate."""
    return float(f"{number:.3g}")
