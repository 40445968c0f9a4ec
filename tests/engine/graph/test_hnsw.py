"""Approximate neighbors: nearly all true, deterministic, and with a measured recall."""

import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError, MissingLibraryError
from glle_engine.estimator import GLLE
from glle_engine.graph import neighbors as room
from glle_engine.graph.neighbors import (
    EF_SEARCH,
    EXPECTED_RECALL,
    all_pairs_seconds,
    approximate_kneighbors,
    approximate_seconds,
    kneighbors,
    measured_recall,
    search_figures,
    search_notes,
)
from glle_engine.linalg.distances import distances as distances_between
from glle_engine.reliability.resamples import PosteriorEmbedder, resample

faiss: Any = pytest.importorskip("faiss")


def curved_sheet(n: int, d: int = 32, seed: int = 0) -> NDArray[np.float64]:
    """Return points of a curved sheet of four dimensions in d features, with some noise."""
    rng = np.random.default_rng(seed)
    places = rng.uniform(-1, 1, (n, 4)) @ rng.standard_normal((4, d))
    return np.asarray(np.sin(places + rng.uniform(0, 6, d)) + 0.01 * rng.standard_normal((n, d)))


def check(X: NDArray[np.float64], indices: NDArray[np.int32], distances: NDArray[np.float64]) -> None:
    """Check invariants for any recall: distinct other points, nearest first, at the returned distances."""
    n, k = indices.shape
    assert indices.min() >= 0
    assert indices.max() < n
    assert not (indices == np.arange(n)[:, None]).any()
    assert all(len(set(row)) == k for row in indices.tolist())
    assert (np.diff(distances, axis=1) >= 0).all()
    np.testing.assert_array_equal(distances, distances_between(X, X, indices))


def require_found(X: NDArray[np.float64], recall: float = 0.998) -> NDArray[np.int32]:
    """Return ten approximate neighbors of each point, after a check that their recall is at least `recall`."""
    indices, distances = approximate_kneighbors(X, 10)
    check(X, indices, distances)
    assert measured_recall(X, distances)[0] >= recall
    return indices


@pytest.mark.parametrize("d", [3, 32])
def test_recall_is_high_and_measured(d: int) -> None:
    """Nearly all neighbors are found, and the measured recall is true; with a tenth of them removed, it is .9."""
    X = curved_sheet(2000, d)
    indices, distances = approximate_kneighbors(X, 10)
    check(X, indices, distances)
    further = kneighbors(X, 11)[1]
    share = (distances <= further[:, 9:10] * (1 + 1e-12)).mean()
    assert share > 0.998
    assert measured_recall(X, distances)[0] == pytest.approx(share, abs=0.002)
    reports: list[tuple[int, int, str]] = []
    assert measured_recall(X, np.delete(further, 3, axis=1), lambda *report: reports.append(report)) == (0.9, 500)
    assert reports[-1] == (500, 500, "recall")


def test_the_same_with_any_number_of_threads() -> None:
    """Indices and distances are the same bits, and the number of threads is left as it was."""
    X = curved_sheet(1200, 20, seed=3)
    before = faiss.omp_get_max_threads()
    results = set()
    try:
        for threads in (1, 2, 5):
            faiss.omp_set_num_threads(threads)
            indices, distances = approximate_kneighbors(X, 8)
            results.add((indices.tobytes(), distances.tobytes()))
            assert faiss.omp_get_max_threads() == threads
    finally:
        faiss.omp_set_num_threads(before)
    assert len(results) == 1


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(12, 600),
    d=st.sampled_from([1, 3, 20]),
    k=st.integers(1, 11),
    copies=st.integers(1, 40),
)
def test_duplicates_crowd_out_nothing_but_themselves(seed: int, n: int, d: int, k: int, copies: int) -> None:
    """A point has k neighbors however many copies there are; a point with at least k copies has only copies."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[rng.permutation(n)[: n // 2]] = X[rng.integers(0, max(1, n // copies), n // 2)]
    indices, distances = approximate_kneighbors(X, k)
    check(X, indices, distances)
    _, group, size = np.unique(X, axis=0, return_inverse=True, return_counts=True)
    same = size[group.ravel()] - 1
    np.testing.assert_array_equal(np.minimum(same, k), (distances == 0).sum(axis=1))


def test_a_crowd_of_copies_does_not_end_the_walk() -> None:
    """If nearly half of the data are copies of a few points, the other points still find their neighbors."""
    X = curved_sheet(3000)
    X[::5] = X[1]
    X[2::4] = X[np.arange(6) % 6 + 3].repeat(125, axis=0)
    X[0], X[4] = -0.0, 0.0
    assert require_found(X)[0, 0] == 4


@pytest.mark.parametrize(("shift", "factor"), [(-1e6, 1.0), (0.0, 2.0**300), (0.0, 2.0**-300)])
def test_neither_origin_nor_unit_matter(shift: float, factor: float) -> None:
    """Far from the origin, and in units that float32 cannot hold, the recall is as high."""
    require_found(factor * curved_sheet(1500) + shift)


def test_points_that_float32_cannot_tell_apart() -> None:
    """Two clusters a billion times smaller than their distance have all of their true neighbors."""
    noise = np.random.default_rng(0).standard_normal((600, 20)) * 1e-9
    require_found(noise + np.repeat([[0.0], [1.0]], 300, axis=0), 1.0)


@pytest.mark.parametrize(("n", "k"), [(12, 11), (EF_SEARCH, 10), (200, 98)])
def test_few_points_are_searched_exactly(n: int, k: int) -> None:
    """Small data, and k = n - 1, give the result of the exact search."""
    X = curved_sheet(n)
    approximate, expected = approximate_kneighbors(X, k), kneighbors(X, k)
    np.testing.assert_array_equal(approximate[0], expected[0])
    np.testing.assert_array_equal(approximate[1], expected[1])


@pytest.mark.parametrize("fault", ["too few", "astray"])
def test_points_with_faulty_candidates_are_searched_exactly(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    """If the graph search returns too few neighbors, or far ones, for a point, this point is searched exactly."""

    class Faulty(faiss.IndexHNSWFlat):  # type: ignore[misc] # untyped base
        """Finds too few for every third point, or the neighbors of a point of the other half."""

        def search(self, places: Any, taken: int, params: Any = None) -> Any:
            distances, neighbors = super().search(places, taken, params=params)
            if fault == "too few":
                neighbors[::3, -2:] = -1
            else:
                neighbors[::3] = np.roll(neighbors, 600, axis=0)[::3]
            return distances, neighbors

    monkeypatch.setattr(faiss, "IndexHNSWFlat", Faulty)
    X = curved_sheet(1200)
    X[500:503] = X[0]
    X[600:] += 100
    indices, distances = approximate_kneighbors(X, 7)
    check(X, indices, distances)
    np.testing.assert_array_equal(distances[:900:3], kneighbors(X, 7)[1][:900:3])


def test_low_recall_is_reported_with_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A low recall is noted with the remedy, and is rounded down."""
    monkeypatch.setattr(room, "LINKS_PER_POINT", 4)
    X = np.random.default_rng(0).standard_normal((1500, 64))
    _, distances = approximate_kneighbors(X, 10)
    figures = {"n_points": 1500, "n_features": 64, **search_figures("approximate", X, distances)}
    assert figures["neighbor_recall"] < 0.99
    (note,) = search_notes(figures)
    assert note.code == "low-neighbor-recall"
    assert "search='exact'" in note.message
    figures |= {"neighbor_recall": 0.99990, "neighbor_recall_points": 500}
    assert "recall .999 (measured on 500 points)" in search_notes(figures)[0].message


@pytest.mark.parametrize("half", [0, 1])
def test_progress_and_cancellation(half: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progress rises to n by blocks; an exception ends the search and restores the number of threads."""
    monkeypatch.setattr(room, "_BLOCK_POINTS", 500)
    reports: list[tuple[int, int, str]] = []
    approximate_kneighbors(curved_sheet(1200), 10, lambda *report: reports.append(report))
    done = [report[0] for report in reports]
    assert done == sorted(done)
    assert (len(done), done[2], done[-1]) == (6, 600, 1200)
    assert {report[1:] for report in reports} == {(1200, "neighbors")}

    def cancel(done: int, total: int, stage: str) -> None:
        if 2 * done > half * total:
            raise KeyboardInterrupt(stage)

    before = faiss.omp_get_max_threads()
    with pytest.raises(KeyboardInterrupt, match="neighbors"):
        fit(curved_sheet(1200), search="approximate", on_progress=cancel)
    assert faiss.omp_get_max_threads() == before


def test_without_faiss_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """An approximate fit without faiss says how to install faiss; an exact fit does not need it."""
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(MissingLibraryError, match=r"pip install 'glle\[ann\]'") as caught:
        fit(curved_sheet(50), search="approximate")
    assert caught.value.code == "missing-library"
    assert caught.value.details == {"library": "faiss", "extra": "ann"}
    assert fit(curved_sheet(50)).n_points == 50


@pytest.mark.parametrize("options", [{"noise": "tangent"}, {"neighborhoods": "adaptive"}])
def test_a_fit_whose_neighbors_are_all_found_is_the_exact_one(options: Any) -> None:
    """If all neighbors are found, an approximate fit has the arrays of the exact fit, bit for bit."""
    X = manifolds.make("swiss_roll", 1500, seed=2).X
    exact, approximate = fit(X, **options), fit(X, search="approximate", **options)
    for name, array in exact.arrays().items():
        np.testing.assert_array_equal(approximate.arrays()[name], array)
    reports = approximate.diagnostics.figures
    assert reports["neighbor_recall"] == 1.0
    assert reports["neighbor_search"] == f"faiss {faiss.__version__}"
    assert {**reports, **exact.diagnostics.figures} == reports
    (note,) = set(approximate.diagnostics.notes) - set(exact.diagnostics.notes)
    assert note.code == "approximate-neighbors"
    assert note.message == ("Neighbors are approximate: recall 1.0 (measured on 500 points).")


def test_a_large_exact_search_says_that_there_is_another() -> None:
    """A slow exact search has a note with the predicted seconds of both searches, which depend on the shape only."""
    (note,) = search_notes({"n_points": 300_000, "n_features": 64})
    assert note.code == "large-exact-search"
    assert f"{all_pairs_seconds(300_000, 64):,.0f} s" in note.message
    assert f"(pip install 'glle[ann]') takes some {approximate_seconds(300_000, 64):,.0f} s" in note.message
    assert EXPECTED_RECALL in note.message
    assert not search_notes({"n_points": 1_000_000, "n_features": 3})


def test_wherever_neighbors_are_sought(monkeypatch: pytest.MonkeyPatch) -> None:
    """With search="approximate", tangent frames, the connecting k, resamples and the estimator search approximately."""
    sought: list[int] = []

    def search_and_record(X: NDArray[np.float64], k: int, *more: Any) -> Any:
        sought.append(k)
        return approximate_kneighbors(X, k, *more)

    monkeypatch.setattr("glle_engine.graph.neighbors.approximate_kneighbors", search_and_record)
    X = curved_sheet(150, 20)
    resample(PosteriorEmbedder.from_posterior(fit(X, search="approximate", noise="tangent"), X), 2)
    assert sought == [10, 30] * 3
    with pytest.raises(DisconnectedGraphError):
        fit(np.concatenate([X, X + 100]), search="approximate", disconnected="error")
    assert sought[6:8] == [10, 20]
    sought.clear()
    assert GLLE(search="approximate").fit(X).posterior_.spec.search == "approximate"
    assert len(sought) == 1
