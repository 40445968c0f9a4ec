"""Reference results, computed by the engine in this process, one at a time."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import FitSpec, Posterior
from glle_engine.methods import method
from glle_engine.metrics.ranks import local_trustworthiness
from glle_engine.posterior.summary import summarize
from qa.load.content import METHODS, Artifact, Content, Draws, Embedding, Fit, Summary
from qa.load.ledger import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TRUST_NEIGHBORS = 10

Arrays = dict[str, "NDArray[Any]"]


def differing_arrays(received: dict[tuple[Artifact, str], set[str]]) -> Iterator[str]:
    """Yield the received arrays that differ from the ones computed alone in any bit."""
    for artifact in sorted({artifact for artifact, _ in received}, key=_sort_key):
        arrays = expected_arrays(artifact)
        for (received_artifact, name), digests in received.items():
            if received_artifact == artifact and digests != {digest_of(arrays[name])}:
                yield f"{name} of {artifact}"


def expected_arrays(artifact: Artifact) -> Arrays:
    """Return the reference arrays of a content by their names."""
    match artifact:
        case Content():
            return {"data": artifact.values()}
        case Fit():
            return dict(posterior(artifact).arrays())
        case Draws(is_single=True):
            return {"embedding": _draw(artifact.fit, artifact.first, artifact.seed, artifact.scale)}
        case Draws():
            drawn = [
                _draw(artifact.fit, artifact.first + i, artifact.seed, artifact.scale) for i in range(artifact.count)
            ]
            return {"embedding": np.stack(drawn)}
        case Summary():
            return _summary(artifact)
        case Embedding():
            return {"embedding": _embedding(artifact)}


@lru_cache(4)
def posterior(fit: Fit) -> Posterior:
    """Return the posterior of a fit."""
    return glle_engine.fit(fit.content.values(), FitSpec(n_neighbors=fit.n_neighbors))


@lru_cache(2000)
def _draw(fit: Fit, index: int, seed: int, scale: float) -> NDArray[np.float64]:
    return posterior(fit).draw(index, seed=seed, scale=scale).embedding


def _summary(artifact: Summary) -> Arrays:
    fitted = posterior(artifact.fit)
    draws = [fitted.draw(index, seed=artifact.seed) for index in range(artifact.count)]
    summary = summarize(draws, fitted.embedding, fitted.spec.n_neighbors)
    points = np.arange(artifact.fit.content.n)
    return {
        "consensus": summary.consensus,
        "covariance": summary.covariance,
        "spread": summary.spread,
        "stability": summary.stability,
        "local_trust": local_trustworthiness(artifact.fit.content.values(), fitted.embedding, TRUST_NEIGHBORS, points),
        "eigenvalues": summary.eigenvalues,
        "relative_gaps": summary.relative_gaps,
        "agreement": summary.agreement,
    }


def _embedding(artifact: Embedding) -> NDArray[np.float64]:
    embedder = method(artifact.method)
    return embedder.embed(
        artifact.content.values(), embedder.spec(**METHODS[artifact.method]), lambda *_: None, labels=None
    ).Y


def _sort_key(artifact: Artifact) -> str:
    """Return a sort key that groups the contents of one posterior."""
    fit = artifact if isinstance(artifact, Fit) else artifact.fit if isinstance(artifact, Draws | Summary) else None
    return f"{fit} {artifact}"
