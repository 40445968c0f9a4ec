"""Digests of dense operations, neighbors, hard eigenproblems, and the engine's results for data sets, as JSON.

Run `python -m tests.engine.reproducibility.digests FILE.npz`.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from glle_engine import Posterior, fit
from glle_engine.graph.neighbors import intrinsic_dimension, kneighbors, kneighbors_to
from glle_engine.linalg import dense
from glle_engine.linalg.procrustes import moments
from glle_engine.linalg.rank_correlation import rank_correlation
from glle_engine.metrics import ranks
from glle_engine.metrics.ranks import residual_variance
from glle_engine.metrics.registry import neighborhood_hit
from glle_engine.reliability.alignment import Alignment, calibrated_regions
from glle_engine.reliability.calibration import calibrate
from glle_engine.reliability.resamples import HALVES, SEPARATE, PosteriorEmbedder, resample
from tests.engine.reproducibility import eigenproblems
from tests.engine.reproducibility.eigenproblems import digest

FITS: dict[str, dict[str, Any]] = {
    "em": {},
    "direct": {"method": "direct"},
    "derived": {"method": "direct", "mean": "derived", "variance": "ml"},
    "tangent": {"noise": "tangent"},
    "adaptive": {"neighborhoods": "adaptive"},
    "published": {"variant": "published"},
    "published-full": {"variant": "published", "covariance": "full", "max_iter": 3},
    "published-direct": {"variant": "published", "method": "direct"},
}


def stages(X: NDArray[np.float64], posterior: Posterior) -> Iterator[tuple[str, str]]:
    """Yield the digest of every stage behind a fit."""
    yield "fit", digest(*posterior.arrays().values())
    yield "figures", hashlib.sha256(json.dumps(posterior.head(), sort_keys=True).encode()).hexdigest()[:16]
    draws = list(posterior.draws(6, seed=3))
    yield "draws", digest(*(part for draw in draws for part in (draw.embedding, draw.eigenvalues)))
    yield "disparity", digest(*(draw.diagnostics["disparity"] for draw in draws))
    yield "unaligned", digest(posterior.draw(2, align="none").embedding)
    if posterior.distribution.prior_factor is not None:
        yield "prior", digest(posterior.draw(2, source="prior").embedding)
    summary = posterior.summary(8)
    yield "summary", digest(*(getattr(summary, name) for name in summary.__dataclass_fields__ if name != "notes"))
    new = X[:40] + 0.01 * X.std(axis=0)
    yield "transform", digest(posterior.transform(X, new), posterior.extend(X, X[:9]).weights)
    yield "reconstruction", digest(posterior.reconstruct(X, posterior.weights(1)))


def scores(X: NDArray[np.float64], posterior: Posterior) -> Iterator[tuple[str, str]]:
    """Yield the digest of calibration and scores."""
    calibration = calibrate(posterior, X, n_resamples=4, n_draws=4)
    figures = calibration.scale, calibration.ratio, calibration.rank_correlation, calibration.half_sample_spread
    yield "calibration", digest(*figures)
    Y = posterior.embedding
    embed = PosteriorEmbedder.from_posterior(posterior, X)
    resamples = [resample(embed, 4, stream=stream).places for stream in (HALVES, SEPARATE)]
    regions = calibrated_regions(Alignment.from_maps(resamples[0], Y))
    yield "resamples", digest(*resamples)
    yield "regions", digest(regions.half_axes, *regions.radii)
    yield (
        "ranks",
        digest(ranks.trustworthiness(X, Y), ranks.continuity(X, Y), ranks.disparity(X[:, :2], Y)),
    )
    yield "residual variance", digest(residual_variance(X, Y, 12))
    yield "hit", digest(neighborhood_hit(Y, np.arange(len(X)) % 3))


def dense_operations() -> Iterator[NDArray[Any] | float]:
    """Yield the results of the batched dense operations."""
    words = np.random.Philox(key=7).random_raw(40 * 12 * 9)
    A = np.asarray((words >> np.uint64(11)) * 2.0**-53 - 0.5, np.float64).reshape(40, 12, 9)
    G = dense.gram(A) + 0.1 * np.eye(12)
    root = dense.inverse_factor(G)
    yield from (G, root, *dense.affine_solution(root), *dense.eigh(G), *dense.svd(A), dense.pinv(A))
    yield from (dense.cross(A[0], A[1]), dense.matmul(A, G[:, :9, :5]), dense.logs(np.abs(A) + 1e-9))
    yield from (dense.dot(A, A), dense.norm(A), dense.log(3.0), dense.exp(0.1))


def neighborhoods() -> Iterator[tuple[str, str]]:
    """Yield the digests of neighbors, ranks and moments, for few and many features, with ties and without."""
    rng = np.random.default_rng(0)
    for d in (4, 64):
        for X in (rng.integers(0, 4, (500, d)).astype(np.float64), rng.random((500, d))):
            Y = np.round(X[:, :2] + rng.random((500, 2)), 1)
            figures = [
                ranks.trustworthiness(X, Y, 9),
                ranks.continuity(X, Y, 9),
                residual_variance(X, Y, 30),
            ]
            figures += [intrinsic_dimension(kneighbors(X, 20)[1]), rank_correlation(Y[:, 0], X[:, 1])]
            arrays = moments(np.stack([Y, X[:, 2:4], X[:, 1:3]]))
            yield (
                f"neighbors {d} {X[0, 0]}",
                digest(*kneighbors(X, 12), *kneighbors_to(X[:400], X[300:], 5), *figures, *arrays),
            )


def digests(data: dict[str, NDArray[np.float64]]) -> dict[str, str]:
    """Return all digests, by name."""
    by_name = {f"dense {number}": digest(part) for number, part in enumerate(dense_operations())}
    by_name |= {**dict(neighborhoods()), **eigenproblems.digests()}
    for name, X in data.items():
        for kind, options in FITS.items():
            posterior = fit(X, **{"disconnected": "bridge", "n_neighbors": 12, **options})
            by_name |= {f"{name} {kind} {stage}": value for stage, value in stages(X, posterior)}
            if kind == "em":
                by_name |= {f"{name} {stage}": value for stage, value in scores(X, posterior)}
    return by_name


if __name__ == "__main__":
    with np.load(sys.argv[1]) as file:
        json.dump(digests({name: file[name] for name in file.files}), sys.stdout)
