"""The Python client on a running service."""

from __future__ import annotations

import tracemalloc
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle_engine
from glle import Client
from glle_engine.reliability.calibration import calibrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.system.conftest import Up

N = 320


@pytest.fixture(scope="module")
def glle(up: Up) -> Iterator[Client]:
    """Return a client of the service."""
    with Client(up.url) as client:
        yield client


def test_every_analysis_of_a_posterior(glle: Client) -> None:
    """The client's summary, transform, reconstructions, weights, calibration and arrays equal the engine's."""
    roll = glle.synthetic("swiss_roll", N, seed=13)
    posterior = glle.fit(roll)
    X, direct = roll.data(), glle_engine.fit(roll.data())
    summary = posterior.summary(8)
    assert (summary.consensus.shape, summary.spread.shape, summary.n_draws) == ((N, 2), (N,), 8)
    expected = direct.summary(8, scale=calibrate(direct, X).scale)
    np.testing.assert_allclose(summary.spread, expected.spread, rtol=1e-4, atol=1e-6)
    assert "calibration" not in posterior.summary(8, scale=1.0).metadata
    np.testing.assert_allclose(posterior.arrays()["embedding"], direct.embedding, atol=1e-9)
    placed, extension = posterior.transform(X[:5] + 0.05, n_draws=3), direct.extend(X, X[:5] + 0.05)
    np.testing.assert_allclose(placed.embedding, extension.embed(direct.embedding), atol=1e-6)
    _, covariance = extension.spread(direct.draws(3), direct.embedding)
    np.testing.assert_allclose(placed.covariance, covariance, rtol=1e-3, atol=1e-6)
    for data, index in zip(posterior.reconstructions(2), range(2), strict=True):
        np.testing.assert_allclose(data, direct.reconstruct(X, direct.weights(index)), atol=1e-9)
    np.testing.assert_allclose(posterior.weights(3, scale=0.5), direct.weights(3, scale=0.5), atol=1e-9)
    calibrated = posterior.calibration()
    assert calibrated.scale == pytest.approx(calibrate(direct, X).scale, rel=1e-4)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        at_auto = posterior.draw(1, scale="auto")
    assert len(caught) == bool(calibrated.notes)
    assert at_auto.tobytes() == posterior.draw(1, scale=calibrated.scale).tobytes()
    assert set(roll.arrays()) == {"data", "coordinates"}


def test_large_bodies_do_not_pile_up_in_memory(glle: Client, tmp_path: Path) -> None:
    """An upload from a mapped file and a download to a file take only a few megabytes of memory."""
    path = tmp_path / "large.npy"
    X = np.random.default_rng(0).normal(size=(100_000, 12))
    np.save(path, X)
    del X
    mapped = np.load(path, mmap_mode="r")
    tracemalloc.start()
    try:
        dataset = glle.dataset(mapped)
        back = dataset.data(out=tmp_path / "back.npy")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 * 2**20 < mapped.nbytes
    np.testing.assert_array_equal(back, mapped)
    dataset.delete()
