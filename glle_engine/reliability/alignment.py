r"""Aligned embeddings of the same points, their spread, and whether it ranks the points.

Random halves of the embeddings, whose spreads have the rank correlation r over points, give the reliability of f times
as many embeddings as a half: :math:`f r / (1 + (f - 1) r)` (Spearman and Brown, 1910).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np

from glle_engine.base.brief import brief
from glle_engine.base.errors import InvalidShapeError
from glle_engine.base.progress import OnProgress, silent
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import generalized_procrustes, moments, root_trace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

FEWEST = 4  # embeddings of each kind, for covariances of two halves
SPLITS = 6


@dataclass(frozen=True, eq=False)
class Alignment:
    """Kinds of embeddings of the same points, all rotated to their consensus, and this to an original.

    Attributes
    ----------
    original : (n, p) float64
    kinds : tuple of (m, n, p) float64
        At least 4 embeddings of each kind.
    factors : tuple of float
        On the covariance of each kind, so that all estimate that over new samples.

    """

    original: NDArray[np.float64]
    kinds: tuple[NDArray[np.float64], ...]
    factors: tuple[float, ...]

    __repr__ = brief

    @classmethod
    def of(
        cls,
        kinds: Sequence[NDArray[np.float64]],
        original: NDArray[np.float64],
        factors: Sequence[float] = (1.0,),
        *,
        start: NDArray[np.float64] | None = None,
        on_progress: OnProgress = silent,
    ) -> Self:
        """Align kinds of embeddings (m, n, p); `start` is that of `generalized_procrustes`.

        Raises
        ------
        InvalidShapeError
            For fewer than 4 embeddings of a kind, or of another shape than the original.

        """
        for number, kind in enumerate(kinds):
            if kind.shape[1:] != original.shape or len(kind) < FEWEST:
                raise InvalidShapeError(
                    f"Embeddings of kind {number} have shape {kind.shape}; the original has {original.shape}.",
                    remedy=f"Give at least {FEWEST} embeddings of that shape, stacked.",
                )
        aligned = generalized_procrustes(np.concatenate(kinds), original, on_progress, start=start)
        parts = np.split(aligned, np.cumsum([len(kind) for kind in kinds])[:-1])
        return cls(original, tuple(parts), tuple(factors))

    @cached_property
    def moments(self) -> tuple[tuple[NDArray[np.float64], NDArray[np.float64]], ...]:
        """Mean (n, p) and covariance (n, p, p) of each point over each kind, without its factor."""
        return tuple(moments(kind) for kind in self.kinds)

    @property
    def covariances(self) -> list[NDArray[np.float64]]:
        """Covariance (n, p, p) of each point over each kind, without its factor."""
        return [covariance for _, covariance in self.moments]

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        """Mean of the covariances (n, p, p), each times its factor."""
        return mean_covariance(self.covariances, self.factors)

    @property
    def spread(self) -> NDArray[np.float64]:
        """Root of the trace of each point's covariance (n,)."""
        return root_trace(self.covariance)

    def split_half_correlations(self, on_progress: OnProgress = silent) -> list[float]:
        """Return rank correlations of the spreads over random halves: of all kinds together, then of each kind.

        `on_progress` is called with (splits done, splits, "reliability").
        """
        pairs: list[list[float]] = []
        for split in range(SPLITS):
            halves = [_halves(kind, split) for kind in self.kinds]
            first, second = ([moments(half[side])[1] for half in halves] for side in (0, 1))
            whole = [mean_covariance(side, self.factors) for side in (first, second)]
            pairs.append(
                [spread_correlation(a, b) for a, b in zip((whole[0], *first), (whole[1], *second), strict=True)]
            )
            on_progress(split + 1, SPLITS, "reliability")
        return [sum(column) / SPLITS for column in zip(*pairs, strict=True)]


def mean_covariance(covariances: Sequence[NDArray[np.float64]], factors: Sequence[float]) -> NDArray[np.float64]:
    """Return the mean of covariances (n, p, p), each times its factor."""
    total = np.zeros(covariances[0].shape)
    for covariance, factor in zip(covariances, factors, strict=True):
        total += factor * covariance
    return total / len(covariances)


def spread_correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return the rank correlation of the spreads of two covariances (n, p, p)."""
    return rank_correlation(root_trace(first), root_trace(second))


def rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return Spearman's correlation of two arrays (n,), ties at their mean rank; 0 if one is constant.

    Doubled centred ranks are integers: their products are exact, and their sums up to 10^5 points.
    """
    x, y = (_doubled_centred_ranks(values) for values in (a, b))
    variance = dense.dot(x, x) * dense.dot(y, y)
    return dense.dot(x, y) / math.sqrt(variance) if variance else 0.0


def _doubled_centred_ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return twice the mean rank of each value minus n + 1: the numbers of smaller and of larger ones differ by it."""
    ordered = np.sort(values)  # scipy.stats has the ranks, too, but takes half a second to import
    below, above = np.searchsorted(ordered, values, "left"), len(values) - np.searchsorted(ordered, values, "right")
    return (below - above).astype(np.float64)


def spearman_brown(r: float, times: float) -> float:
    """Return the reliability of a number of times as many embeddings as those that correlate by r; 0 for r below 0."""
    return times * r / (1 + (times - 1) * r) if r > 0 else 0.0


def _halves(stack: NDArray[np.float64], split: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return two random halves of a stack, the same for the same length and split."""
    rng = np.random.Generator(np.random.Philox(key=np.array([split, len(stack)], np.uint64)))
    order, half = rng.permutation(len(stack)), len(stack) // 2
    return stack[np.sort(order[:half])], stack[np.sort(order[half:])]
