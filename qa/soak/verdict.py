"""Check that a series is flat: medians of its second half against its first half, allowing for noise.

The measurement begins after the warm-up. Memory: the medians of the resident bytes of both halves differ by at most
5 %; proportional and unique bytes change with every fork. Descriptors and threads: the medians differ by at most two.
Latency: each percentile is computed in ten windows. The 95 % confidence interval of their slope (Theil and Sen) must
not lie above a rise of 5 % over the measured time. Noise of a shared machine widens the interval without raising it.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from qa.load.ledger import Attempt
    from qa.soak.sampling import Sample

ALLOWED = 0.05
ALLOWED_COUNT = 2
ALLOWED_WAITING = 20
WINDOWS = 10
MIN_ATTEMPTS = {50: 5, 95: 20, 99: 50}  # minimum number of attempts for a percentile
_MIB = 2**20


@dataclass(frozen=True)
class Verdict:
    """A series: medians of both halves, their change, the slope, and whether it is flat."""

    what: str
    unit: str
    first: float
    second: float
    low: float
    high: float
    is_flat: bool

    @property
    def change(self) -> float:
        """Relative change from the first half to the second."""
        return self.second / self.first - 1 if self.first else 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as a JSON-able dictionary."""
        return {**asdict(self), "change": self.change}

    def line(self) -> str:
        """Return the line of the table."""
        span = f"[{100 * self.low:+6.1f}, {100 * self.high:+6.1f}]"
        result = f"{self.first:10.2f} {self.second:10.2f} {100 * self.change:+7.1f} {span:>18}"
        return f"{self.what:34} {self.unit:4} {result}  {'flat' if self.is_flat else 'NOT FLAT'}"


HEAD = f"{'series':34} {'unit':4} {'1st half':>10} {'2nd half':>10} {'change%':>7} {'slope 95 %':>18}"


def process_verdicts(samples: Sequence[Sample], warm_up: float) -> list[Verdict]:
    """Return the verdicts on memory, descriptors and threads of each process; a process that ended is not flat."""
    measured = [sample for sample in samples if sample.at >= warm_up]
    names = list(samples[0].processes)
    verdicts = []
    for name in names:
        present = [sample for sample in measured if name in sample.processes]
        if len(present) < len(measured):
            verdicts.append(Verdict(f"{name}: ended", "", 1, 0, -1, -1, is_flat=False))
            continue
        at = np.array([sample.at for sample in present])
        usages = [sample.processes[name] for sample in present]
        verdicts.append(_memory(f"{name}: resident", at, np.array([usage.rss for usage in usages]) / _MIB))
        verdicts.append(_count(f"{name}: descriptors", at, np.array([usage.fds for usage in usages])))
        verdicts.append(_count(f"{name}: threads", at, np.array([usage.threads for usage in usages])))
    return verdicts


def server_verdicts(samples: Sequence[Sample], warm_up: float) -> list[Verdict]:
    """Return the verdicts on each server's reported memory and on the number of waiting tasks.

    A growing queue means that this machine cannot sustain the load, so that latency is meaningless.
    """
    measured = [sample for sample in samples if sample.at >= warm_up]
    at = np.array([sample.at for sample in measured])
    waiting = np.array([sample.servers.get("queue length", np.nan) for sample in measured])
    first, second = _halves(at, waiting)
    low, high = _slope(at, waiting)
    verdicts = [
        Verdict("queue: tasks that wait", "", first, second, low, high, is_flat=second <= first + ALLOWED_WAITING)
    ]
    for name in ("queue used MiB", "cache used MiB"):
        present = [sample for sample in measured if name in sample.servers]
        at = np.array([sample.at for sample in present])
        values = np.array([sample.servers[name] for sample in present])
        verdicts.append(_memory(name.replace(" used MiB", " server: used"), at, values))
    return verdicts


def latency_verdicts(attempts: Sequence[Attempt], started: float, warm_up: float) -> list[Verdict]:
    """Return the verdicts on the percentiles of all attempts, and of each operation with enough attempts.

    Parameters
    ----------
    began
        Start of the load (`time.time`).

    """
    measured = [attempt for attempt in attempts if attempt.at - started >= warm_up and attempt.status not in {0, 503}]
    kinds = {"all": measured}
    for attempt in measured:
        kinds.setdefault(attempt.operation, []).append(attempt)
    verdicts = []
    for kind, group in sorted(kinds.items()):
        at = np.array([attempt.at for attempt in group])
        seconds = np.array([attempt.seconds for attempt in group])
        edges = np.linspace(started + warm_up, max(attempt.at for attempt in measured), WINDOWS + 1)[1:-1]
        windows = [seconds[np.digitize(at, edges) == number] for number in range(WINDOWS)]
        for level, least in MIN_ATTEMPTS.items():
            if min(map(len, windows)) >= least:
                values = 1000 * np.array([np.percentile(window, level) for window in windows])
                first, second = np.median(values[: WINDOWS // 2]), np.median(values[WINDOWS // 2 :])
                low, high = _slope(np.arange(WINDOWS), values)
                verdict = Verdict(f"{kind}: p{level}", "ms", first, second, low, high, is_flat=bool(low <= ALLOWED))
                verdicts.append(verdict)
    return verdicts


def _memory(what: str, at: Any, values: Any) -> Verdict:
    first, second = _halves(at, values)
    low, high = _slope(at, values)
    return Verdict(what, "MiB", first, second, low, high, is_flat=abs(second / first - 1) <= ALLOWED)


def _count(what: str, at: Any, values: Any) -> Verdict:
    first, second = _halves(at, values)
    low, high = _slope(at, values)
    return Verdict(what, "", first, second, low, high, is_flat=abs(second - first) <= ALLOWED_COUNT)


def _halves(at: Any, values: Any) -> tuple[float, float]:
    middle = (at[0] + at[-1]) / 2
    return float(np.median(values[at <= middle])), float(np.median(values[at > middle]))


def _slope(at: Any, values: Any) -> tuple[float, float]:
    """Return the interval of the relative change over the whole time, in units of the median."""
    _, _, low, high = stats.theilslopes(values, at, 0.95)
    scale = (at[-1] - at[0]) / max(abs(float(np.median(values))), 1e-9)
    return float(low * scale), float(high * scale)
