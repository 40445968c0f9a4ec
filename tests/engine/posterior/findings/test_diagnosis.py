"""Trouble is named: each on data that shows it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_wine

from glle_engine import fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError, OutOfRangeError, TooFewPointsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from glle_engine import Posterior
    from glle_engine.base.spec import Metric


def notes(posterior: Posterior) -> set[str]:
    """Return the codes of the notes of a fit."""
    return {note.code for note in posterior.diagnostics.notes}


def test_clean_data_have_no_notes() -> None:
    """Nothing is said where nothing is remarkable."""
    assert notes(fit(manifolds.make("s_curve", 1000, seed=0).X)) == set()


def test_exact_duplicates(sheet: NDArray[np.float64]) -> None:
    """Pairs of equal points are counted and every point is embedded."""
    fitted = fit(np.concatenate([sheet, sheet[:20]]))
    assert fitted.embedding.shape == (420, 2)
    assert np.isfinite(fitted.draw(0).embedding).all()
    assert fitted.diagnostics.figures["points_with_duplicates"] == 40
    assert "duplicates" in notes(fitted)


def test_near_duplicates(sheet: NDArray[np.float64]) -> None:
    """Points a hair's breadth apart are counted."""
    fitted = fit(np.concatenate([sheet, sheet[:7] + 1e-9]))
    assert fitted.diagnostics.figures["points_with_near_duplicates"] == 14
    assert "near-duplicates" in notes(fitted)
    assert np.isfinite(fitted.draw(0).embedding).all()


def test_many_copies_of_one_point_disconnect_and_the_remedy_says_so() -> None:
    """A clump of more than k equal points is a separate component."""
    X = np.concatenate([manifolds.make("s_curve", 200, seed=0).X, np.full((12, 3), 40.0)])
    with pytest.raises(DisconnectedGraphError, match="smallest n_neighbors"):
        fit(X, n_neighbors=6, disconnected="error")


@pytest.mark.parametrize("landmarks", [None, 120])
def test_bridges_are_the_first_note_and_a_figure(landmarks: int | None) -> None:
    """Separate clusters are fitted, with other findings after the note."""
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.standard_normal((100, 3)) + 20 * i for i in range(3)])
    X = np.column_stack([X, np.ones(len(X))])  # a constant feature, for another note
    posterior = fit(X, landmarks=landmarks)
    first, *further = posterior.diagnostics.notes
    assert first.code == "bridged"
    assert "falls into 3 parts; 2 edges" in first.message
    assert "disconnected='error'" in first.message
    assert "constant-features" in {note.code for note in further}
    assert posterior.diagnostics.figures["n_bridges"] == 2


@pytest.mark.parametrize(
    ("p", "metric", "is_noted"), [(3, "euclidean", False), (4, "euclidean", True), (4, "hamming", False)]
)
def test_more_components_than_features(p: int, metric: Metric, is_noted: bool) -> None:  # noqa: FBT001
    """More coordinates than features are named; categories have as many dimensions as levels."""
    X = manifolds.make("s_curve", 100, seed=0).X
    X = np.round(4 * X) if metric == "hamming" else X
    fitted = fit(X, n_components=p, metric=metric)
    assert ("more-components-than-features" in notes(fitted)) == is_noted


def test_feature_scales_that_differ_by_a_million(sheet: NDArray[np.float64]) -> None:
    """The ratio is named, with the remedy."""
    fitted = fit(sheet * [1, 1, 1e-7])
    assert fitted.diagnostics.figures["feature_scale_ratio"] > 1e6
    assert "unequal-feature-scales" in notes(fitted)


@pytest.mark.parametrize(("load", "ratio"), [(load_wine, 2530), (load_breast_cancer, 215171)])
def test_features_of_different_units(load: Callable[..., tuple[NDArray[np.float64], object]], ratio: float) -> None:
    """Chemical and clinical measurements are noted with the remedy: one or two features hold nearly all variance."""
    fitted = fit(load(return_X_y=True)[0], disconnected="bridge")
    figures = fitted.diagnostics.figures
    assert figures["feature_scale_ratio"] == pytest.approx(ratio, rel=1e-3)
    assert figures["features_of_most_variance"] <= 2
    (message,) = [note.message for note in fitted.diagnostics.notes if note.code == "unequal-feature-scales"]
    assert f"a factor of {ratio:,.0f}; {figures['features_of_most_variance']} of" in message
    assert "standardize='zscore'" in message


@pytest.mark.parametrize(("ratio", "is_noted"), [(29.9, False), (30.1, True)])
def test_scales_are_noted_from_a_ratio_of_thirty(ratio: float, is_noted: bool) -> None:  # noqa: FBT001 # a parameter
    """Below it nothing is remarkable."""
    X = np.random.default_rng(0).standard_normal((80, 2))
    X /= X.std(axis=0)
    assert ("unequal-feature-scales" in notes(fit(X * [1, ratio], disconnected="bridge"))) is is_noted


def test_a_disconnected_graph_names_components_sizes_and_the_k_that_connects() -> None:
    """Three clumps are an error with details, bridged with a note, or fitted separately."""
    rng = np.random.default_rng(1)
    X = np.concatenate([rng.standard_normal((size, 3)) + 40 * place for place, size in enumerate((50, 20, 35))])
    with pytest.raises(DisconnectedGraphError) as caught:
        fit(X, n_neighbors=6, disconnected="error")
    details = caught.value.details
    assert (details["components"], details["sizes"]) == (3, [50, 35, 20])
    assert fit(X, n_neighbors=details["smallest_connecting_k"]).n_points == 105
    assert "bridged" in notes(fit(X, n_neighbors=6))


def test_more_than_one_closed_class(two_clumps: NDArray[np.float64]) -> None:
    """In one piece when directions are forgotten, but no way leads from one clump to the other: said, and embedded."""
    fitted = fit(two_clumps, n_neighbors=8, disconnected="error")
    assert len(fitted.diagnostics.figures["closed_classes"]) == 2
    assert "closed-classes" in notes(fitted)
    assert fitted.eigenvalues[0] < 1e-12 < fitted.eigenvalues[1]
    for embedding in (fitted.embedding, fitted.draw(0).embedding):
        assert np.isfinite(embedding).all()
        assert np.ptp(embedding[:40, 0]) < 1e-4, "the first coordinate only separates the clumps"
        assert abs(embedding[0, 0] - embedding[-1, 0]) > 1
    whole = fit(two_clumps, n_neighbors=8)
    assert len(whole.diagnostics.figures["closed_classes"]) == 1


@pytest.fixture
def two_clumps() -> NDArray[np.float64]:
    """Two dense clumps with three isolated points between them."""
    rng = np.random.default_rng(0)
    between = np.stack([np.linspace(14, 16, 3), np.zeros(3)], axis=1)
    clumps = [rng.standard_normal((40, 2)), rng.standard_normal((40, 2)) + np.array([30, 0])]
    return np.concatenate([clumps[0], between, clumps[1]])


def test_k_of_n_or_more(sheet: NDArray[np.float64]) -> None:
    """The maximum of k is n - 1; larger values are errors that name it."""
    X = sheet[:40]
    assert fit(X, n_neighbors=39).neighbors.shape == (40, 39)
    for k in (40, 400):
        with pytest.raises(TooFewPointsError, match="at most 39"):
            fit(X, n_neighbors=k)


def test_rank_deficient_neighbourhoods() -> None:
    """A plane in twenty features has neighborhoods of rank two with k = 10: embedded as the plane by itself."""
    plane = np.random.default_rng(2).random((300, 2))
    turn = np.linalg.qr(np.random.default_rng(3).standard_normal((20, 20)))[0][:2]
    alone, turned = fit(plane, variance="dirichlet"), fit(plane @ turn, variance="dirichlet")
    np.testing.assert_allclose(turned.mean, alone.mean, atol=1e-9)
    np.testing.assert_allclose(turned.draw(0).embedding, alone.draw(0).embedding, atol=1e-6)
    assert notes(turned) == notes(alone)


def test_constant_features(sheet: NDArray[np.float64]) -> None:
    """They are named and change nothing, be they 0 or large."""
    fitted = fit(np.insert(sheet, [1, 3], [0.0, 1e3], axis=1))
    assert fitted.diagnostics.figures["constant_features"] == [1, 4]
    assert "constant-features" in notes(fitted)
    np.testing.assert_allclose(fitted.draw(0).embedding, fit(sheet).draw(0).embedding, atol=1e-5)


@pytest.mark.parametrize("p", [2, 3])
def test_collinear_neighbourhoods(p: int) -> None:
    """Points on a line span one dimension; the fit has two or three."""
    t = np.arange(200.0)[:, None]
    fitted = fit(t * [1.0, 2.0, 3.0], n_components=p, n_neighbors=6)
    assert fitted.diagnostics.figures["flat_neighborhoods"] == 200
    assert "flat-neighborhoods" in notes(fitted)


def test_a_small_gap() -> None:
    """A ring's eigenvalues come in pairs: three components cut one pair in two."""
    t = 2 * np.pi * np.arange(200) / 200
    fitted = fit(np.stack([np.cos(t), np.sin(t)], axis=1), n_neighbors=4, n_components=3)
    assert fitted.diagnostics.figures["relative_gap"] < 1e-3
    assert "small-gap" in notes(fitted)


def test_more_components_than_neighbours(sheet: NDArray[np.float64]) -> None:
    """P >= k cannot be spanned locally."""
    assert "more-components-than-neighbors" in notes(fit(sheet, n_neighbors=5, n_components=5))


def test_no_convergence_of_the_published_em(sheet: NDArray[np.float64]) -> None:
    """Too few iterations are said, with both settings."""
    fitted = fit(sheet, variant="published", max_iter=2)
    message = next(note.message for note in fitted.diagnostics.notes if note.code == "not-converged")
    assert "max_iter=2" in message
    assert "tol=1e-06" in message


@pytest.mark.parametrize("unit", [1e160, 1e300, 1e-170])
def test_squares_that_leave_the_floating_point_range(sheet: NDArray[np.float64], unit: float) -> None:
    """The published equations depend on the unit, so that data whose squares overflow are refused."""
    with pytest.raises(OutOfRangeError, match="divide the data"):
        fit(sheet * unit, variant="published")
    with pytest.raises(OutOfRangeError, match="unit of the training data"):
        fit(sheet).transform(sheet, sheet * 1e200)


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).integers(0, 3, (150, 4)),  # many ties and duplicates
        np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2),  # a regular grid
        np.random.default_rng(1).standard_normal((150, 3)) * 1e-130,  # tiny
        np.random.default_rng(1).standard_normal((150, 3)) * 1e149,  # huge
        np.random.default_rng(2).standard_cauchy((150, 3)),  # heavy tails
    ],
)
def test_awkward_data_are_embedded_or_refused_never_dropped(X: Any) -> None:
    """Either every point has a finite place, in the reference and in a draw, or the error names a remedy."""
    k = 8
    while True:
        try:
            fitted = fit(X, n_neighbors=k)
            break
        except DisconnectedGraphError as error:
            k = error.details["smallest_connecting_k"]  # the remedy works
    assert fitted.embedding.shape == (len(X), 2)
    assert np.isfinite(fitted.embedding).all()
    assert np.isfinite(fitted.draw(0).embedding).all()
