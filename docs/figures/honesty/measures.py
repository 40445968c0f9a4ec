"""Comparison of a spread with the true spread, and the limits of their agreement.

A spread estimated from few replicates is the true one with noise, which lowers every correlation. Reliability is the
correlation of two estimates of the same size: if the halves of the replicates correlate by r, all of them have
2 r / (1 + r) (Spearman and Brown). No candidate is expected to correlate with the truth by more than the root of the
truth's reliability.

A spread computed from one sample depends on that sample. If the spreads from two samples with common probes correlate
by r, sqrt(r) bounds the expected correlation of one sample's spread with anything that does not depend on the sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2

from glle_engine.linalg.procrustes import generalized_procrustes, moments, procrustes_rotation, root_trace
from glle_engine.reliability.alignment import rank_correlation

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELLIPSE = float(chi2.ppf(0.9, 2))
SPLITS = 20


def align(
    places: NDArray[np.float64], reference: NDArray[np.float64], kept: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Align embeddings (m, n, 2) by their first `kept` points, to the reference and then to their mean.

    Returns
    -------
    places : (m, n, 2) float64
    base : (n, 2) float64
        The reference, in the same orientation and with the same origin.

    """
    base = reference - reference[:kept].mean(axis=0)
    shifted = places - places[:, :kept].mean(axis=1, keepdims=True)
    aligned = generalized_procrustes(shifted[:, :kept], base[:kept])
    turns = [procrustes_rotation(Y[:kept], places) for Y, places in zip(shifted, aligned, strict=True)]
    return np.stack([Y @ turn for Y, turn in zip(shifted, turns, strict=True)]), base


def center(places: NDArray[np.float64], kept: int) -> NDArray[np.float64]:
    """Return the first `kept` points of embeddings (..., n, 2), around their mean."""
    return np.asarray(places[..., :kept, :] - places[..., :kept, :].mean(axis=-2, keepdims=True))


def reliability(places: NDArray[np.float64]) -> float:
    """Return the reliability of the spread over aligned places, the mean over random splits."""
    reliabilities = []
    for split in range(SPLITS):
        order = np.random.default_rng([split, 8]).permutation(len(places))
        half = len(places) // 2
        r = rank_correlation(
            root_trace(moments(places[order[:half]])[1]), root_trace(moments(places[order[half : 2 * half]])[1])
        )
        reliabilities.append(2 * r / (1 + r))
    return float(np.mean(reliabilities))


def coverage(mean: NDArray[np.float64], base: NDArray[np.float64], matrices: NDArray[np.float64]) -> float:
    """Return the share of points whose mean place lies in the 90 % ellipse around the base embedding."""
    off = mean - base
    inside = np.einsum("ni,ni->n", off, np.linalg.solve(matrices, off[:, :, None])[:, :, 0]) <= ELLIPSE
    return float(inside.mean())


def own_coverage(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the coverage by the true covariance with replicate j as the data: (m,) shares, j left out.

    All points of an embedding move together, in a few patterns. One sample is one realisation of them, so the coverage
    of the best ellipses is far from 90 % for most samples, although its mean is 90 %.
    """
    shares = []
    for j, place in enumerate(places):
        others = np.delete(places, j, axis=0)
        shares.append(coverage(others.mean(axis=0), place, moments(others)[1]))
    return np.array(shares)
