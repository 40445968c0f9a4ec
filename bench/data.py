"""Data sets of the benchmarks, by name, and their posteriors, each fitted once in a process.

The cost of a draw grows with the intrinsic dimension of the data, more than with the number of features:

    swiss_roll, s_curve         sheets: 2 dimensions in 3 features
    cube-2, cube-3, ...         smooth maps of the unit cube of 2, 3, ... dimensions into 20 features
    cube-3-50                   a smooth map of the unit cube of 3 dimensions into 50 features
    gaussian-20                 20 dimensions in 20 features
    heavy-5                     Student's t with 2 degrees of freedom in 5 features
    rank-10                     a Gaussian in 10 dimensions of 100 features, with noise
    digits                      8 x 8 images of digits, 64 features
    patches                     8 x 8 patches of a photograph, 64 features
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from glle_engine import fit, manifolds

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior

WAVES = 1.5  # standard deviation of a wave's number of radians along a cube's edge
RANK_FEATURES, NOISE = 100, 0.01
PATCH = 8  # pixels
# Others: 10. With 10 the graph of the patches has two closed classes, so that its embedding only separates them.
NEIGHBORS = {"cube-3": 12, "cube-5": 12, "cube-8": 16, "gaussian-20": 15, "heavy-5": 12, "rank-10": 15, "patches": 15}


def neighbors_of(name: str) -> int:
    """Return the number of neighbors with which a data set is fitted."""
    return NEIGHBORS.get(name, 10)


def data_of(name: str, n: int, seed: int = 0) -> NDArray[np.float64]:
    """Return n points (n, d) of the data set with this name; digits are always 1,797."""
    family, *numbers = name.split("-")
    random = np.random.default_rng([seed, n])
    if family == "cube":
        return _cube(random, n, *map(int, numbers))
    if family in {"gaussian", "heavy"}:
        shape = (n, int(numbers[0]))
        return random.standard_normal(shape) if family == "gaussian" else random.standard_t(2, shape)
    if family == "rank":
        rank = int(numbers[0])
        basis = random.standard_normal((rank, RANK_FEATURES))
        return random.standard_normal((n, rank)) @ basis + NOISE * random.standard_normal((n, RANK_FEATURES))
    if family == "digits":
        from sklearn.datasets import load_digits

        return np.asarray(load_digits().data, np.float64)
    if family == "patches":
        return _patches(random, n)
    return manifolds.make(name, n, seed=seed).X


def _cube(random: np.random.Generator, n: int, dimension: int, features: int = 20) -> NDArray[np.float64]:
    """Map uniform points of the unit cube into `features`: each feature is a sine of a random linear form."""
    forms = random.normal(0, WAVES, (dimension, features))
    return np.sin(random.random((n, dimension)) @ forms + random.uniform(0, 2 * np.pi, features))


def _patches(random: np.random.Generator, n: int) -> NDArray[np.float64]:
    """Return the gray values of n different 8 x 8 patches of a photograph that comes with scikit-learn."""
    from sklearn.datasets import load_sample_image

    image = load_sample_image("china.jpg").mean(axis=2)
    windows = np.lib.stride_tricks.sliding_window_view(image, (PATCH, PATCH))
    chosen = random.choice(windows.shape[0] * windows.shape[1], n, replace=False)
    rows, columns = np.unravel_index(chosen, windows.shape[:2])
    return np.asarray(windows[rows, columns].reshape(n, PATCH * PATCH), np.float64)


@cache
def posterior_of(name: str, n: int) -> Posterior:
    """Return the posterior of a data set with the default method; a second call returns the same object."""
    return fit(data_of(name, n), n_neighbors=neighbors_of(name), landmarks="all")
