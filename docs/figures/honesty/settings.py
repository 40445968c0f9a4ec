"""Data of the study and their replicates: sheets, which can be sampled again, and digits, which cannot.

*noise*: the points keep their places on the sheet, and their noise is drawn again. *points*: 300 probes stay, noise
included, all other points are drawn again. *halves*: 300 probes of the digits stay among 600 of the other 1,497,
drawn again without replacement.

Two such samples of the digits share the fraction f = 600 / 1,497 of their points, so they vary less than fresh digits.
The variance of a statistic that is linear in the sample is 1 - f of that of fresh digits. Deviations of a replicate are
therefore multiplied by 1 / sqrt(1 - f).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from sklearn.datasets import load_digits

from glle_engine import manifolds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

N, PROBES, SEED = 2000, 300, 0
DIGITS = 600


@dataclass(frozen=True)
class Truth:
    """Samples to embed, the number of leading points from the base data, and the factor on deviations."""

    name: str
    samples: Iterator[NDArray[np.float64]]
    kept: int
    factor: float = 1.0


class Setting(Protocol):
    """Data and their replicates."""

    @property
    def group(self) -> str:
        """Group of the table that averages over this setting."""

    def data(self) -> NDArray[np.float64]:
        """Return the base data; the probes come first."""

    def coordinates(self) -> NDArray[np.float64] | None:
        """Return the true coordinates of each point, or None if they are unknown."""

    def truths(self, count: int) -> list[Truth]:
        """Return the kinds of replicates, `count` of each."""


@dataclass(frozen=True)
class Sheet:
    """Sheet with relative noise in a number of features."""

    name: str
    noise: float
    features: int

    def __str__(self) -> str:
        return f"{self.name}, {self.features} features, noise {self.noise:g}"

    @property
    def group(self) -> str:
        """The number of features."""
        return f"{self.features} features"

    def data(self) -> NDArray[np.float64]:
        """Return the base sample."""
        return self._sample(SEED, N)

    def coordinates(self) -> NDArray[np.float64]:
        """Return the sheet's own coordinates."""
        return manifolds.make(self.name, N, seed=SEED).coordinates

    def truths(self, count: int) -> list[Truth]:
        """Return redrawn points, and redrawn noise if there is noise."""
        points = Truth("points", self._points(count), PROBES)
        return [points, Truth("noise", self._noise(count), N)] if self.noise else [points]

    def _sample(self, seed: int, n: int) -> NDArray[np.float64]:
        """Return a sample; its rotation into many features does not depend on the seed."""
        X = manifolds.make(self.name, n, seed=seed).X
        turn = np.linalg.qr(np.random.default_rng(7).standard_normal((self.features, self.features)))[0][:3]
        X = X @ turn if self.features > 3 else X
        radius = np.sqrt(((X - X.mean(axis=0)) ** 2).sum(axis=1).mean())
        return np.asarray(X + self.noise * radius * np.random.default_rng([seed, 3]).standard_normal(X.shape))

    def _points(self, count: int) -> Iterator[NDArray[np.float64]]:
        probes = self.data()[:PROBES]
        for j in range(count):
            yield np.concatenate([probes, self._sample(1000 + j, N - PROBES)])

    def _noise(self, count: int) -> Iterator[NDArray[np.float64]]:
        still = Sheet(self.name, 0.0, self.features).data()
        radius = np.sqrt(((still - still.mean(axis=0)) ** 2).sum(axis=1).mean())
        for j in range(count):
            yield still + self.noise * radius * np.random.default_rng([SEED, 4, j]).standard_normal(still.shape)


@dataclass(frozen=True)
class Digits:
    """Half of scikit-learn's digits; the other half provides the replicates."""

    group = "digits"

    def __str__(self) -> str:
        return "digits, 64 features"

    def data(self) -> NDArray[np.float64]:
        """Return the probes and one random choice of the other digits."""
        return self._choice(np.random.default_rng([SEED, 5]))

    def coordinates(self) -> None:
        """Return None: the true coordinates of a digit are unknown."""

    def truths(self, count: int) -> list[Truth]:
        """Return other random choices of digits."""
        rest = len(load_digits().data) - PROBES
        choices = (self._choice(np.random.default_rng([SEED, 6, j])) for j in range(count))
        return [Truth("halves", choices, PROBES, float(1 / np.sqrt(1 - DIGITS / rest)))]

    def _choice(self, rng: np.random.Generator) -> NDArray[np.float64]:
        every = load_digits().data
        every = every[np.random.default_rng([SEED, 7]).permutation(len(every))]
        others = PROBES + rng.choice(len(every) - PROBES, DIGITS, replace=False)
        return np.asarray(every[np.concatenate([np.arange(PROBES), others])], np.float64)


def settings() -> list[Setting]:
    """Return all settings."""
    grid = ((3, (0.0, 0.01, 0.03)), (20, (0.01,)))
    sheets = [Sheet(name, noise, d) for d, noises in grid for noise in noises for name in manifolds.NAMES]
    return [Digits(), *sheets]
