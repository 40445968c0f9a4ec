"""Figure of docs/how-to/scaling.md: throughput and utilization by the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from pathlib import Path

STATIONS = {"workers": "#0072B2", "api": "#E69F00", "queue": "#D55E00", "cache": "#009E73"}  # of Okabe and Ito


def draw(rows: list[dict[str, Any]], path: Path) -> None:
    """Draw a row of two panels for each mix."""
    mixes = list(dict.fromkeys(row["mix"] for row in rows))
    figure, axes = plt.subplots(len(mixes), 2, figsize=(9, 3.2 * len(mixes)), squeeze=False, layout="constrained")
    for (rates, shares), mix in zip(axes, mixes, strict=True):
        here = [row for row in rows if row["mix"] == mix]
        workers = [row["workers"] for row in here]
        rates.loglog(workers, [row["asked"] for row in here], ":", color="0.5", label="asked")
        rates.loglog(workers, [row["done"] for row in here], "o-", color="#0072B2", label="done")
        rates.set(title=f"{mix}: requests a second", xlabel="workers")
        for name, colour in STATIONS.items():
            shares.semilogx(workers, [row["busy"][name] for row in here], "o-", color=colour, label=name)
        shares.set(title=f"{mix}: share of its time busy", xlabel="workers", ylim=(0, 1.05))
        rates.legend()
        shares.legend()
    figure.savefig(path, dpi=90)
    plt.close(figure)
