"""Audit PCA and LLE of every law, and compare each statement with 24 other samples: `make believe`."""

from __future__ import annotations

import argparse
import os

for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[threads] = "1"

import numpy as np

from docs.figures.believe.laws import KNOWN, UNSEEN, Law
from glle_engine.audit.audit import audit
from glle_engine.audit.sources import source_of_method
from glle_engine.linalg.procrustes import disparity, generalized_procrustes, moments, root_trace
from glle_engine.reliability.alignment import rank_correlation

SAMPLES, PROBES = 24, 150
Row = dict[str, float | None]


def measure(law: Law, method: str) -> Row:
    """Return the statements of an audit of one sample, and the same of samples with the same probes."""
    base = law.sample(np.random.default_rng(0), law.n)
    n = len(base)
    probes = min(PROBES, n // 3)
    mean, scale = base.mean(axis=0), np.where(base.std(axis=0) > 0, base.std(axis=0), 1)
    parameters = {"n_neighbors": min(max(10, round(0.35 * np.sqrt(n))), n // 5)} if method == "glle" else {}
    found = audit((base - mean) / scale, method=method, parameters=parameters)
    maps = []
    for number in range(1, SAMPLES + 1):
        others = law.sample(np.random.default_rng(1000 + number), n)[: n - probes]
        X = (np.concatenate([base[:probes], others]) - mean) / scale
        Y = source_of_method(X, method, parameters, None)[1][:probes]
        Y = Y - Y.mean(axis=0)
        maps.append(Y / np.sqrt((Y**2).sum(axis=1).mean()))
    own = found.embedding[:probes]
    size = np.sqrt(((own - own.mean(axis=0)) ** 2).sum(axis=1).mean())
    places = generalized_procrustes(np.array(maps), (own - own.mean(axis=0)) / size)
    spread = root_trace(moments(places)[1])
    assert found.remains is not None
    assert found.spread is not None
    new = np.concatenate([own.mean(axis=0) + size * places, np.repeat(found.embedding[None, probes:], SAMPLES, 0)], 1)
    inside = [found.regions["new sample"].contains(place, 0.9)[:probes].mean() for place in new]
    return {
        "beyond": None if found.beyond_chance is None else float(found.beyond_chance),
        "remains": found.remains,
        "remains, found": float(np.median([1 - disparity(a, b) for a, b in zip(maps[::2], maps[1::2], strict=True)])),
        "spread, ratio": float(np.median(found.spread[:probes] / size / spread)),
        "rank, expected": None if found.ranking is None else found.ranking.expected,
        "rank, found": rank_correlation(found.spread[:probes], spread),
        "inside the 90 % region": float(np.mean(inside)),
    }


def main() -> None:
    """Print a row for each law and method, and the summary of both groups of laws."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--methods", nargs="+", default=["pca", "glle"])
    options = parser.parse_args()
    for title, laws in (("known laws", KNOWN), ("unseen laws", UNSEEN)):
        for method in options.methods:
            rows = {law.name: measure(law, method) for law in laws}
            print(f"\n{title}, {method}")
            for name, row in rows.items():
                print(f"| {name} | " + " | ".join("-" if v is None else f"{v:.2f}" for v in row.values()) + " |")
            noise = [rows[law.name]["beyond"] for law in laws if law.is_noise]
            rest = [rows[law.name]["beyond"] for law in laws if not law.is_noise]
            gaps = [abs((row["remains"] or 0) - (row["remains, found"] or 0)) for row in rows.values()]
            inside = np.array([row["inside the 90 % region"] for row in rows.values()], float)
            print(
                f"noise beyond chance: {noise.count(1.0)} of {len(noise)}; structure: {rest.count(1.0)} of {len(rest)};"
                f" remains: mean error {np.mean(gaps):.2f}; inside the 90 % region: mean {inside.mean():.2f},"
                f" within .1 in {np.mean(abs(inside - 0.9) <= 0.1):.0%} of the laws"
            )


if __name__ == "__main__":
    main()
