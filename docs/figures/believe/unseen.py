"""Distributions of data that were chosen after the audit was fixed, and measured once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from docs.figures.believe.distributions import Distribution
from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from docs.figures.believe.distributions import Array, Generator, Sampler

SHARED_SEED = 77  # seed of what all samples of a distribution share
TURN = (0.0, 2 * np.pi)


def _sheet(name: str) -> Sampler:
    """Return the sampler of a manifold (`glle_engine.manifolds`) with some noise."""
    return lambda rng, n: manifolds.make(name, n, seed=int(rng.integers(2**31)), noise=0.02).X


def _parametric(of: Callable[..., tuple[Array, ...]], *spans: tuple[float, float]) -> Sampler:
    """Return a sampler of the surface `of`(u, v, ...), whose parameters are uniform within `spans`."""
    return lambda rng, n: np.column_stack(of(*(rng.uniform(low, high, n) for low, high in spans)))


def _into(points: Sampler, d: int, noise: float) -> Sampler:
    """Return a sampler that places the sampled points in d features, along orthonormal directions and with noise."""

    def sample(rng: Generator, n: int) -> Array:
        X = points(rng, n)
        directions = np.linalg.qr(np.random.default_rng(SHARED_SEED).standard_normal((d, X.shape[1])))[0].T
        return np.asarray(X @ directions + noise * rng.standard_normal((n, d)))

    return sample


def _cap(u: Array, v: Array) -> tuple[Array, ...]:
    return 2 * np.sin(u), np.sin(v), 0.7 * np.cos(u) * np.cos(v)


def _moebius(u: Array, v: Array) -> tuple[Array, ...]:
    radius = 1 + v * np.cos(u / 2)
    return radius * np.cos(u), radius * np.sin(u), v * np.sin(u / 2)


def _cone(u: Array, area: Array) -> tuple[Array, ...]:
    h = np.sqrt(area)
    return h * np.cos(u), h * np.sin(u), 1.5 * h


def _spiral(area: Array) -> tuple[Array, ...]:
    t = 4 * np.pi * np.sqrt(area)
    return t * np.cos(t) / 6, t * np.sin(t) / 6


def _ball(rng: Generator, n: int) -> Array:
    X = rng.standard_normal((n, 3))
    return np.asarray(X * (rng.uniform(size=n) ** (1 / 3) / np.linalg.norm(X, axis=1))[:, None])


def _star(rng: Generator, n: int) -> Array:
    return np.eye(3)[rng.integers(0, 3, n)] * rng.uniform(0, 3, n)[:, None]


def _groups(shares: int) -> Callable[[Generator, int], NDArray[np.int64]]:
    """Return a function that draws the group of each point, as the samplers do with their first random numbers."""
    return lambda rng, n: rng.integers(0, shares, n)


def _hierarchy(rng: Generator, n: int) -> Array:
    known, group = np.random.default_rng(SHARED_SEED), rng.integers(0, 9, n)
    centers = 5 * known.standard_normal((3, 15))[np.arange(9) // 3] + 1.5 * known.standard_normal((9, 15))
    return np.asarray(centers[group] + rng.standard_normal((n, 15)))


def _heavy(rng: Generator, n: int) -> Array:
    group = rng.integers(0, 6, n)
    return np.asarray(
        3 * np.random.default_rng(SHARED_SEED).standard_normal((6, 10))[group] + rng.standard_t(3, (n, 10))
    )


def _two(rng: Generator, n: int) -> Array:
    group = rng.integers(0, 2, n)
    return np.asarray(
        0.8 * np.random.default_rng(SHARED_SEED).standard_normal((2, 100))[group] + rng.standard_normal((n, 100))
    )


def _cells(rng: Generator, n: int) -> Array:
    group = rng.integers(0, 10, n)
    rates = np.exp(1.2 * np.random.default_rng(SHARED_SEED).standard_normal((10, 60)))
    return np.log1p(rng.poisson(rates[group] * rng.gamma(5, 0.2, n)[:, None]))


def _topics(rng: Generator, n: int) -> Array:
    words = np.random.default_rng(SHARED_SEED).dirichlet(np.full(80, 0.2), 3)
    shares = rng.dirichlet(np.full(3, 0.7), n) @ words
    return np.sqrt(np.array([rng.multinomial(150, share) for share in shares]) / 150)


def _factors(r: int, d: int, noise: float) -> Sampler:
    loadings = np.random.default_rng(SHARED_SEED).standard_normal((r, d))
    return lambda rng, n: rng.standard_normal((n, r)) @ loadings + noise * rng.standard_normal((n, d))


def _exponential_factors(rng: Generator, n: int) -> Array:
    return np.exp(_factors(2, 10, 0.7)(rng, n) / 2)


def _items(rng: Generator, n: int) -> Array:
    trait = rng.standard_normal((n, 1)) + 0.8 * rng.standard_normal((n, 20))
    return np.digitize(trait, [-1.5, -0.5, 0.5, 1.5]).astype(float)


def _delays(rng: Generator, n: int) -> Array:
    phase = rng.uniform(0, 2 * np.pi, (n, 1))
    wave = np.arange(30) / 5
    return np.sin(phase + wave) + 0.5 * np.sin(2 * phase + 2 * wave) + 0.2 * rng.standard_normal((n, 30))


def _bars(rng: Generator, n: int) -> Array:
    angle, (x, y) = rng.uniform(0, np.pi, (n, 1, 1)), np.meshgrid(np.arange(10) - 4.5, np.arange(10) - 4.5)
    off = x * np.sin(angle) - y * np.cos(angle)
    return np.asarray(np.exp(-(off**2) / 2).reshape(n, 100) + 0.05 * rng.standard_normal((n, 100)))


def _columns(rng: Generator, n: int) -> Array:
    columns = [rng.standard_normal(n), rng.exponential(size=n), rng.poisson(2, n), rng.standard_t(2, n)]
    columns += [rng.integers(0, 2, n), rng.uniform(size=n), rng.lognormal(size=n), rng.beta(0.5, 2, n)]
    return np.column_stack(columns).astype(float)


UNSEEN = (
    Distribution("normal, 3 features", 1000, lambda rng, n: rng.standard_normal((n, 3)), is_noise=True),
    Distribution("exponential, 20", 200, lambda rng, n: rng.exponential(size=(n, 20)), is_noise=True),
    Distribution("Poisson, 25", 300, lambda rng, n: rng.poisson(1.5, (n, 25)).astype(float), is_noise=True),
    Distribution("logistic, 6, few", 120, lambda rng, n: rng.logistic(size=(n, 6)), is_noise=True),
    Distribution("columns of 8 distributions", 400, _columns, is_noise=True),
    Distribution("Cauchy, 5", 300, lambda rng, n: rng.standard_cauchy((n, 5)), is_noise=True),
    Distribution(
        "rare events, 40", 300, lambda rng, n: (rng.uniform(size=(n, 40)) < 0.05).astype(float), is_noise=True
    ),
    Distribution("normal, 500, few", 100, lambda rng, n: rng.standard_normal((n, 500)), is_noise=True),
    Distribution("Weibull, 9", 250, lambda rng, n: rng.weibull(0.7, (n, 9)), is_noise=True),
    Distribution("uniform, 2, few", 60, lambda rng, n: rng.uniform(size=(n, 2)), is_noise=True),
    Distribution(
        "half cylinder, 6", 150, _into(_parametric(lambda t, h: (np.cos(t), np.sin(t), h), (0, np.pi), (0, 2)), 6, 0.02)
    ),
    Distribution("ellipsoid patch, 8", 600, _into(_parametric(_cap, (-1, 1), (-1, 1)), 8, 0.02)),
    Distribution("Moebius band, 5", 600, _into(_parametric(_moebius, TURN, (-0.5, 0.5)), 5, 0.03)),
    Distribution("cone, 6", 500, _into(_parametric(_cone, TURN, (0.05, 1)), 6, 0.03)),
    Distribution("spiral, 7", 300, _into(_parametric(_spiral, (0.1, 1)), 7, 0.05)),
    Distribution(
        "figure of eight, 6", 250, _into(_parametric(lambda t: (np.cos(t), np.sin(t) * np.cos(t)), TURN), 6, 0.05)
    ),
    Distribution("3-ball, 8", 600, _into(_ball, 8, 0.02)),
    Distribution("square, 20", 400, _into(lambda rng, n: rng.uniform(-1, 1, (n, 2)), 20, 0.1)),
    Distribution("star of three, 8", 300, _into(_star, 8, 0.1)),
    Distribution("roll with hole, 10", 1200, _into(_sheet("swiss_roll_hole"), 10, 0.2)),
    Distribution("S-curve, many", 5000, _sheet("s_curve")),
    Distribution("9 clusters in 3 groups, 15", 450, _hierarchy, label=_groups(9)),
    Distribution("6 heavy clusters, 10", 600, _heavy, label=_groups(6)),
    Distribution("2 clusters, 100, few", 80, _two, label=_groups(2)),
    Distribution("counts of 10 kinds, 60", 500, _cells, label=_groups(10)),
    Distribution("documents of 3 topics", 400, _topics),
    Distribution("1 weak factor, 15", 200, _factors(1, 15, 2.0)),
    Distribution("4 factors, 40", 500, _factors(4, 40, 1.0)),
    Distribution("2 skewed factors, 10", 400, _exponential_factors),
    Distribution("answers of 5 levels, 20", 300, _items),
    Distribution("delays of a wave, 30", 400, _delays),
    Distribution("images of a bar", 400, _bars),
)

COMPARED = tuple(one for one in UNSEEN if 300 <= one.n <= 450)  # for slow methods and scores
