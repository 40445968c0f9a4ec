"""Embeddings of random parts of the data: pure functions of their address, for all that can be embedded again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import FitSpec, fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods import method
from glle_engine.posterior.fit import reference_embedding
from glle_engine.reliability import embedders
from glle_engine.reliability.embedders import FunctionEmbedder, PosteriorEmbedder
from glle_engine.reliability.refits import MethodEmbedder
from glle_engine.reliability.resamples import (
    HALVES,
    LARGER,
    RANDOM_K,
    SEEDS,
    STREAMS,
    Embedder,
    Stream,
    draw_sample,
    resample,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine import Posterior


@pytest.fixture(scope="module")
def embed(sheet: NDArray[np.float64], posterior: Posterior) -> PosteriorEmbedder:
    """Return the posterior of the sheet, to be embedded again."""
    return PosteriorEmbedder.of(posterior, sheet)


def refit(X: NDArray[np.float64], name: str, **options: Any) -> Embedder:
    """Return a method with its data."""
    return MethodEmbedder(X, method(name), method(name).spec.from_dict(options))


EMBEDDERS: dict[str, Any] = {
    "posterior": lambda X: PosteriorEmbedder.of(fit(X), X),
    "posterior of landmarks": lambda X: PosteriorEmbedder.of(fit(X, landmarks=120), X),
    "function": lambda X: FunctionEmbedder(lambda points: points[:, :2] ** 3, X),
    "pca": lambda X: refit(X, "pca"),
    "lle": lambda X: refit(X, "lle"),
    "alle": lambda X: refit(X, "alle"),
    "glle": lambda X: refit(X, "glle"),
    "symmetric-sne": lambda X: refit(X, "symmetric-sne", max_iter=20, perplexity=10),
}
CASES = [(name, HALVES) for name in EMBEDDERS]
CASES += [("posterior", RANDOM_K), ("posterior", LARGER), ("alle", SEEDS), ("symmetric-sne", SEEDS)]


@pytest.mark.parametrize(("name", "stream"), CASES, ids=lambda one: getattr(one, "name", one))
def test_ranges_have_the_bits_of_one_computation(sheet: NDArray[np.float64], name: str, stream: Stream) -> None:
    """Every point is placed, by (seed, j) alone: in ranges, in any order, and by several threads."""
    again = EMBEDDERS[name](sheet[::2])
    whole = resample(again, 4, stream=stream, seed=1)
    assert whole.places.shape == (4, 200, 2)
    assert whole.problems == ()
    assert np.isfinite(whole.places).all()
    parts = [resample(again, count, stream=stream, first=first, seed=1) for first, count in ((0, 2), (2, 0), (2, 2))]
    assert (parts[0] + parts[1] + parts[2]).places.tobytes() == whole.places.tobytes()
    with ThreadPoolExecutor(2) as threads:
        assert resample(again, 4, stream=stream, seed=1, executor=threads).places.tobytes() == whole.places.tobytes()
    if stream != SEEDS:
        assert len({place.tobytes() for place in whole.places}) == 4
        assert not np.array_equal(whole.places[0], resample(again, 1, stream=stream, seed=2).places[0])


def test_samples_are_functions_of_their_address(embed: PosteriorEmbedder) -> None:
    """Each half has n / 2 points, the others are its complement; other numbers, seeds and streams differ."""
    samples = [draw_sample(embed, stream, seed, j) for stream in STREAMS for seed in range(3) for j in range(5)]
    for sample in samples:
        assert len(sample.chosen) == (253 if sample.stream == LARGER else 200)
        assert np.array_equal(np.sort(np.concatenate([sample.chosen, sample.others])), np.arange(400))
    assert len({sample.chosen.tobytes() for sample in samples}) == len(samples)


def test_random_neighbors_are_spread_over_their_range(
    embed: PosteriorEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Halves and larger samples have k neighbors; random k is spread over [.7 k, 1.5 k]."""
    counts: dict[str, set[int]] = {}
    for stream in STREAMS:
        found = counts.setdefault(stream.name, set())

        def record(data: Any, nearest: Any, spec: FitSpec, on_progress: Any, found: set[int] = found) -> Any:
            found.add(spec.n_neighbors)
            return reference_embedding(data, nearest, spec, on_progress)

        monkeypatch.setattr(embedders, "reference_embedding", record)
        resample(embed, 12, stream=stream)
    assert counts[HALVES.name] == counts[LARGER.name] == {10}
    assert min(counts[RANDOM_K.name]) >= 7
    assert max(counts[RANDOM_K.name]) <= 15
    assert len(counts[RANDOM_K.name]) > 3


def test_factors_are_those_of_the_jackknife() -> None:
    """The factor times the variance of means over subsamples is the variance of the mean."""
    values = np.random.default_rng(0).standard_normal(60)
    for stream in STREAMS:
        rng = np.random.default_rng(1)
        means = [values[rng.permutation(60)[: stream.size(60)]].mean() for _ in range(20_000)]
        assert stream.factor * np.var(means) == pytest.approx(values.var(ddof=1) / 60, rel=0.05)


def test_a_resample_of_a_posterior_is_turned_to_the_reference(embed: PosteriorEmbedder) -> None:
    """A turned reference turns each resample alike."""
    turn = np.linalg.qr(np.random.default_rng(4).standard_normal((2, 2)))[0]
    turned = resample(replace(embed, reference=embed.reference @ turn), 2).places
    np.testing.assert_allclose(turned, resample(embed, 2).places @ turn, atol=1e-9)


def test_a_function_embeds_its_samples(sheet: NDArray[np.float64]) -> None:
    """The chosen points are where the function puts them; the others of a linear one nearly so."""
    again = FunctionEmbedder(lambda points: points[:, :1], sheet, n_components=1)
    place = resample(again, 1, strict=True).places[0]
    sample = draw_sample(again, HALVES, 0, 0)
    np.testing.assert_array_equal(place[sample.chosen], sheet[sample.chosen, :1])
    assert np.abs(place - sheet[:, :1]).mean() < 0.05 * sheet[:, 0].std()


def test_few_points_bound_the_random_neighbors() -> None:
    """A half of 26 points has at most 12 neighbors, so that k = 12 is never drawn above."""
    X = np.random.default_rng(3).random((26, 3))
    again = PosteriorEmbedder.of(fit(X, n_neighbors=12, disconnected="bridge"), X)
    assert np.isfinite(resample(again, 8, stream=RANDOM_K).places).all()


@pytest.mark.parametrize(("name", "stream"), [("posterior", LARGER), ("lle", HALVES), ("alle", SEEDS)])
def test_progress_can_cancel(sheet: NDArray[np.float64], name: str, stream: Stream) -> None:
    """Reports name the stream, also within a resample; an exception of the callback ends the computation."""
    reports: list[tuple[int, int, str]] = []

    def stop(done: int, total: int, stage: str) -> None:
        reports.append((done, total, stage))
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        resample(EMBEDDERS[name](sheet), 9, stream=stream, on_progress=stop)
    assert list(dict.fromkeys(reports)) == [(done, 9, stream.name) for done in range(3)]
    assert len(reports) > 3


def test_impossible_resamples_are_refused(embed: PosteriorEmbedder) -> None:
    """Too few points, negative numbers, and a range beyond the stream, each with its value and the remedy."""
    few = np.random.default_rng(0).random((15, 3))
    with pytest.raises(InvalidParameterError, match=r"Half of 15 points .* n_neighbors=8.*below 6"):
        resample(PosteriorEmbedder(few, FitSpec(n_neighbors=8), np.zeros((15, 2))), 1)
    with pytest.raises(InvalidParameterError, match="15 points are too few"):
        resample(FunctionEmbedder(lambda points: points[:, :2], few), 1)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"count": -3}, "count=-3"),
        ({"first": -1}, "first=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"first": 2**32}, "another seed"),
    ]
    for wrong, pattern in refused:
        with pytest.raises(InvalidParameterError, match=pattern):
            resample(embed, **{"count": 1, **wrong})
