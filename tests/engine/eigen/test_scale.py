"""A fit of a hundred thousand points, which `make -C qa scale` runs."""

import resource

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.metrics.ranks import continuity, trustworthiness

N = 100_000


@pytest.mark.scale
@pytest.mark.timeout(900)
def test_a_hundred_thousand_points() -> None:
    """A fit, a draw and scores of 100,000 points need less than 4 GB, although n^2 numbers would take 80 GB."""
    sheet = manifolds.make("swiss_roll", N, seed=0)
    posterior = fit(sheet.X)
    drawn = posterior.draw(0)
    assert drawn.diagnostics["solver"] != "shift-invert"
    np.testing.assert_allclose(posterior.weights(0).sum(axis=1), 1, atol=1e-12)
    scores = [
        score(sheet.X, Y) for score in (trustworthiness, continuity) for Y in (posterior.embedding, drawn.embedding)
    ]
    noise = trustworthiness(sheet.X, np.random.default_rng(0).random((N, 2)), points=np.arange(0, N, 100))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20

    assert min(scores) > 0.99
    assert abs(noise - 0.5) < 0.02
    assert peak < 4
