"""The Python client on a running service."""

from __future__ import annotations

import asyncio
import tracemalloc
import warnings
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import glle_engine
from glle import AsyncClient, Client, InvalidRequestError, frame
from glle_engine import manifolds
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


def test_results_have_notices_index_and_roles_of_their_table(glle: Client) -> None:
    """Each result says which rows were dropped; new points may have their columns in any order."""
    values = manifolds.make("s_curve", 60, seed=2).X
    table = pd.DataFrame(values, columns=["x", "y", "z"]).assign(kind=["a", "b"] * 30)
    table.loc[3, "x"] = np.nan
    posterior, embedding = glle.fit(table, missing="drop"), glle.embed(table, "pca", missing="drop")
    audit = glle.audit(table, method="pca", missing="drop")
    compared = glle.compare(table, ["pca", "lle"], missing="drop")
    placed = embedding.transform(table, missing="drop")
    kept = [row for row in range(60) if row != 3]
    for result in (embedding, audit, compared, placed):
        assert "1 of 60 rows" in " ".join(note.message for note in result.notes)
        assert list(result.index) == kept
    for shown in (posterior, posterior.summary(4, scale=1.0), embedding, audit):
        assert list(frame(shown).index) == kept
    assert audit.groups.names == ["a", "b"]
    for fitted in (posterior, embedding):
        some, mixed = fitted.transform(table[:3]), fitted.transform(table[["z", "kind", "x", "y"]][:3])
        np.testing.assert_array_equal(some.embedding, mixed.embedding)
        with pytest.raises(InvalidRequestError, match="missing: 'x'; unknown: 'w'"):
            fitted.transform(table.rename(columns={"x": "w"})[:3])


def test_jobs_are_listed_followed_and_cancelled(glle: Client) -> None:
    """A job object gives its result and state, and can be cancelled."""
    posterior = glle.fit(glle.synthetic("s_curve", N, seed=3))
    job = posterior.start_draws(3, seed=41)
    assert job.result(timeout=60).shape == (3, N, 2)
    assert glle.job(job.id).wait().status == "succeeded"
    assert job.id in {listed.id for listed in glle.jobs(kind="draws", status="succeeded")}
    assert job.cancel().status == "succeeded"
    fit = glle.job(posterior.metadata["job"])
    assert fit.result() == posterior
    long = glle.fit(glle.synthetic("s_curve", 2000, seed=3)).start_draws(5000, seed=41)
    assert long.cancel().status in {"cancelling", "cancelled"}


def test_awaited_fits_run_side_by_side(up: Up) -> None:
    """Two concurrent fits with draws give the bits of the blocking client."""
    X = manifolds.make("swiss_roll", N, seed=15).X

    async def main() -> list[bytes]:
        async with AsyncClient(up.url) as glle:
            roll = await glle.dataset(X)
            fits = [glle.fit(roll, n_neighbors=k) for k in (8, 10)]
            posteriors = await asyncio.gather(*fits)
            assert {posterior.id for posterior in posteriors} <= {listed.id async for listed in glle.posteriors()}
            batches = await asyncio.gather(*[posterior.draws(2) for posterior in posteriors])
            return [draws.tobytes() for draws in batches]

    awaited = asyncio.run(main())
    with Client(up.url) as glle:
        assert awaited == [glle.fit(X, n_neighbors=k).draws(2).tobytes() for k in (8, 10)]


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
