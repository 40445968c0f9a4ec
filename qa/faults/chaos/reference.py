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
from qa.load.content import METHODS, Content, Draws, Embedding, Fit, Made, Summary
from qa.load.ledger import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

TRUST_NEIGHBORS = 10

Arrays = dict[str, "NDArray[Any]"]


def differing(received: dict[tuple[Made, str], set[str]]) -> Iterator[str]:
    """Yield the received arrays that differ from the ones computed alone in any bit."""
    for made in sorted({made for made, _ in received}, key=_place):
        arrays = computed(made)
        for name, digests in ((name, found) for (what, name), found in received.items() if what == made):
            if digests != {digest_of(arrays[name])}:
                yield f"{name} of {made}"


def computed(made: Made) -> Arrays:
    """Return the reference arrays of a content by their names."""
    match made:
        case Content():
            return {"data": made.values()}
        case Fit():
            return dict(posterior(made).arrays())
        case Draws(is_single=True):
            return {"embedding": _draw(made.fit, made.first, made.seed, made.scale)}
        case Draws():
            drawn = [_draw(made.fit, made.first + i, made.seed, made.scale) for i in range(made.count)]
            return {"embedding": np.stack(drawn)}
        case Summary():
            return _summary(made)
        case Embedding():
            return {"embedding": _embedding(made)}


@lru_cache(4)
def posterior(fit: Fit) -> Posterior:
    """Return the posterior of a fit."""
    return glle_engine.fit(fit.content.values(), FitSpec(n_neighbors=fit.n_neighbors))


@lru_cache(2000)
def _draw(fit: Fit, index: int, seed: int, scale: float) -> NDArray[np.float64]:
    return posterior(fit).draw(index, seed=seed, scale=scale).embedding


def _summary(made: Summary) -> Arrays:
    fitted = posterior(made.fit)
    draws = [fitted.draw(index, seed=made.seed) for index in range(made.count)]
    found = summarize(draws, fitted.embedding, fitted.spec.n_neighbors)
    points = np.arange(made.fit.content.n)
    return {
        "consensus": found.consensus,
        "covariance": found.covariance,
        "spread": found.spread,
        "stability": found.stability,
        "local_trust": local_trustworthiness(made.fit.content.values(), fitted.embedding, TRUST_NEIGHBORS, points),
        "eigenvalues": found.eigenvalues,
        "relative_gaps": found.relative_gaps,
        "agreement": found.agreement,
    }


def _embedding(made: Embedding) -> NDArray[np.float64]:
    one = method(made.method)
    return one.embed(made.content.values(), one.spec(**METHODS[made.method]), lambda *_: None, labels=None).Y


def _place(made: Made) -> str:
    """Return a sort key that groups the contents of one posterior."""
    fit = made if isinstance(made, Fit) else made.fit if isinstance(made, Draws | Summary) else None
    return f"{fit} {made}"
