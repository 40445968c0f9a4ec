"""Synthetic sheets in three dimensions, with their true coordinates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import accepts_random_state, check_integer, check_positive
from glle_engine.base.results import brief

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Manifold:
    """Points sampled from a sheet in three dimensions.

    Attributes
    ----------
    name : str
        Name of the sheet.
    X : (n, 3) float64
        The points.
    coordinates : (n, 2) float64
        The position of each point on the sheet: arc length and height, or, for the bowl, which cannot be flattened, two
        angles. Color the points of a picture by the first coordinate.

    """

    name: str
    X: NDArray[np.float64]
    coordinates: NDArray[np.float64]

    __repr__ = brief


@accepts_random_state
def make(name: str, n: int, *, noise: float = 0.0, seed: int = 0) -> Manifold:
    """Sample n points from one of four sheets in three dimensions.

    Parameters
    ----------
    name : {"s_curve", "swiss_roll", "swiss_roll_hole", "severed_bowl"}
    n : int
        Number of points.
    noise : float
        Standard deviation of Gaussian noise on every coordinate, relative to the root mean square
        distance of the points from their centroid.
    seed : int
        Seed of the points and of the noise; the noise does not change `coordinates`.

    Raises
    ------
    InvalidParameterError
        For an unknown name, n below 1, or a negative noise or seed.

    """
    if name not in NAMES:
        raise InvalidParameterError(
            f"name={name!r:.60} is not the name of a synthetic data set.", remedy=f"Choose one of {', '.join(NAMES)}."
        )
    n, seed = check_integer("n", n, 1), check_integer("seed", seed, 0)
    noise = check_positive("noise", noise, zero=True)
    X, coordinates = _SHEETS[name](n, np.random.default_rng(seed))
    if noise:
        radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        X = X + noise * radius * np.random.default_rng([seed, 1]).standard_normal(X.shape)
    return Manifold(name, X, coordinates)


def _s_curve(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample a sheet of width 2 whose profile is an S of two arcs of radius 1; return its points and coordinates.

    The coordinates are the arc length, which is the angle t in [-3 pi/2, 3 pi/2], and the height.
    """
    t = 3 * np.pi * (rng.random(n) - 0.5)
    height = 2 * rng.random(n)
    X = np.stack([np.sin(t), height, np.sign(t) * (np.cos(t) - 1)], axis=1)
    return X, np.stack([t, height], axis=1)


def _roll(t: NDArray[np.float64], height: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.stack([t * np.cos(t), height, t * np.sin(t)], axis=1)


def _arc(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the length of the spiral r = t from its center to the angle t: the integral of (1 + t^2)^(1/2)."""
    return (t * np.hypot(1, t) + np.arcsinh(t)) / 2


def _swiss_roll(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample a Swiss roll: a sheet of width 21, rolled up along the spiral r = t for the angle t in [3 pi/2, 9 pi/2].

    Returns the points, and their coordinates on the unrolled sheet: arc length and height.
    """
    t = 1.5 * np.pi * (1 + 2 * rng.random(n))
    height = 21 * rng.random(n)
    return _roll(t, height), np.stack([_arc(t), height], axis=1)


def _swiss_roll_hole(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample the Swiss roll with a hole: without the middle ninth of the rectangle of angle t and height."""
    unit = np.empty((0, 2))
    while len(unit) < n:
        block = rng.random((n, 2))
        is_outside = (np.abs(block - 0.5) >= 1 / 6).any(axis=1)
        unit = np.concatenate([unit, block[is_outside]])
    t, height = 1.5 * np.pi * (1 + 2 * unit[:n, 0]), 21 * unit[:n, 1]
    return _roll(t, height), np.stack([_arc(t), height], axis=1)


def _severed_bowl(n: int, rng: np.random.Generator) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Sample the unit sphere without its polar caps of 22.5 degrees and a slit of .55 rad, uniformly in the angles.

    Returns the points, and as their coordinates the two angles: around the axis, and from the pole.
    """
    angle = (2 * np.pi - 0.55) * rng.random(n)
    polar = np.pi * (1 / 8 + 3 / 4 * rng.random(n))
    X = np.stack([np.sin(polar) * np.cos(angle), np.sin(polar) * np.sin(angle), np.cos(polar)], axis=1)
    return X, np.stack([angle, polar], axis=1)


_SHEETS = {
    "s_curve": _s_curve,
    "swiss_roll": _swiss_roll,
    "swiss_roll_hole": _swiss_roll_hole,
    "severed_bowl": _severed_bowl,
}
NAMES = tuple(_SHEETS)
