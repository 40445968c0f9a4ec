"""Distributions for the four answers of audits: fixed before any of them was run, and measured once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from docs.figures.believe.laws import TURN, Law, parametric, rotate, sphere

if TYPE_CHECKING:
    from docs.figures.believe.laws import Array, Generator, Sampler


def _known(number: int) -> Generator:
    """Return the generator of what all samples of a distribution share."""
    return np.random.default_rng(49_000 + number)


def _groups(number: int, shares: tuple[float, ...], d: int, apart: float) -> Sampler:
    """Return normal groups of unequal shares."""
    centers = apart * _known(number).standard_normal((len(shares), d))
    weights = np.array(shares) / sum(shares)
    return lambda rng, n: centers[rng.choice(len(shares), n, p=weights)] + rng.standard_normal((n, d))


def _batches(number: int, groups: int, shift: float) -> Sampler:
    """Return groups that were each measured in two batches, which add a shift to all features."""
    known = _known(number)
    centers, shifts = 3 * known.standard_normal((groups, 20)), shift * known.standard_normal((2, 20))

    def sample(rng: Generator, n: int) -> Array:
        return np.asarray(
            centers[rng.integers(0, groups, n)] + shifts[rng.integers(0, 2, n)] + rng.standard_normal((n, 20))
        )

    return sample


def _end_members(number: int, members: int, concentration: float, noise: float) -> Sampler:
    """Return mixtures of some pure spectra."""
    pure = _known(number).gamma(0.6, size=(members, 40))

    def sample(rng: Generator, n: int) -> Array:
        return np.asarray(rng.dirichlet([concentration] * members, n) @ pure + noise * rng.standard_normal((n, 40)))

    return sample


def _windows(rng: Generator, n: int) -> Array:
    """Return overlapping windows of one noisy oscillation."""
    time = np.arange(n + 25)
    series = np.sin(time / 9) + 0.5 * np.sin(time / 23 + rng.uniform(0, 6)) + 0.3 * rng.standard_normal(n + 25)
    return np.lib.stride_tricks.sliding_window_view(series, 25)[:n].copy()


def _walk(rng: Generator, n: int) -> Array:
    """Return a random walk that returns to its mean, in ten features."""
    X, steps = np.zeros((n, 3)), rng.standard_normal((n, 3))
    for row in range(1, n):
        X[row] = 0.97 * X[row - 1] + steps[row]
    return rotate(X, 10, 0.3, rng, _known(8))


def _dropout(number: int, kinds: int, kept: float) -> Sampler:
    """Return logarithms of counts of cells of some kinds, many of which are lost."""
    rates = np.exp(1.3 * _known(number).standard_normal((kinds, 80)))

    def sample(rng: Generator, n: int) -> Array:
        counts = rng.poisson(rates[rng.integers(0, kinds, n)] * rng.gamma(3, 1 / 3, (n, 1)))
        return np.log1p(counts * (rng.uniform(size=counts.shape) < kept))

    return sample


def _answers(number: int, traits: int, classes: int = 0) -> Sampler:
    """Return answers of five levels by traits, or by classes of people."""
    known = _known(number)
    loadings, types = known.standard_normal((max(traits, 1), 24)), 1.5 * known.standard_normal((max(classes, 1), 24))

    def sample(rng: Generator, n: int) -> Array:
        meant = rng.standard_normal((n, max(traits, 1))) @ loadings if traits else types[rng.integers(0, classes, n)]
        return np.digitize(meant + rng.standard_normal((n, 24)), [-1.5, -0.5, 0.5, 1.5]).astype(float)

    return sample


def _touching(gap: float) -> Sampler:
    """Return two bent sheets that touch along an edge, or have a gap."""

    def sample(rng: Generator, n: int) -> Array:
        side = rng.integers(0, 2, n)
        u, v = rng.uniform(0, 2, n), rng.uniform(-1, 1, n)
        x = np.where(side == 1, u + gap, -u)
        return rotate(np.column_stack([x, v, np.where(side == 1, 0.5 * u**2, -0.3 * u)]), 6, 0.03, rng, _known(13))

    return sample


def _closed(points: Sampler, d: int, noise: float, number: int) -> Sampler:
    return lambda rng, n: rotate(points(rng, n), d, noise, rng, _known(number))


def _ring(u: Array, v: Array) -> tuple[Array, ...]:
    return (2 + np.cos(v)) * np.cos(u), (2 + np.cos(v)) * np.sin(u), np.sin(v)


def _wide(number: int, groups: int, features: int, apart: float) -> Sampler:
    """Return groups of few points in many features, which differ in a twentieth of them."""
    centers = np.zeros((groups, features))
    informative = features // 20
    centers[:, :informative] = apart * _known(number).standard_normal((groups, informative))
    return lambda rng, n: centers[rng.integers(0, groups, n)] + rng.standard_normal((n, features))


def _replicates(number: int, copies: int) -> Sampler:
    """Return noisy replicates of points of a plane."""
    loadings = _known(number).standard_normal((2, 12))

    def sample(rng: Generator, n: int) -> Array:
        true = rng.standard_normal((-(-n // copies), 2)) @ loadings
        return np.asarray((np.repeat(true, copies, axis=0) + 0.2 * rng.standard_normal((len(true) * copies, 12)))[:n])

    return sample


def _noise(name: str, n: int, sample: Any) -> Law:
    return Law(name, n, sample, is_noise=True)


FRESH = (
    _noise("normal, 12", 300, lambda rng, n: rng.standard_normal((n, 12))),
    _noise("uniform, 4", 250, lambda rng, n: rng.uniform(size=(n, 4))),
    _noise("log-normal, 30", 200, lambda rng, n: np.exp(rng.standard_normal((n, 30)))),
    _noise("negative binomial, 50", 240, lambda rng, n: rng.negative_binomial(1, 0.3, (n, 50)).astype(float)),
    _noise("normal, 1,500, few", 60, lambda rng, n: rng.standard_normal((n, 1500))),
    _noise(
        "two modes in each column, 8", 300, lambda rng, n: 4.0 * rng.integers(0, 2, (n, 8)) + rng.normal(size=(n, 8))
    ),
    Law("rare group of 3 %, 12", 400, _groups(1, (97, 3), 12, 2.5)),
    Law("five groups, one of 2 %", 450, _groups(2, (40, 30, 18, 10, 2), 15, 3)),
    Law("ten groups, unequal", 500, _groups(3, (20, 18, 15, 12, 10, 8, 7, 5, 3, 2), 20, 2.5)),
    Law("eighteen groups close together", 500, _groups(4, (1,) * 18, 10, 1.4)),
    Law("batches, weak", 360, _batches(5, 4, 0.5)),
    Law("batches, strong", 360, _batches(6, 3, 4)),
    Law("three end members", 300, _end_members(7, 3, 1.0, 0.05)),
    Law("five end members, sparse", 400, _end_members(8, 5, 0.3, 0.1)),
    Law("windows of an oscillation", 300, _windows),
    Law("walk in three dimensions", 300, _walk),
    Law("counts with dropout, 6 kinds", 360, _dropout(9, 6, 0.4)),
    Law("counts with dropout, 12 kinds", 480, _dropout(10, 12, 0.15)),
    Law("questionnaire, 1 trait", 250, _answers(11, 1)),
    Law("questionnaire, 3 traits", 350, _answers(11, 3)),
    Law("questionnaire, 4 types", 300, _answers(12, 0, 4)),
    Law("two sheets that touch", 400, _touching(0.0)),
    Law("two sheets with a gap", 400, _touching(0.6)),
    Law("torus, 8", 400, _closed(parametric(_ring, TURN, TURN), 8, 0.05, 14)),
    Law("ellipsoid, 6", 350, _closed(lambda rng, n: sphere(rng, n, 3) * [3.0, 2.0, 1.0], 6, 0.04, 15)),
    Law("ring, 10", 200, _closed(parametric(lambda t: (np.cos(t), np.sin(t)), TURN), 10, 0.1, 16)),
    Law("three groups, 2,000 features", 80, _wide(17, 3, 2000, 2.0)),
    Law("two groups, 600 features", 60, _wide(18, 2, 600, 2.5)),
    Law(
        "plane in 1,000 features",
        70,
        lambda rng, n: rng.normal(size=(n, 2)) @ _known(19).normal(size=(2, 1000)) + rng.normal(size=(n, 1000)),
    ),
    Law("threefold replicates", 300, _replicates(20, 3)),
    Law("sixfold replicates", 240, _replicates(21, 6)),
    Law(
        "two planes that cross",
        350,
        lambda rng, n: rotate(
            np.where(
                rng.integers(0, 2, (n, 1)) == 1,
                rng.uniform(-1, 1, (n, 3)) * [1, 1, 0],
                rng.uniform(-1, 1, (n, 3)) * [1, 0, 1],
            ),
            7,
            0.03,
            rng,
            _known(22),
        ),
    ),
)
