"""A hundred thousand points: `make -C qa scale`."""

import resource
import time

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.metrics.ranks import continuity, trustworthiness

N = 100_000


@pytest.mark.scale
@pytest.mark.timeout(900)
def test_a_hundred_thousand_points() -> None:
    """Fit, draw, and score all points; n^2 numbers, 80 GB, are never held."""
    sheet = manifolds.make("swiss_roll", N, seed=0)
    clock = time.perf_counter()
    posterior = fit(sheet.X)
    fitted, clock = time.perf_counter() - clock, time.perf_counter()
    drawn = posterior.draw(0)
    drew, clock = time.perf_counter() - clock, time.perf_counter()
    assert drawn.diagnostics["solver"] != "shift-invert"
    np.testing.assert_allclose(posterior.weights(0).sum(axis=1), 1, atol=1e-12)
    scores = [
        score(sheet.X, Y) for score in (trustworthiness, continuity) for Y in (posterior.embedding, drawn.embedding)
    ]
    scored = time.perf_counter() - clock
    noise = trustworthiness(sheet.X, np.random.default_rng(0).random((N, 2)), points=np.arange(0, N, 100))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"fit {fitted:.1f} s, draw {drew:.1f} s, four scores {scored:.1f} s, peak {peak:.2f} GB, scores {scores}")  # noqa: T201
    assert min(scores) > 0.99
    assert abs(noise - 0.5) < 0.02
    assert peak < 4


@pytest.mark.scale
@pytest.mark.timeout(900)
def test_many_features_are_scored_by_blocks() -> None:
    """The brute-force route at n = 20,000 with 64 features."""
    rng = np.random.default_rng(0)
    plane = rng.random((20_000, 2))
    X = np.sin(plane @ rng.standard_normal((2, 64)) * 2)
    assert trustworthiness(X, plane, points=np.arange(0, 20_000, 10)) > 0.99
