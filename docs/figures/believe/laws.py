"""Laws of data, with and without relations among features.

The laws `KNOWN` were used while the audit was designed. Those of `docs.figures.believe.unseen` were chosen after it was
fixed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Array = NDArray[Any]
    Sampler = Callable[[np.random.Generator, int], Array]


@dataclass(frozen=True)
class Law:
    """Distribution of data.

    `sample` returns n points, `is_noise` says that its features are independent, and `is_finite` that samples are parts
    of one data set. `label` returns the group of each of n points for the same generator.
    """

    name: str
    n: int
    sample: Sampler
    is_noise: bool = False
    is_finite: bool = False
    label: Callable[[np.random.Generator, int], NDArray[np.int64]] | None = None


def _rotate(X: Array, d: int, noise: float, rng: np.random.Generator) -> Array:
    """Return points in d features by a rotation that is the same for all samples, with noise."""
    turn = np.linalg.qr(np.random.default_rng(21).standard_normal((d, d)))[0][: X.shape[1]]
    return np.asarray(X @ turn + noise * rng.standard_normal((len(X), d)))


def _surface(points: Sampler, d: int, noise: float) -> Sampler:
    return lambda rng, n: _rotate(points(rng, n), d, noise, rng)


def _sheet(name: str, d: int = 3) -> Sampler:
    def sample(rng: np.random.Generator, n: int) -> Array:
        X = manifolds.make(name, n, seed=int(rng.integers(2**31)), noise=0.02).X
        return X if d == 3 else _rotate(X, d, 0.02 * X.std(), rng)

    return sample


def _angles(rng: np.random.Generator, n: int, turns: float = 1.0) -> Array:
    return rng.uniform(0, 2 * np.pi * turns, n)


def _ball(dimension: int, *, is_full: bool) -> Sampler:
    def sample(rng: np.random.Generator, n: int) -> Array:
        X = rng.standard_normal((n, dimension))
        X /= np.linalg.norm(X, axis=1)[:, None]
        return X * rng.uniform(0, 1, n)[:, None] ** (1 / dimension) if is_full else X

    return sample


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


def _torus(rng: np.random.Generator, n: int) -> Array:
    u, v = _angles(rng, n), _angles(rng, n)
    return np.column_stack([(2 + np.cos(v)) * np.cos(u), (2 + np.cos(v)) * np.sin(u), np.sin(v)])


def _klein(rng: np.random.Generator, n: int) -> Array:
    u, v = _angles(rng, n), _angles(rng, n)
    a = 2 + np.cos(v)
    return np.column_stack([a * np.cos(u), a * np.sin(u), np.sin(v) * np.cos(u / 2), np.sin(v) * np.sin(u / 2)])


def _circle(rng: np.random.Generator, n: int) -> Array:
    u = _angles(rng, n)
    return np.column_stack([np.cos(u), np.sin(u)])


def _helix(rng: np.random.Generator, n: int) -> Array:
    t = _angles(rng, n, 3)
    return np.column_stack([np.cos(t), np.sin(t), t / 6])


def _trefoil(rng: np.random.Generator, n: int) -> Array:
    t = _angles(rng, n)
    return np.column_stack([np.sin(t) + 2 * np.sin(2 * t), np.cos(t) - 2 * np.cos(2 * t), -np.sin(3 * t)])


def _saddle(rng: np.random.Generator, n: int) -> Array:
    u, v = rng.uniform(-1, 1, (2, n))
    return np.column_stack([u, v, u * u - v * v])


def _cylinder(rng: np.random.Generator, n: int) -> Array:
    return np.column_stack([_circle(rng, n), rng.uniform(0, 4, n)])


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
    Law("normal, 5 features", 500, lambda rng, n: rng.standard_normal((n, 5)), is_noise=True),
    Law("normal, 10", 500, lambda rng, n: rng.standard_normal((n, 10)), is_noise=True),
    Law("normal, 10, few", 60, lambda rng, n: rng.standard_normal((n, 10)), is_noise=True),
    Law("normal, 200, few", 80, lambda rng, n: rng.standard_normal((n, 200)), is_noise=True),
    Law("uniform, 8", 400, lambda rng, n: rng.uniform(size=(n, 8)), is_noise=True),
    Law("Student t3, 10", 500, lambda rng, n: rng.standard_t(3, (n, 10)), is_noise=True),
    Law("lognormal, 8", 400, lambda rng, n: np.exp(rng.standard_normal((n, 8))), is_noise=True),
    Law("yes or no, 30", 400, lambda rng, n: (rng.uniform(size=(n, 30)) < 0.3).astype(float), is_noise=True),
    Law("Swiss roll", 800, _sheet("swiss_roll")),
    Law("S-curve", 500, _sheet("s_curve")),
    Law("severed bowl, 20", 800, _sheet("severed_bowl", 20)),
    Law("5 clusters, 10", 500, _clusters((1,) * 5, 10, 5)),
    Law("8 clusters, 20", 1000, _clusters((1,) * 8, 20, 6)),
    Law("2 factors, 20", 400, _factors(2, 20, 0.3)),
    Law("2 heavy factors, 20", 400, _factors(2, 20, 0.3, is_heavy=True)),
    Law("2 factors, 200, few", 80, _factors(2, 200, 0.5)),
    Law("sphere, 10", 500, _surface(_ball(3, is_full=False), 10, 0.02)),
    Law("torus, 5", 800, _surface(_torus, 5, 0.05)),
    Law("circle, 10", 200, _surface(_circle, 10, 0.1)),
    Law("branches, 10", 500, _surface(_branches, 10, 0.1)),
    Law("waves of a plane", 500, _waves),
    Law("counts along a path", 400, _trajectory),
    Law("digits", 800, _part(load_digits), is_finite=True),
    Law("wine", 150, _part(load_wine), is_finite=True),
    Law("cancer", 400, _part(load_breast_cancer), is_finite=True),
    Law("iris", 120, _part(load_iris), is_finite=True),
    Law("gamma, 12", 500, lambda rng, n: rng.gamma(2, 1, (n, 12)), is_noise=True),
    Law("Laplace, 6, few", 150, lambda rng, n: rng.laplace(size=(n, 6)), is_noise=True),
    Law("uniform, 40", 300, lambda rng, n: rng.uniform(size=(n, 40)), is_noise=True),
    Law("negative binomial, 50", 300, lambda rng, n: 1.0 * rng.negative_binomial(2, 0.3, (n, 50)), is_noise=True),
    Law("Student t2, 8", 400, lambda rng, n: rng.standard_t(2, (n, 8)), is_noise=True),
    Law("beta, 7", 300, lambda rng, n: rng.beta(0.5, 0.5, (n, 7)), is_noise=True),
    Law("normal, 100, few", 60, lambda rng, n: rng.standard_normal((n, 100)), is_noise=True),
    Law("dice, 15", 500, lambda rng, n: rng.integers(1, 7, (n, 15)).astype(float), is_noise=True),
    Law("helix, 6", 500, _surface(_helix, 6, 0.05)),
    Law("trefoil, 6", 400, _surface(_trefoil, 6, 0.1)),
    Law("Klein bottle, 4", 800, _surface(_klein, 4, 0.05)),
    Law("saddle, 10", 500, _surface(_saddle, 10, 0.05)),
    Law("cylinder, 5", 700, _surface(_cylinder, 5, 0.05)),
    Law("moons, 8", 300, _surface(_moons, 8, 0.1)),
    Law("3-sphere, 6", 700, _surface(_ball(4, is_full=False), 6, 0.05)),
    Law("4 unequal clusters, 12", 600, _clusters((10, 5, 2, 1), 12, 6)),
    Law("3 clusters, 500, few", 60, _clusters((1, 1, 1), 500, 12)),
    Law("images of a spot", 500, _images),
    Law("answers by 2 traits", 500, _answers),
)
