"""Picture of a soak: memory of each process and server, and latency."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from qa.load.ledger import Attempt
    from qa.soak.sampling import Sample

_MIB = 2**20
_WINDOW = 15.0  # seconds


def draw(path: Path, samples: Sequence[Sample], attempts: Sequence[Attempt], started: float, warm_up: float) -> None:
    """Write the picture as PNG."""
    figure = Figure(figsize=(12, 9), layout="constrained")
    FigureCanvasAgg(figure)
    memory, counts, servers, latency = figure.subplots(2, 2).flat
    minutes = [sample.at / 60 for sample in samples]
    for name in samples[0].processes:
        usages = [sample.processes.get(name) for sample in samples]
        memory.plot(minutes, [np.nan if usage is None else usage.rss / _MIB for usage in usages], label=name)
        counts.plot(minutes, [np.nan if usage is None else usage.fds for usage in usages], label=name)
    for name in ("queue used MiB", "cache used MiB", "queue length"):
        servers.plot(minutes, [sample.servers.get(name, np.nan) for sample in samples], label=name)
    servers.plot(minutes, [sample.servers.get("queue keys", np.nan) / 1000 for sample in samples], label="1,000 keys")
    at = np.array([attempt.at - started for attempt in attempts])
    seconds = np.array([attempt.seconds for attempt in attempts])
    windows = np.arange(0, at.max(), _WINDOW)
    for level in (50, 95, 99):
        values = [_percentile(seconds[(at >= start) & (at < start + _WINDOW)], level) for start in windows]
        latency.plot((windows + _WINDOW / 2) / 60, 1000 * np.array(values), label=f"p{level}")
    latency.set_yscale("log")
    for axes, title in (
        (memory, "resident, MiB"), (counts, "descriptors"), (servers, "servers"), (latency, "answers, ms"),
    ):  # fmt: skip
        axes.set_title(title)
        axes.set_xlabel("minutes")
        axes.axvline(warm_up / 60, color="0.6", linestyle=":")
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=110)


def _percentile(values: np.ndarray[tuple[int], np.dtype[np.float64]], level: float) -> float:
    return float(np.percentile(values, level)) if len(values) else float("nan")
