"""Trust and diversity over the scale, for both kinds of noise: figure and table of docs/explanation/posterior.md."""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[name] = "1"  # before numpy is imported

from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np

from glle_engine import fit, manifolds
from glle_engine.metrics.ranks import disparity, trustworthiness

mpl.use("Agg")
from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.spec import Noise

IMAGES = Path(__file__).resolve().parent.parent / "images"
SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SAMPLES, DRAWS, PROBES = 3, 6, 500
LAWS: tuple[Noise, ...] = ("isotropic", "tangent")
# title: n, k, relative noise, features
SETTINGS = {
    "n = 5,000, k = 10, noise 0": (5000, 10, 0.0, 3),
    "n = 5,000, k = 10, noise .01": (5000, 10, 0.01, 3),
    "n = 5,000, k = 10, noise .03": (5000, 10, 0.03, 3),
    "n = 2,000, k = 10, noise .01": (2000, 10, 0.01, 3),
    "n = 2,000, k = 10, 20 features, noise .01": (2000, 10, 0.01, 20),
    "n = 5,000, k = 7, noise 0": (5000, 7, 0.0, 3),
}


def sample(name: str, n: int, noise: float, features: int, seed: int) -> NDArray[np.float64]:
    """Return a sheet, rotated into `features` dimensions, with noise in all of them."""
    if features == 3:
        return manifolds.make(name, n, noise=noise, seed=seed).X
    X = manifolds.make(name, n, seed=seed).X
    rng = np.random.default_rng([seed, 2])
    turn = np.linalg.qr(rng.standard_normal((features, features)))[0][:3]
    radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
    return np.asarray(X @ turn + noise * radius * rng.standard_normal((n, features)))


def measure(n: int, k: int, noise: float, features: int) -> dict[str, Any]:
    """Return the trust of the reference, and (trust, disparity) at each scale: means over sheets and samples."""
    figures: dict[str, Any] = {law: {"reference": [], "draws": np.zeros((len(SCALES), 2))} for law in LAWS}
    for name in manifolds.NAMES:
        for seed in range(SAMPLES):
            X = sample(name, n, noise, features, seed)
            probes = np.random.default_rng(seed).choice(n, PROBES, replace=False)
            for law in LAWS:
                posterior = fit(X, n_neighbors=k, noise=law)
                figures[law]["reference"].append(trustworthiness(X, posterior.embedding, points=probes))
                for at, scale in enumerate(SCALES):
                    drawn = [draw.embedding for draw in posterior.draws(DRAWS, scale=scale)]
                    trust = np.mean([trustworthiness(X, Y, points=probes) for Y in drawn])
                    apart = np.mean([disparity(a, b) for a, b in combinations(drawn, 2)])
                    figures[law]["draws"][at] += (trust, apart)
    for law in LAWS:
        figures[law]["reference"] = float(np.mean(figures[law]["reference"]))
        figures[law]["draws"] /= len(manifolds.NAMES) * SAMPLES
    return figures


def main() -> None:
    """Print the table and write the figure."""
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6), layout="constrained", sharex=True)
    print(
        "| setting | noise | trust of the reference | trust at scale 1 | disparity at scale 1 |\n|---|---|---|---|---|"
    )
    for ax, (title, setting) in zip(axes.flat, SETTINGS.items(), strict=True):
        figures = measure(*setting)
        for law, color in zip(LAWS, ("tab:orange", "tab:blue"), strict=True):
            draws = figures[law]["draws"]
            ax.plot(draws[:, 1], draws[:, 0], marker=".", color=color, label=law)
            unscaled = draws[SCALES.index(1.0)]
            ax.plot(unscaled[1], unscaled[0], marker="o", color=color, markersize=8, fillstyle="none")
            ax.axhline(figures[law]["reference"], color=color, linewidth=0.6, linestyle=":")
            print(
                f"| {title} | {law} | {figures[law]['reference']:.4f} | {unscaled[0]:.4f} | {unscaled[1]:.3f} |",
                flush=True,
            )
        ax.axhline(0.99, color="black", linewidth=0.5)
        ax.set_title(title, fontsize=9)
    axes[0, 0].legend(fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("mean pairwise disparity")
    for ax in axes[:, 0]:
        ax.set_ylabel("mean trustworthiness")
    figure.savefig(IMAGES / "frontier.png", dpi=90)


if __name__ == "__main__":
    main()
