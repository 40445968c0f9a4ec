"""Distributions of data, with and without relations among features.

The distributions `KNOWN` were used while the audit was designed. The distributions of `docs.figures.believe.unseen`
were chosen after the audit was fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Generator = np.random.Generator
    Sampler = Callable[[Generator, int], Array]


TURN = (0.0, 2 * np.pi)


@dataclass(frozen=True)
class Distribution:
    """A distribution from which an audit's data are drawn.

    Attributes
    ----------
    n : int
        Number of points of a sample.
    sample : callable
        Takes (generator, n), and returns n points.
    is_noise : bool
        Whether the features are independent.
    is_finite : bool
        Whether samples are parts of one data set.
    label : callable or None
        Takes (generator, n), and returns the group of each point of `sample` for a generator with the same seed.
    together : int
        Number of consecutive rows that belong to one subject or series.

    """

    name: str
    n: int
    sample: Sampler
    is_noise: bool = False
    is_finite: bool = False
    label: Callable[[np.random.Generator, int], NDArray[np.int64]] | None = None
    together: int = 1


def _rotate(X: Array, d: int, noise: float, rng: Generator) -> Array:
    """Rotate points (n, m) into d features, in the same way for all samples, and add noise in every feature."""
    turn = np.linalg.qr(np.random.default_rng(21).standard_normal((d, d)))[0][: X.shape[1]]
    return np.asarray(X @ turn + noise * rng.standard_normal((len(X), d)))


def _surface(points: Sampler, d: int, noise: float) -> Sampler:
    return lambda rng, n: _rotate(points(rng, n), d, noise, rng)


def sheet(name: str, d: int = 3) -> Sampler:
    """Return the sampler of a manifold (`glle_engine.manifolds`) with some noise, rotated into d features."""

    def sample(rng: np.random.Generator, n: int) -> Array:
        X = manifolds.make(name, n, seed=int(rng.integers(2**31)), noise=0.02).X
        return X if d == 3 else _rotate(X, d, 0.02 * X.std(), rng)

    return sample


def sphere(rng: Generator, n: int, dimension: int = 3) -> Array:
    """Return n uniform points of the unit sphere in `dimension` features."""
    X = rng.standard_normal((n, dimension))
    return np.asarray(X / np.linalg.norm(X, axis=1, keepdims=True))


def _clusters(sizes: tuple[int, ...], d: int, apart: float) -> Sampler:
    centers = np.random.default_rng(len(sizes) * 1000 + d).standard_normal((len(sizes), d)) * apart / np.sqrt(2 * d)
    shares = np.array(sizes) / sum(sizes)
    return lambda rng, n: centers[rng.choice(len(sizes), n, p=shares)] + rng.standard_normal((n, d))


def _factors(r: int, d: int, noise: float, *, is_heavy: bool = False) -> Sampler:
    loadings = np.random.default_rng(1000 * r + d).standard_normal((r, d)) / np.sqrt(r)

    def sample(rng: np.random.Generator, n: int) -> Array:
        scores = rng.standard_t(3, (n, r)) if is_heavy else rng.standard_normal((n, r))
        return np.asarray(scores @ loadings + noise * rng.standard_normal((n, d)))

    return sample


def parametric(of: Callable[..., tuple[Array, ...]], *spans: tuple[float, float]) -> Sampler:
    """Return a sampler of the surface `of`(u, v, ...), whose parameters are uniform within `spans`."""
    return lambda rng, n: np.column_stack(of(*(rng.uniform(low, high, n) for low, high in spans)))


def _tube(u: Array, v: Array) -> tuple[Array, ...]:
    ring = 2 + np.cos(v)
    return ring * np.cos(u), ring * np.sin(u), np.sin(v)


def _klein(u: Array, v: Array) -> tuple[Array, ...]:
    a = 2 + np.cos(v)
    return a * np.cos(u), a * np.sin(u), np.sin(v) * np.cos(u / 2), np.sin(v) * np.sin(u / 2)


def _trefoil(t: Array) -> tuple[Array, ...]:
    return np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)


def _moons(rng: np.random.Generator, n: int) -> Array:
    t, b = rng.uniform(0, np.pi, n), rng.integers(0, 3, n)
    return np.column_stack([np.cos(t) + b, np.where(b % 2, -1, 1) * np.sin(t) + 0.3 * b])


def _branches(rng: np.random.Generator, n: int) -> Array:
    return np.eye(5)[rng.integers(0, 5, n)] * rng.uniform(0, 2, n)[:, None]


def _waves(rng: np.random.Generator, n: int) -> Array:
    known = np.random.default_rng(3)
    directions, phases = 1.5 * known.standard_normal((2, 15)), known.uniform(0, 2 * np.pi, 15)
    return np.cos(rng.uniform(-1, 1, (n, 2)) @ directions + phases) + 0.1 * rng.standard_normal((n, 15))


def _trajectory(rng: np.random.Generator, n: int) -> Array:
    centers = np.random.default_rng(5).uniform(0, 1, 20)
    rates = 5 * np.exp(-((rng.uniform(0, 1, n)[:, None] - centers) ** 2) / 0.05) + 0.3
    return np.log1p(rng.poisson(rates))


def _images(rng: np.random.Generator, n: int) -> Array:
    place, grid = rng.uniform(3, 9, (n, 2, 1)), np.arange(12)
    across, down = np.exp(-((grid - place[:, 0]) ** 2) / 4), np.exp(-((grid - place[:, 1]) ** 2) / 4)
    return (across[:, :, None] * down[:, None, :]).reshape(n, 144) + 0.05 * rng.standard_normal((n, 144))


def _answers(rng: np.random.Generator, n: int) -> Array:
    loadings = 2 * np.random.default_rng(38).standard_normal((2, 60))
    return (rng.uniform(size=(n, 60)) < 1 / (1 + np.exp(-rng.standard_normal((n, 2)) @ loadings))).astype(float)


def _part(load: Callable[..., Any]) -> Sampler:
    X = load().data.astype(float)
    return lambda rng, n: X[rng.permutation(len(X))[:n]]


KNOWN = (
    Distribution("normal, 5 features", 500, lambda rng, n: rng.standard_normal((n, 5)), is_noise=True),
    Distribution("normal, 10", 500, lambda rng, n: rng.standard_normal((n, 10)), is_noise=True),
    Distribution("normal, 10, few", 60, lambda rng, n: rng.standard_normal((n, 10)), is_noise=True),
    Distribution("normal, 200, few", 80, lambda rng, n: rng.standard_normal((n, 200)), is_noise=True),
    Distribution("uniform, 8", 400, lambda rng, n: rng.uniform(size=(n, 8)), is_noise=True),
    Distribution("Student t3, 10", 500, lambda rng, n: rng.standard_t(3, (n, 10)), is_noise=True),
    Distribution("lognormal, 8", 400, lambda rng, n: np.exp(rng.standard_normal((n, 8))), is_noise=True),
    Distribution("yes or no, 30", 400, lambda rng, n: (rng.uniform(size=(n, 30)) < 0.3).astype(float), is_noise=True),
    Distribution("Swiss roll", 800, sheet("swiss_roll")),
    Distribution("S-curve", 500, sheet("s_curve")),
    Distribution("severed bowl, 20", 800, sheet("severed_bowl", 20)),
    Distribution("5 clusters, 10", 500, _clusters((1,) * 5, 10, 5)),
    Distribution("8 clusters, 20", 1000, _clusters((1,) * 8, 20, 6)),
    Distribution("2 factors, 20", 400, _factors(2, 20, 0.3)),
    Distribution("2 heavy factors, 20", 400, _factors(2, 20, 0.3, is_heavy=True)),
    Distribution("2 factors, 200, few", 80, _factors(2, 200, 0.5)),
    Distribution("sphere, 10", 500, _surface(sphere, 10, 0.02)),
    Distribution("torus, 5", 800, _surface(parametric(_tube, TURN, TURN), 5, 0.05)),
    Distribution("circle, 10", 200, _surface(parametric(lambda u: (np.cos(u), np.sin(u)), TURN), 10, 0.1)),
    Distribution("branches, 10", 500, _surface(_branches, 10, 0.1)),
    Distribution("waves of a plane", 500, _waves),
    Distribution("counts along a path", 400, _trajectory),
    Distribution("digits", 800, _part(load_digits), is_finite=True),
    Distribution("wine", 150, _part(load_wine), is_finite=True),
    Distribution("cancer", 400, _part(load_breast_cancer), is_finite=True),
    Distribution("iris", 120, _part(load_iris), is_finite=True),
    Distribution("gamma, 12", 500, lambda rng, n: rng.gamma(2, 1, (n, 12)), is_noise=True),
    Distribution("Laplace, 6, few", 150, lambda rng, n: rng.laplace(size=(n, 6)), is_noise=True),
    Distribution("uniform, 40", 300, lambda rng, n: rng.uniform(size=(n, 40)), is_noise=True),
    Distribution(
        "negative binomial, 50", 300, lambda rng, n: 1.0 * rng.negative_binomial(2, 0.3, (n, 50)), is_noise=True
    ),
    Distribution("Student t2, 8", 400, lambda rng, n: rng.standard_t(2, (n, 8)), is_noise=True),
    Distribution("beta, 7", 300, lambda rng, n: rng.beta(0.5, 0.5, (n, 7)), is_noise=True),
    Distribution("normal, 100, few", 60, lambda rng, n: rng.standard_normal((n, 100)), is_noise=True),
    Distribution("dice, 15", 500, lambda rng, n: rng.integers(1, 7, (n, 15)).astype(float), is_noise=True),
    Distribution(
        "helix, 6", 500, _surface(parametric(lambda t: (np.cos(t), np.sin(t), t / 6), (0, 6 * np.pi)), 6, 0.05)
    ),
    Distribution("trefoil, 6", 400, _surface(parametric(_trefoil, TURN), 6, 0.1)),
    Distribution("Klein bottle, 4", 800, _surface(parametric(_klein, TURN, TURN), 4, 0.05)),
    Distribution(
        "saddle, 10", 500, _surface(parametric(lambda u, v: (u, v, u * u - v * v), (-1, 1), (-1, 1)), 10, 0.05)
    ),
    Distribution(
        "cylinder, 5", 700, _surface(parametric(lambda u, h: (np.cos(u), np.sin(u), h), TURN, (0, 4)), 5, 0.05)
    ),
    Distribution("moons, 8", 300, _surface(_moons, 8, 0.1)),
    Distribution("3-sphere, 6", 700, _surface(partial(sphere, dimension=4), 6, 0.05)),
    Distribution("4 unequal clusters, 12", 600, _clusters((10, 5, 2, 1), 12, 6)),
    Distribution("3 clusters, 500, few", 60, _clusters((1, 1, 1), 500, 12)),
    Distribution("images of a spot", 500, _images),
    Distribution("answers by 2 traits", 500, _answers),
)
