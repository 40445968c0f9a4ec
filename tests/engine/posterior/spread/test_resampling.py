"""Embeddings of random subsamples: pure functions of their address."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import FitSpec, fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.posterior.fit import reference_embedding
from glle_engine.posterior.spread import resampling
from glle_engine.posterior.spread.resampling import HALVES, LARGER, RANDOM_K, STREAMS, Stream, resamples

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


@pytest.mark.parametrize("stream", STREAMS, ids=lambda stream: stream.name)
def test_resamples_embed_every_point(sheet: NDArray[np.float64], posterior: Posterior, stream: Stream) -> None:
    """All points are placed, by (seed, j) alone: ranges of a stream have the bits of one computation of all."""
    whole = resamples(sheet, posterior.spec, posterior.embedding, 5, stream=stream, seed=1)
    parts = [
        resamples(sheet, posterior.spec, posterior.embedding, count, stream=stream, first=first, seed=1)
        for first, count in ((0, 2), (2, 0), (2, 3))
    ]
    assert whole.shape == (5, 400, 2)
    assert np.isfinite(whole).all()
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert len({place.tobytes() for place in whole}) == 5
    other = resamples(sheet, posterior.spec, posterior.embedding, 1, stream=stream, seed=2)
    assert not np.array_equal(whole[0], other[0])


def test_streams_of_a_seed_differ_in_size_and_neighbors(
    sheet: NDArray[np.float64], posterior: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves have n / 2 points and k neighbors, larger samples .632 n; random k is spread over [.7 k, 1.5 k]."""
    sizes: dict[str, list[tuple[int, int]]] = {}

    def record(stream: Stream) -> Any:
        def wrapped(data: Any, nearest: Any, spec: FitSpec, on_progress: Any) -> Any:
            sizes.setdefault(stream.name, []).append((len(data), spec.n_neighbors))
            return reference_embedding(data, nearest, spec, on_progress)

        return wrapped

    for stream in STREAMS:
        with monkeypatch.context() as patch:
            patch.setattr(resampling, "reference_embedding", record(stream))
            resamples(sheet, posterior.spec, posterior.embedding, 12, stream=stream)
    assert set(sizes[HALVES.name]) == {(200, 10)}
    assert set(sizes[LARGER.name]) == {(253, 10)}
    random_k = [k for _, k in sizes[RANDOM_K.name]]
    assert {n for n, _ in sizes[RANDOM_K.name]} == {200}
    assert min(random_k) >= 7
    assert max(random_k) <= 15
    assert len(set(random_k)) > 3


def test_factors_are_those_of_the_jackknife() -> None:
    """The factor times the variance of means over subsamples is the variance of the mean."""
    values = np.random.default_rng(0).standard_normal(60)
    for stream in STREAMS:
        rng = np.random.default_rng(1)
        means = [values[rng.permutation(60)[: stream.size(60)]].mean() for _ in range(20_000)]
        assert stream.factor * np.var(means) == pytest.approx(values.var(ddof=1) / 60, rel=0.05)


def test_a_resample_is_turned_to_the_reference(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """A turned reference turns each resample alike."""
    turn = np.linalg.qr(np.random.default_rng(4).standard_normal((2, 2)))[0]
    plain = resamples(sheet, posterior.spec, posterior.embedding, 2)
    turned = resamples(sheet, posterior.spec, posterior.embedding @ turn, 2)
    np.testing.assert_allclose(turned, plain @ turn, atol=1e-9)


def test_resamples_of_landmarks_embed_landmarks(sheet: NDArray[np.float64]) -> None:
    """Every point is placed, by subsamples of the landmarks."""
    marked = fit(sheet, landmarks=150)
    placed = resamples(sheet, marked.spec, marked.embedding, 3, stream=LARGER, landmarks=marked.landmarks)
    assert placed.shape == (3, 400, 2)
    assert np.isfinite(placed).all()


def test_few_points_bound_the_random_neighbors() -> None:
    """A half of 26 points has at most 12 neighbors, so that k = 12 is never drawn above."""
    X = np.random.default_rng(3).random((26, 3))
    posterior = fit(X, n_neighbors=12, disconnected="bridge")
    assert np.isfinite(resamples(X, posterior.spec, posterior.embedding, 8, stream=RANDOM_K)).all()


def test_progress_can_cancel(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Reports name the stream, also within a resample; an exception of the callback ends the computation."""
    reports: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, stage: str) -> None:
        reports.append((done, total, stage))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resamples(sheet, posterior.spec, posterior.embedding, 9, stream=LARGER, on_progress=stop)
    assert list(dict.fromkeys(reports)) == [(done, 9, "larger samples") for done in range(3)]
    assert len(reports) > 3


def test_impossible_resamples_are_refused(sheet: NDArray[np.float64], posterior: Posterior) -> None:
    """Too few points, negative numbers, and a range beyond the stream, each with its value and the remedy."""
    with pytest.raises(InvalidParameterError, match=r"Half of 15 points .* n_neighbors=8.*below 6"):
        resamples(np.random.default_rng(0).random((15, 3)), FitSpec(n_neighbors=8), np.zeros((15, 2)), 1)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"first": -1}, "first=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"first": 2**32}, "another seed"),
    ]
    for wrong, pattern in refused:
        with pytest.raises(InvalidParameterError, match=pattern):
            resamples(sheet, posterior.spec, posterior.embedding, 1, **wrong)
    with pytest.raises(InvalidParameterError, match="count=-3"):
        resamples(sheet, posterior.spec, posterior.embedding, -3)
