"""How a spread over draws is held against the true one, and how far the two could agree at all.

A spread estimated from few replicates is the true one with noise on it, which lowers every correlation. Reliability is
the correlation of two estimates of such size: that of the two halves of the replicates is r, and 2 r / (1 + r) that of
the whole (Spearman and Brown). No candidate can be expected to correlate with the truth by more than the root of the
truth's reliability; a correlation divided by the root of both reliabilities is what endless replicates and draws
would show (Spearman's correction for attenuation, an approximation for ranks).

A spread computed from one sample is, likewise, what that sample happens to say: where two samples that share the probes
correlate by r in what they say of these, sqrt(r) is the most that one sample's spread can be expected to correlate with
anything that does not depend on the sample.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import chi2, spearmanr

from glle_engine.graph.neighbors import kneighbors
from glle_engine.linalg.procrustes import procrustes_rotation
from glle_engine.posterior.summary import generalized_procrustes

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELLIPSE = float(chi2.ppf(0.9, 2))
SPLITS = 20
LOCAL = 10  # neighbours whose common motion is no news about a point


def turned(
    places: NDArray[np.float64], reference: NDArray[np.float64], kept: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Turn and shift embeddings (m, n, 2) by their first `kept` points, to the reference and then to their own mean.

    Returns
    -------
    places : (m, n, 2) float64
    base : (n, 2) float64
        The reference, in the same orientation and with the same origin.

    """
    base = reference - reference[:kept].mean(axis=0)
    shifted = places - places[:, :kept].mean(axis=1, keepdims=True)
    shifted = np.stack([Y @ procrustes_rotation(Y[:kept], base[:kept]) for Y in shifted])
    consensus, _ = generalized_procrustes(shifted[:, :kept])
    shifted = np.stack([Y @ procrustes_rotation(Y[:kept], consensus) for Y in shifted])
    turn = procrustes_rotation(shifted[:, :kept].mean(axis=0), base[:kept])
    return shifted @ turn, base


def covariance(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each point's covariance (n, 2, 2) over aligned places (m, n, 2)."""
    off = places - places.mean(axis=0)
    return np.asarray(np.einsum("mni,mnj->nij", off, off) / (len(places) - 1))


def spread(matrices: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the root of the trace of each covariance."""
    return np.asarray(np.sqrt(np.trace(matrices, axis1=1, axis2=2)))


def rank_correlation(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    """Return Spearman's."""
    return float(spearmanr(one, other).statistic)


def reliability(places: NDArray[np.float64]) -> float:
    """Return the reliability of the spread over aligned places, the mean over random splits."""
    found = []
    for split in range(SPLITS):
        order = np.random.default_rng([split, 8]).permutation(len(places))
        half = len(places) // 2
        r = rank_correlation(
            spread(covariance(places[order[:half]])), spread(covariance(places[order[half : 2 * half]]))
        )
        found.append(2 * r / (1 + r))
    return float(np.mean(found))


def coverage(mean: NDArray[np.float64], base: NDArray[np.float64], matrices: NDArray[np.float64]) -> float:
    """Return the share of points whose mean place lies in the 90 % ellipse around the base embedding."""
    off = mean - base
    inside = np.einsum("ni,ni->n", off, np.linalg.solve(matrices, off[:, :, None])[:, :, 0]) <= ELLIPSE
    return float(inside.mean())


def own_coverage(places: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what the true covariance itself would cover, were replicate j the data: (m,) shares, j left out.

    All points of an embedding move together, in a few patterns. One sample is one throw of these, and the share of
    points that the best ellipses cover is far from 90 % for most throws, though it is 90 % on average.
    """
    shares = []
    for j, place in enumerate(places):
        others = np.delete(places, j, axis=0)
        shares.append(coverage(others.mean(axis=0), place, covariance(others)))
    return np.array(shares)


def local(places: NDArray[np.float64], base: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return places (m, n, 2) without the mean motion of the nearest points: what moves a point by itself."""
    near = kneighbors(np.ascontiguousarray(base), LOCAL)[0]
    off = places - places.mean(axis=0)
    return np.asarray(off - off[:, near].mean(axis=2))


def bias(mean: NDArray[np.float64], coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how far each mean place is from the true coordinates, mapped affinely."""
    design = np.concatenate([coordinates, np.ones((len(coordinates), 1))], axis=1)
    return np.asarray(np.linalg.norm(mean - design @ np.linalg.lstsq(design, mean, rcond=None)[0], axis=1))
