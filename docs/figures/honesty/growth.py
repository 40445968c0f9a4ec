"""Growth of the true spread from n to n / 2 points, which half-samples assume to be sqrt(2).

`python -m docs.figures.honesty.growth` prints the table of docs/explanation/honesty.md in two minutes.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

from dataclasses import replace

import numpy as np

from docs.figures.honesty import measures
from docs.figures.honesty.__main__ import read_rows
from docs.figures.honesty.rows import HALVES
from docs.figures.honesty.settings import FIT, Population, settings
from docs.figures.honesty.table import group_rows
from glle_engine import fit
from glle_engine.linalg.procrustes import moments, root_trace

SAMPLES = 24
SHOWN = ("Swiss roll, noise 0", "Swiss roll, noise .01", "S-curve, noise .03", "roll with hole", "tangent", "cube")


def growth(setting: Population) -> float:
    """Return the median true spread at n / 2 points over that at n, divided by sqrt(2)."""
    medians = []
    for n in (setting.n // 2, setting.n):
        part = replace(setting, n=n)
        fits = (fit(part.sample(j), **(FIT | part.options)) for j in range(SAMPLES))
        places = np.stack([posterior.embedding[: part.probes] for posterior in fits])
        aligned, _ = measures.align(places, places[0], part.probes)
        medians.append(np.median(root_trace(moments(aligned)[1])))
    return float(medians[0] / medians[1] / np.sqrt(2))


def main() -> None:
    """Print the table."""
    rows = group_rows(read_rows())
    print("| data | growth / 1.41 | half-samples, ratio |\n|---|---|---|")
    for setting in settings():
        if isinstance(setting, Population) and any(word in setting.name for word in SHOWN):
            found = np.exp(np.mean([np.log(row.ratio[HALVES]) for row in rows[setting.name]]))
            print(f"| {setting.name} | {growth(setting):.2f} | {found:.2f} |", flush=True)


if __name__ == "__main__":
    main()
