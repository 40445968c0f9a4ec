"""Adaptive neighborhoods on sheets with close turns: table of docs/explanation/posterior.md."""

from __future__ import annotations

import numpy as np

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.metrics import ranks

SETTINGS = ((800, 10, 0.0), (800, 20, 0.0), (800, 30, 0.0), (2000, 40, 0.0), (2000, 20, 0.03))
SEEDS = range(6)


def row(name: str, n: int, k: int, noise: float) -> str:
    """Return short circuits and LLE's trust, fixed and adaptive, as means over samples."""
    samples = []
    for seed in SEEDS:
        sheet = manifolds.make(name, n, seed=seed, noise=noise)
        arc = sheet.coordinates[:, 0]
        turn = 20 if name.startswith("swiss_roll") else np.pi  # one turn is at least 49 long
        figures = []
        for how in ("fixed", "adaptive"):
            try:
                posterior = fit(sheet.X, n_neighbors=k, neighborhoods=how, disconnected="error")
            except DisconnectedGraphError:
                figures += [np.nan, np.nan]
                continue
            jump = np.abs(arc[posterior.neighbors] - arc[:, None]) > turn
            kept = posterior.law.kept if posterior.law.kept is not None else np.ones_like(jump)
            figures += [float((jump & kept).sum()), ranks.trustworthiness(sheet.coordinates, posterior.embedding, 10)]
        samples.append(figures)
    before, trust, after, adapted = np.nanmean(samples, axis=0)
    return f"| {name} | {n:,} | {k} | {noise:g} | {before:.0f} | {after:.0f} | {trust:.3f} | {adapted:.3f} |"


def main() -> None:
    """Print the table."""
    print("| sheet | n | k | noise | short circuits, fixed | adaptive | LLE's trust, fixed | adaptive |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("swiss_roll", "swiss_roll_hole"):
        for setting in SETTINGS:
            print(row(name, *setting), flush=True)


if __name__ == "__main__":
    main()
