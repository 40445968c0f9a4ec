"""Data of the study: populations, which can be sampled again, and finite data sets, of which parts are chosen again.

All samples of a setting begin with the same probes, and have other points around them. The first nine settings were
known when the method was chosen. The others, `held_out`, were chosen after it was fixed.

Two parts of a finite data set share the fraction f = others / rest of their points, so they vary less than fresh data.
The variance of a statistic that is linear in the sample is 1 - f of the variance over fresh data. Deviations are
therefore multiplied by 1 / sqrt(1 - f), an approximation for LLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

PROBES = 300
_OTHERS = 1000  # first seed of the points around the probes

FIT: dict[str, Any] = {"n_neighbors": 10, "disconnected": "bridge"}  # of every fit, unless its setting says otherwise


@dataclass(frozen=True)
class Population:
    """Distribution; `draw` returns a number of points for a seed.

    All samples share the leading `probes`, and `factor` multiplies deviations between samples. `held_out` settings were
    chosen after the method. `options` of the fit come beside `FIT`.
    """

    name: str
    n: int
    draw: Callable[[int, int], NDArray[np.float64]]
    held_out: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    probes: int = PROBES
    factor: float = 1.0

    def sample(self, j: int) -> NDArray[np.float64]:
        """Return the probes and fresh points."""
        return np.concatenate([self.draw(0, self.n)[: self.probes], self.draw(_OTHERS + j, self.n - self.probes)])


@dataclass(frozen=True)
class Finite:
    """Data set, of which the probes and a random choice of `others` of the rest are a sample."""

    name: str
    data: Callable[[], NDArray[np.float64]]
    others: int
    held_out: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    probes: int = PROBES

    @property
    def factor(self) -> float:
        """1 / sqrt(1 - f) for the fraction f of the rest in a sample."""
        return float(1 / np.sqrt(1 - self.others / (len(self.data()) - self.probes)))

    def sample(self, j: int) -> NDArray[np.float64]:
        """Return the probes and other points of the data set."""
        every = self.data()
        every = every[np.random.default_rng([0, 7]).permutation(len(every))]
        rng = np.random.default_rng([0, 6, j])
        chosen = self.probes + rng.choice(len(every) - self.probes, self.others, replace=False)
        return np.ascontiguousarray(every[np.concatenate([np.arange(self.probes), chosen])], np.float64)


Setting: TypeAlias = Population | Finite


def _sheet(name: str, noise: float, features: int = 3) -> Callable[[int, int], NDArray[np.float64]]:
    """Return a sheet with relative noise; its rotation into many features does not depend on the seed."""

    def draw(seed: int, n: int) -> NDArray[np.float64]:
        X = manifolds.make(name, n, seed=seed).X
        turn = np.linalg.qr(np.random.default_rng(7).standard_normal((features, features)))[0][:3]
        X = X @ turn if features > 3 else X
        radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        return np.asarray(X + noise * radius * np.random.default_rng([seed, 3]).standard_normal(X.shape))

    return draw


def _wine(seed: int, n: int) -> NDArray[np.float64]:
    """Return points of three normal distributions with the moments of the standardized wine data."""
    wine = load_wine()
    Z = (wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)
    rng = np.random.default_rng([seed, 11])
    classes = rng.integers(0, 3, n)
    means = [Z[wine.target == c].mean(axis=0) for c in range(3)]
    roots = [np.linalg.cholesky(np.cov(Z[wine.target == c].T) + 1e-6 * np.eye(13)) for c in range(3)]
    return np.stack([means[c] + roots[c] @ rng.standard_normal(13) for c in classes])


def _normals(
    classes: int, features: int, separation: float, *, widths: float = 0.0
) -> Callable[[int, int], NDArray[np.float64]]:
    """Return normal clusters around random centres of norm `separation`; log standard deviations within +- `widths`."""
    centres = np.random.default_rng(5).standard_normal((classes, features))
    centres = separation * centres / np.linalg.norm(centres, axis=1)[:, None]
    deviations = np.exp(np.linspace(-widths, widths, classes))

    def draw(seed: int, n: int) -> NDArray[np.float64]:
        rng = np.random.default_rng([seed, 12])
        labels = rng.integers(0, classes, n)
        return np.asarray(centres[labels] + deviations[labels, None] * rng.standard_normal((n, features)))

    return draw


def _tree(seed: int, n: int) -> NDArray[np.float64]:
    """Return five noisy segments from one point in 20 dimensions."""
    ends = np.random.default_rng(6).standard_normal((5, 20))
    rng = np.random.default_rng([seed, 15])
    branch, along = rng.integers(0, 5, n), rng.uniform(0, 1, n)
    return np.asarray(3 * along[:, None] * ends[branch] + 0.1 * rng.standard_normal((n, 20)))


def _torus(seed: int, n: int) -> NDArray[np.float64]:
    """Return a torus, which is not flat and has no boundary, with noise .02 of its radius."""
    rng = np.random.default_rng([seed, 14])
    u, v = rng.uniform(0, 2 * np.pi, (2, n))
    X = np.stack([(3 + np.cos(u)) * np.cos(v), (3 + np.cos(u)) * np.sin(v), np.sin(u)], axis=1)
    return np.asarray(X + 0.06 * rng.standard_normal(X.shape))


def _knot(seed: int, n: int) -> NDArray[np.float64]:
    """Return a trefoil knot, a closed curve, in five dimensions with noise."""
    rng = np.random.default_rng([seed, 16])
    t = rng.uniform(0, 2 * np.pi, n)
    curve = np.stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)], axis=1)
    return np.concatenate([curve, np.zeros((n, 2))], axis=1) + 0.1 * rng.standard_normal((n, 5))


def _cube(seed: int, n: int) -> NDArray[np.float64]:
    """Return a uniform cube in three of ten dimensions, with noise: no two-dimensional structure."""
    rng = np.random.default_rng([seed, 13])
    return np.concatenate([rng.uniform(0, 1, (n, 3)), np.zeros((n, 7))], axis=1) + 0.02 * rng.standard_normal((n, 10))


def _digits() -> NDArray[np.float64]:
    return np.asarray(load_digits().data, np.float64)


def _cancer() -> NDArray[np.float64]:
    data = load_breast_cancer().data
    return np.asarray((data - data.mean(axis=0)) / data.std(axis=0))


def settings() -> list[Setting]:
    """Return all settings, those that were held out last."""
    tangent = {"noise": "tangent", "n_neighbors": 12}
    return [
        Population("Swiss roll, noise 0", 2000, _sheet("swiss_roll", 0.0)),
        Population("Swiss roll, noise .01", 2000, _sheet("swiss_roll", 0.01)),
        Population("S-curve, noise .02", 2000, _sheet("s_curve", 0.02)),
        Population("S-curve, noise .03", 2000, _sheet("s_curve", 0.03)),
        Population("tree of five segments, 20-D", 1500, _tree),
        Population("wine-like mixture, 13-D", 800, _wine),
        Population("three clusters, 50-D, overlapping", 1000, _normals(3, 50, 3.0)),
        Population("three clusters, 50-D, apart", 1000, _normals(3, 50, 6.0)),
        Finite("digits, 64-D", _digits, 600),
        Population("bowl, noise .03", 2000, _sheet("severed_bowl", 0.03), held_out=True),
        Population("roll with hole, 20-D, noise .02", 2000, _sheet("swiss_roll_hole", 0.02, 20), held_out=True),
        Population("Swiss roll, noise .02, tangent", 1200, _sheet("swiss_roll", 0.02), held_out=True, options=tangent),
        Population("torus, noise .02", 1500, _torus, held_out=True),
        Population("trefoil knot, 5-D", 1000, _knot, held_out=True),
        Population("cube in 10-D", 1200, _cube, held_out=True),
        Population("eight clusters of several widths, 10-D", 1200, _normals(8, 10, 4.0, widths=0.5), held_out=True),
        Finite("breast cancer, 30-D", _cancer, 170, held_out=True, probes=150),
    ]
