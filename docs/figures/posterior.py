"""Tables and figure of docs/explanation/posterior.md: `python -m docs.figures.posterior frontier noise adaptive`.

`frontier`: how trustworthy draws are, and how much they differ, at several scales and under both noise models.
`noise`: trustworthiness under both noise models and under the one that noise="auto" chooses (ten minutes). `adaptive`:
adaptive neighborhoods on rolls whose turns come close to each other.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib import pyplot as plt
from sklearn.datasets import load_digits

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError
from glle_engine.metrics.ranks import disparity, trustworthiness
from glle_engine.posterior.findings import NOISE_MODELS, trust_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from glle_engine import Posterior

IMAGES = Path(__file__).resolve().parent.parent / "images"
SCALES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
SAMPLES, DRAWS, PROBES = 3, 6, 500
# n, k, relative noise, features
SETTINGS = (
    (5000, 10, 0.0, 3),
    (5000, 10, 0.01, 3),
    (5000, 10, 0.03, 3),
    (2000, 10, 0.01, 3),
    (2000, 10, 0.01, 20),
    (5000, 7, 0.0, 3),
)


def sample(name: str, n: int, noise: float, features: int, seed: int) -> NDArray[np.float64]:
    """Return n points of a sheet, rotated into `features` dimensions, with noise in each of them."""
    if features == 3:
        return manifolds.make(name, n, noise=noise, seed=seed).X
    X = manifolds.make(name, n, seed=seed).X
    rng = np.random.default_rng([seed, 2])
    turn = np.linalg.qr(rng.standard_normal((features, features)))[0][:3]
    radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
    return np.asarray(X @ turn + noise * radius * rng.standard_normal((n, features)))


def measure(n: int, k: int, noise: float, features: int) -> dict[str, Any]:
    """Return, by noise model, the trustworthiness of the mean embedding, and (trustworthiness, disparity) of draws.

    `draws` has a row for each scale. All numbers are means over sheets and samples.
    """
    figures: dict[str, Any] = {model: {"reference": [], "draws": np.zeros((len(SCALES), 2))} for model in NOISE_MODELS}
    for name in manifolds.NAMES:
        for seed in range(SAMPLES):
            X = sample(name, n, noise, features, seed)
            probes = np.random.default_rng(seed).choice(n, PROBES, replace=False)
            for model in NOISE_MODELS:
                posterior = fit(X, n_neighbors=k, noise=model)
                figures[model]["reference"].append(trustworthiness(X, posterior.embedding, points=probes))
                for index, scale in enumerate(SCALES):
                    drawn = [draw.embedding for draw in posterior.draws(DRAWS, scale=scale)]
                    trust = np.mean([trustworthiness(X, Y, points=probes) for Y in drawn])
                    apart = np.mean([disparity(a, b) for a, b in combinations(drawn, 2)])
                    figures[model]["draws"][index] += (trust, apart)
    for model in NOISE_MODELS:
        figures[model]["reference"] = float(np.mean(figures[model]["reference"]))
        figures[model]["draws"] /= len(manifolds.NAMES) * SAMPLES
    return figures


def frontier() -> None:
    """Print the trustworthiness and disparity of draws for each setting, and save the figure."""
    figure, axes = plt.subplots(2, 3, figsize=(10.5, 6), layout="constrained", sharex=True)
    print("| setting | noise | trust of the reference | trust at scale 1 | disparity at scale 1 |\n" + "|---" * 5 + "|")
    for ax, (n, k, noise, features) in zip(axes.flat, SETTINGS, strict=True):
        figures = measure(n, k, noise, features)
        wide = "" if features == 3 else f"{features} features, "
        title = f"n = {n:,}, k = {k}, {wide}noise {noise:g}".replace("noise 0.", "noise .")
        for model, color in zip(NOISE_MODELS, ("tab:orange", "tab:blue"), strict=True):
            draws = figures[model]["draws"]
            ax.plot(draws[:, 1], draws[:, 0], marker=".", color=color, label=model)
            unscaled = draws[SCALES.index(1.0)]
            ax.plot(unscaled[1], unscaled[0], marker="o", color=color, markersize=8, fillstyle="none")
            ax.axhline(figures[model]["reference"], color=color, linewidth=0.6, linestyle=":")
            reference = figures[model]["reference"]
            print(f"| {title} | {model} | {reference:.4f} | {unscaled[0]:.4f} | {unscaled[1]:.3f} |", flush=True)
        ax.axhline(0.99, color="black", linewidth=0.5)
        ax.set_title(title, fontsize=9)
    axes[0, 0].legend(fontsize=8)
    for ax in axes[1]:
        ax.set_xlabel("mean pairwise disparity")
    for ax in axes[:, 0]:
        ax.set_ylabel("mean trustworthiness")
    figure.savefig(IMAGES / "frontier.png", dpi=90)


CHOICES, OTHERS = 4, 24  # samples, and draws of each that the fit has not used
SHEETS = {"swiss_roll": "Swiss roll", "s_curve": "S-curve", "severed_bowl": "bowl", "swiss_roll_hole": "roll with hole"}
NOISES = (0.0, 0.01, 0.03)


@dataclass(frozen=True)
class Setting:
    """A data set of the table of noise models: a sheet with noise, or some of the digits."""

    name: str
    n: int
    relative_noise: float = 0.0

    def sample(self, seed: int) -> NDArray[np.float64]:
        """Return the points (n, d) of a seed."""
        if self.name == "digits":
            data = np.asarray(load_digits().data, np.float64)
            return np.ascontiguousarray(data[np.random.default_rng(seed).permutation(len(data))[: self.n]])
        return manifolds.make(self.name, self.n, noise=self.relative_noise, seed=seed).X


def settings() -> list[Setting]:
    """Return the data sets of the table of noise models."""
    sheets = [Setting(name, n, noise) for name in SHEETS for n in (2000, 5000) for noise in NOISES]
    return [*sheets, Setting("digits", 1500)]


def mean_trust(X: NDArray[np.float64], posterior: Posterior) -> float:
    """Return the mean trustworthiness of 24 draws at scale 1."""
    return float(np.mean([trust_of(X, draw.embedding) for draw in posterior.draws(OTHERS)]))


def choice(setting: Setting, seeds: Iterable[int]) -> tuple[list[dict[str, float]], list[str]]:
    """Return, for a sample of each seed, the trustworthiness by noise model, and the model that "auto" chooses.

    Each row also has the trustworthiness of the chosen model, as "auto".
    """
    rows: list[dict[str, float]] = []
    models: list[str] = []
    for seed in seeds:
        X = setting.sample(seed)
        row: dict[str, float] = {
            model: mean_trust(X, fit(X, n_neighbors=10, noise=model, disconnected="bridge")) for model in NOISE_MODELS
        }
        models.append(fit(X, n_neighbors=10, noise="auto", disconnected="bridge").spec.noise)
        rows.append({**row, "auto": row[models[-1]]})
    return rows, models


def by_noise_model(rows: list[dict[str, float]], models: list[str]) -> str:
    """Return the cells of a row: mean [lowest] trustworthiness by noise model, and how often "tangent" was chosen."""
    cells = [
        f"{np.mean(values):.4f} [{min(values):.3f}]".replace("0.", ".")
        for values in ([row[model] for row in rows] for model in (*NOISE_MODELS, "auto"))
    ]
    return " | ".join([*cells, f"{models.count('tangent')} of {len(models)}"])


def noise() -> None:
    """Print the trustworthiness under each noise model for each data set."""
    print("| data | n | noise | isotropic | tangent | auto | tangent chosen |\n|---|---|---|---|---|---|---|")
    for setting in settings():
        cells = by_noise_model(*choice(setting, range(CHOICES)))
        name = SHEETS.get(setting.name, setting.name)
        print(f"| {name} | {setting.n:,} | {setting.relative_noise:g} | {cells} |", flush=True)


ROLLS = ((800, 10, 0.0), (800, 20, 0.0), (800, 30, 0.0), (2000, 40, 0.0), (2000, 20, 0.03))
SEEDS = range(6)


def row(name: str, n: int, k: int, noise: float) -> str:
    """Return a row of the table of adaptive neighborhoods: short circuits and trustworthiness, as means over samples.

    A short circuit is an edge between points that are more than a turn of the roll apart.
    """
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
            kept = posterior.distribution.kept if posterior.distribution.kept is not None else np.ones_like(jump)
            figures += [float((jump & kept).sum()), trustworthiness(sheet.coordinates, posterior.embedding, 10)]
        samples.append(figures)
    before, trust, after, adapted = np.nanmean(samples, axis=0)
    return f"| {name} | {n:,} | {k} | {noise:g} | {before:.0f} | {after:.0f} | {trust:.3f} | {adapted:.3f} |"


def adaptive() -> None:
    """Print the table of fixed and adaptive neighborhoods."""
    print("| sheet | n | k | noise | short circuits, fixed | adaptive | LLE's trust, fixed | adaptive |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("swiss_roll", "swiss_roll_hole"):
        for setting in ROLLS:
            print(row(name, *setting), flush=True)


TABLES = {"frontier": frontier, "noise": noise, "adaptive": adaptive}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.figures.posterior", description=__doc__)
    parser.add_argument("tables", nargs="*", choices=list(TABLES), help="default: all")
    for name in parser.parse_args().tables or TABLES:
        TABLES[name]()
