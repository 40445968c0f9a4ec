"""Distributions for the four answers of audits: fixed before any of them was run, and measured once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from docs.figures.believe.laws import TURN, Law, parametric, rotate, sheet, sphere, tube

if TYPE_CHECKING:
    from docs.figures.believe.laws import Array, Generator, Sampler


def _known(number: int) -> Generator:
    """Return the generator of what all samples of a distribution share."""
    return np.random.default_rng(71_000 + number)


def _groups(number: int, shares: tuple[float, ...], d: int, apart: float, freedom: float = np.inf) -> Sampler:
    """Return groups of unequal shares, normal ones or with Student's tails."""
    centers, weights = apart * _known(number).standard_normal((len(shares), d)), np.array(shares) / sum(shares)

    def sample(rng: Generator, n: int) -> Array:
        noise = rng.standard_normal((n, d)) if np.isinf(freedom) else rng.standard_t(freedom, (n, d))
        return np.asarray(centers[rng.choice(len(shares), n, p=weights)] + noise)

    return sample


def _elongated(rng: Generator, n: int) -> Array:
    """Return five groups, each wide along a direction of its own."""
    known, group = _known(2), rng.integers(0, 5, n)
    centers, long = 4 * known.standard_normal((5, 9)), known.standard_normal((5, 9))
    return np.asarray(centers[group] + rng.standard_normal((n, 1)) * long[group] + 0.6 * rng.standard_normal((n, 9)))


def _within(rng: Generator, n: int) -> Array:
    """Return two groups of four groups each."""
    known, group = _known(3), rng.integers(0, 8, n)
    centers = 4 * known.standard_normal((2, 18))[np.arange(8) // 4] + 1.8 * known.standard_normal((8, 18))
    return np.asarray(centers[group] + rng.standard_normal((n, 18)))


def _sheet_and_rare(rng: Generator, n: int) -> Array:
    """Return a sheet, and a small group far from it."""
    is_rare = rng.uniform(size=n) < 0.05
    far = np.array([2.0, 0.5, 2.5]) + 0.15 * rng.standard_normal((n, 3))
    u, v = rng.uniform(-1, 1, (2, n))
    return rotate(np.where(is_rare[:, None], far, np.column_stack([u, v, 0.4 * u * v])), 7, 0.03, rng, _known(4))


def _batches(number: int, groups: int, batches: int, shift: float, *, confounded: bool = False) -> Sampler:
    """Return groups in batches that add a shift; if confounded, most points of a group are of one batch."""
    known = _known(number)
    centers, shifts = 3 * known.standard_normal((groups, 16)), shift * known.standard_normal((batches, 16))

    def sample(rng: Generator, n: int) -> Array:
        group, batch = rng.integers(0, groups, n), rng.integers(0, batches, n)
        batch = np.where(confounded & (rng.uniform(size=n) < 0.9), group % batches, batch)
        return np.asarray(centers[group] + shifts[batch] + rng.standard_normal((n, 16)))

    return sample


def _end_members(number: int, members: int, concentration: float, noise: float) -> Sampler:
    """Return mixtures of some pure spectra, with peaks."""
    known, waves = _known(number), np.linspace(0, 1, 60)
    places, widths = known.uniform(size=(members, 3, 1)), known.uniform(0.03, 0.12, (members, 3, 1))
    pure = np.exp(-(((waves - places) / widths) ** 2)).sum(axis=1)
    return lambda rng, n: rng.dirichlet([concentration] * members, n) @ pure + noise * rng.standard_normal((n, 60))


def _series(rows: int, memory: float, d: int, number: int) -> Sampler:
    """Return series of some rows each, which wander around a center of their own."""

    def sample(rng: Generator, n: int) -> Array:
        X = np.zeros((n, 2))
        for row, step in enumerate(rng.standard_normal((n, 2))):
            is_first = row % rows == 0
            X[row] = 2 * step if is_first else memory * X[row - 1] + np.sqrt(1 - memory**2) * step
        return rotate(X, d, 0.2, rng, _known(number))

    return sample


def _dropout(rates: Array, kept: float) -> Sampler:
    """Return logarithms of counts with these rates (kinds, d), many of which are lost."""

    def sample(rng: Generator, n: int) -> Array:
        counts = rng.poisson(rates[rng.integers(0, len(rates), n)] * rng.gamma(4, 0.25, (n, 1)))
        return np.log1p(counts * (rng.uniform(size=counts.shape) < kept))

    return sample


def _answers(number: int, traits: int, classes: int, levels: int) -> Sampler:
    """Return answers by traits, or by classes of people if there are no traits."""
    known, cuts = _known(number), np.linspace(-1.8, 1.8, levels - 1)
    loadings, types = known.standard_normal((max(traits, 1), 30)), 1.3 * known.standard_normal((max(classes, 1), 30))

    def sample(rng: Generator, n: int) -> Array:
        meant = rng.standard_normal((n, traits)) @ loadings if traits else types[rng.integers(0, classes, n)]
        return np.digitize(meant + rng.standard_normal((n, 30)), cuts).astype(float)

    return sample


def _sphere_on_plane(rng: Generator, n: int) -> Array:
    plane = np.column_stack([rng.uniform(-2, 2, (n, 2)), np.full(n, -1.0)])
    return rotate(np.where(rng.integers(0, 2, (n, 1)) == 1, sphere(rng, n), plane), 8, 0.04, rng, _known(16))


def _two_discs(apart: float) -> Sampler:
    def sample(rng: Generator, n: int) -> Array:
        disc = np.sqrt(rng.uniform(size=(n, 1))) * sphere(rng, n, 2)
        disc[:, 0] += (2 + apart) * rng.integers(0, 2, n)
        return rotate(disc, 9, 0.05, rng, _known(17))

    return sample


def _linked_rings(rng: Generator, n: int) -> Array:
    t, side = rng.uniform(0, 2 * np.pi, n), rng.integers(0, 2, (n, 1))
    first = np.column_stack([np.cos(t), np.sin(t), 0 * t])
    return rotate(np.where(side == 1, first, first[:, [0, 2, 1]] + [1, 0, 0]), 6, 0.05, rng, _known(18))


def _thin(u: Array, v: Array) -> tuple[Array, ...]:
    return tube(u, v, 0.5)


def _wide(number: int, groups: int, d: int, apart: float) -> Sampler:
    """Return groups that differ in a thirtieth of many features."""
    centers = np.zeros((groups, d))
    centers[:, : d // 30] = apart * _known(number).standard_normal((groups, d // 30))
    return lambda rng, n: centers[rng.integers(0, groups, n)] + rng.standard_normal((n, d))


def _wide_curve(rng: Generator, n: int) -> Array:
    t, known = rng.uniform(0, np.pi, n), _known(21).standard_normal((2, 1500))
    return np.asarray(np.column_stack([np.cos(t), np.sin(t)]) @ known + 0.7 * rng.standard_normal((n, 1500)))


def _replicates(number: int, copies: int, groups: int) -> Sampler:
    """Return noisy replicates of normal points, or of points of some groups."""
    centers = 2.5 * _known(number).standard_normal((groups, 10))

    def sample(rng: Generator, n: int) -> Array:
        subjects = -(-n // copies)
        true = centers[rng.integers(0, groups, subjects)] * (groups > 1) + rng.standard_normal((subjects, 10))
        return np.asarray((np.repeat(true, copies, axis=0) + 0.3 * rng.standard_normal((subjects * copies, 10)))[:n])

    return sample


def _noise(name: str, n: int, sample: Sampler) -> Law:
    return Law(name, n, sample, is_noise=True)


_PATH = 4 * np.exp(-((np.linspace(0, 1, 200)[:, None] - np.linspace(0, 1, 50)) ** 2) / 0.03) + 0.2

FRESH = (
    _noise("normal, 40", 200, lambda rng, n: rng.standard_normal((n, 40))),
    _noise("exponential, 6", 300, lambda rng, n: rng.exponential(size=(n, 6))),
    _noise("Student t3, 15", 250, lambda rng, n: rng.standard_t(3, (n, 15))),
    _noise("answers of 5 levels, 20", 260, lambda rng, n: 1.0 * rng.integers(1, 6, (n, 20))),
    _noise("bits, 60", 220, lambda rng, n: 1.0 * (rng.uniform(size=(n, 60)) < np.linspace(0.05, 0.6, 60))),
    _noise("counts with zeros, 30", 300, lambda rng, n: rng.poisson(3, (n, 30)) * (rng.uniform(size=(n, 30)) < 0.5)),
    _noise("uniform, 900, few", 70, lambda rng, n: rng.uniform(size=(n, 900))),
    Law("two rare groups, 10", 400, _groups(1, (91, 5, 4), 10, 3.0)),
    Law("a sheet and a rare group", 360, _sheet_and_rare),
    Law("seven groups, unequal", 420, _groups(5, (30, 20, 15, 13, 10, 7, 5), 25, 1.8)),
    Law("nine groups with heavy tails", 450, _groups(6, (1,) * 9, 14, 3.0, 4)),
    Law("five long groups", 350, _elongated),
    Law("four groups in each of two", 400, _within),
    Law("three batches, weak", 330, _batches(7, 3, 3, 0.6)),
    Law("two batches, confounded", 360, _batches(8, 4, 2, 3.0, confounded=True)),
    Law("four end members", 350, _end_members(9, 4, 0.7, 0.05)),
    Law("two end members", 220, _end_members(10, 2, 1.0, 0.1)),
    Law("twelve series", 300, _series(25, 0.9, 8, 11), together=25),
    Law("one long series", 300, _series(10_000, 0.98, 8, 12)),
    Law("counts with dropout, 5 kinds", 350, _dropout(np.exp(1.4 * _known(13).standard_normal((5, 70))), 0.4)),
    Law("counts with dropout, a path", 300, _dropout(_PATH, 0.5)),
    Law("questionnaire, 2 traits", 300, _answers(14, 2, 0, 7)),
    Law("questionnaire, 5 types", 340, _answers(15, 0, 5, 5)),
    Law("a sphere on a plane", 400, _sphere_on_plane),
    Law("two discs that touch", 350, _two_discs(0.0)),
    Law("two discs with a gap", 350, _two_discs(0.7)),
    Law("two linked rings", 300, _linked_rings),
    Law("sphere, 12", 350, lambda rng, n: rotate(sphere(rng, n), 12, 0.04, rng, _known(19))),
    Law("thin torus, 7", 400, lambda rng, n: rotate(parametric(_thin, TURN, TURN)(rng, n), 7, 0.04, rng, _known(20))),
    Law("roll, 9", 450, sheet("swiss_roll", 9)),
    Law("four groups, 3,000 features", 90, _wide(22, 4, 3000, 1.6)),
    Law("two groups, 700 features", 70, _wide(23, 2, 700, 2.5)),
    Law("curve in 1,500 features", 80, _wide_curve),
    Law("fourfold replicates", 320, _replicates(24, 4, 1), together=4),
    Law("threefold replicates of six groups", 360, _replicates(25, 3, 6), together=3),
    Law("threefold replicates, as rows", 300, _replicates(26, 3, 1)),
)
