"""Each problem of the data or of the solution has a note, on data that have the problem."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.datasets import load_wine

from glle_engine import FitSpec, Posterior, fit, load, manifolds
from glle_engine.base import errors
from glle_engine.base.errors import DisconnectedGraphError, OutOfRangeError, TooFewPointsError
from glle_engine.estimator import GLLE
from glle_engine.graph import neighbors
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.posterior import findings, npz
from glle_engine.reliability.resamples import PosteriorEmbedder, resample
from tests.engine.conftest import bent_sheet


def notes(posterior: Posterior) -> set[str]:
    """Return the codes of the notes of a fit."""
    return {note.code for note in posterior.diagnostics.notes}


def ring(n: int) -> NDArray[np.float64]:
    """Return n points at equal distances on a circle, whose eigenvalues come in pairs."""
    t = 2 * np.pi * np.arange(n) / n
    return np.stack([np.cos(t), np.sin(t)], axis=1)


SHEET, LINE = bent_sheet(400), np.arange(200.0)[:, None] * [1.0, 2.0, 3.0]
WHITE = np.random.default_rng(0).standard_normal((80, 2))
WHITE /= WHITE.std(axis=0)


@pytest.mark.parametrize(
    ("X", "options", "code", "figures"),
    [
        (manifolds.make("s_curve", 1000, seed=0).X, {}, None, {}),
        (np.concatenate([SHEET, SHEET[:20]]), {}, "duplicates", {"points_with_duplicates": 40}),
        (np.concatenate([SHEET, SHEET[:7] + 1e-9]), {}, "near-duplicates", {"points_with_near_duplicates": 14}),
        (WHITE * [1, 29.9], {}, None, {}),
        (WHITE * [1, 30.1], {}, "unequal-feature-scales", {}),
        (LINE, {"n_components": 2, "n_neighbors": 6}, "flat-neighborhoods", {"flat_neighborhoods": 200}),
        (ring(200), {"n_components": 3, "n_neighbors": 4}, "small-gap", {}),
        (SHEET, {"n_components": 5, "n_neighbors": 5}, "more-components-than-neighbors", {}),
        (SHEET, {"variant": "published", "max_iter": 2}, "not-converged", {"iterations": 2}),
    ],
)
def test_trouble_is_noted(X: NDArray[np.float64], options: Any, code: str | None, figures: dict[str, int]) -> None:
    """Each problem has its note and its figure, all points are embedded, and good data have no note."""
    fitted = fit(X, disconnected="bridge", **options)
    assert code in notes(fitted) if code else not notes(fitted) - {"bridged"}
    assert {name: fitted.diagnostics.figures[name] for name in figures} == figures
    assert np.isfinite(fitted.draw(0).embedding).all()


def test_a_slow_search_is_noted_unless_neighbors_are_given(wide: NDArray[np.float64], monkeypatch: Any) -> None:
    """An exact search that takes longer than an approximate one has a note; a fit to given neighbors searches none."""
    monkeypatch.setattr(neighbors, "all_pairs_seconds", lambda _n, _d: 1e6)
    searched = fit(wide, n_neighbors=8)
    assert "large-exact-search" in notes(searched)
    assert "large-exact-search" not in notes(fit(wide, n_neighbors=8, neighbors=searched.neighbors))


@pytest.mark.parametrize("landmarks", ["all", 120])
def test_bridges_are_the_first_note_and_a_figure(landmarks: Any) -> None:
    """A fit of separate clusters has a note on bridges, before all other notes."""
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


def test_categories_have_as_many_dimensions_as_levels() -> None:
    """With the metric hamming, more components than features have no note."""
    X = np.round(4 * manifolds.make("s_curve", 100, seed=0).X)
    assert "more-components-than-features" not in notes(fit(X, n_components=4, metric="hamming"))


def test_features_of_different_units() -> None:
    """A note names the feature that holds nearly all variance, and the remedy."""
    fitted = fit(load_wine().data, disconnected="bridge")
    assert fitted.diagnostics.figures["feature_scale_ratio"] == pytest.approx(2530, rel=1e-3)
    assert fitted.diagnostics.figures["features_of_most_variance"] == 1
    (message,) = [note.message for note in fitted.diagnostics.notes if note.code == "unequal-feature-scales"]
    assert "a factor of 2,530; 1 of" in message
    assert "standardize='zscore'" in message


def test_k_of_n_or_more(sheet: NDArray[np.float64]) -> None:
    """n_neighbors of n - 1 works, and n is refused with the maximum (scikit-learn 29715)."""
    assert fit(sheet[:40], n_neighbors=39).neighbors.shape == (40, 39)
    with pytest.raises(TooFewPointsError, match="at most 39"):
        fit(sheet[:40], n_neighbors=40)


@pytest.mark.parametrize("unit", [1e160, 1e-170])
def test_squares_that_leave_the_floating_point_range(sheet: NDArray[np.float64], unit: float) -> None:
    """The published variant refuses data whose squares overflow or vanish."""
    with pytest.raises(OutOfRangeError, match="divide the data"):
        fit(sheet * unit, variant="published")


FEW = np.random.default_rng(3).random((13, 6))


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).integers(0, 3, (150, 4)),  # many ties and duplicates
        np.stack(np.meshgrid(np.arange(12.0), np.arange(12.0)), axis=-1).reshape(-1, 2),  # a regular grid
        np.random.default_rng(1).standard_normal((150, 3)) * 1e-130,  # tiny
        np.random.default_rng(1).standard_normal((150, 3)) * 1e149,  # huge
        np.random.default_rng(2).standard_cauchy((150, 3)),  # heavy tails
        np.repeat(bent_sheet(120), 3, axis=0),  # Smile 174 and umap 90: duplicates were singular, or NA
        bent_sheet(150) + 50.0 * (np.arange(150) % 2)[:, None],  # Tapkee 28: two parts gave nan for any k
        np.concatenate([FEW, FEW[:6], [[9.0, 9.0, 9.0, 9.0, 9.0, 0.0]]]),  # Tapkee 53: one point far from all
    ],
)
def test_awkward_data_are_embedded_or_refused_never_dropped(X: Any) -> None:
    """Every point has a finite place, in the reference and in a draw, with bridges or with the k of the remedy.

    ManifoldLearning.jl 32, Smile 587 and 695: only the points of the largest component were embedded.
    """
    k, fits = 8, [fit(X, n_neighbors=8, disconnected="bridge")]
    while len(fits) < 2:
        try:
            fits.append(fit(X, n_neighbors=k, disconnected="error"))
        except DisconnectedGraphError as error:
            k = error.details["smallest_connecting_k"]
    for fitted in fits:
        assert fitted.embedding.shape == (len(X), 2)
        assert np.isfinite(fitted.embedding).all()
        assert np.isfinite(fitted.draw(0).embedding).all()


NOISY = bent_sheet(400) + 0.6 * np.random.default_rng(0).standard_normal((400, 3))


def draws_trust(X: NDArray[np.float64], posterior: Posterior) -> float:
    """Return the mean trustworthiness of other draws, at other points, than the fit has used for its choice."""
    points = np.random.default_rng(5).permutation(len(X))[:300]
    return float(np.mean([trustworthiness(X, draw.embedding, points=points) for draw in posterior.draws(8, seed=5)]))


def test_the_noise_model_with_the_better_draws_is_chosen() -> None:
    """For noisy data, noise="auto" chooses the tangent model, and has the same bits as a fit with it."""
    chosen, again = fit(NOISY, noise="auto"), fit(NOISY, noise="auto")
    isotropic, tangent = fit(NOISY, noise="isotropic"), fit(NOISY, noise="tangent")
    trusted = [findings.trust_of_draws(NOISY, posterior) for posterior in (isotropic, tangent)]
    figures = chosen.diagnostics.figures["noise"]
    assert figures == {"model": "tangent", "isotropic": trusted[0], "tangent": trusted[1]}
    assert chosen.spec == tangent.spec
    for name, array in tangent.arrays().items():
        assert chosen.arrays()[name].tobytes() == array.tobytes()
    assert draws_trust(NOISY, chosen) > draws_trust(NOISY, isotropic) + 0.01
    (note,) = set(chosen.diagnostics.notes) - set(tangent.diagnostics.notes)
    assert note.code == "noise-chosen"
    assert f"{trusted[0]:.3f} isotropic, {trusted[1]:.3f} tangent" in note.message
    assert again.head() == chosen.head()


@pytest.mark.parametrize(
    ("kept", "noise"), [((0.9, 0.8), "isotropic"), ((0.8, 0.9), "tangent"), ((0.9, 0.9), "isotropic")]
)
def test_either_noise_model_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch, kept: tuple[float, float], noise: str
) -> None:
    """The noise model with the higher trustworthiness is chosen, and the default if both are equal."""
    X = NOISY[:200]
    known = dict(zip(("isotropic", "tangent"), kept, strict=True))
    monkeypatch.setattr(findings, "trust_of_draws", lambda _, posterior: known[posterior.spec.noise])
    posterior = fit(X, noise="auto", disconnected="bridge")
    assert posterior.spec.noise == noise


def test_landmarks_and_the_estimator_have_the_noise_model_that_was_chosen() -> None:
    """The posterior names the chosen noise model, while the estimator keeps its parameter "auto"."""
    some = fit(NOISY[:300], noise="auto", landmarks=150)
    model = GLLE(noise="auto").fit(NOISY[:300])
    assert model.get_params()["noise"] == "auto"
    for posterior in (some, model.posterior_):
        assert posterior.spec.noise == posterior.diagnostics.figures["noise"]["model"]


def test_only_a_fit_resolves_the_choice(tmp_path: Path) -> None:
    """A specification with "auto" cannot be resampled, and a file with it cannot be loaded."""
    X = NOISY[:100]
    posterior = fit(X, disconnected="bridge")
    unresolved = replace(PosteriorEmbedder.from_posterior(posterior, X), spec=FitSpec(noise="auto", n_neighbors=10))
    with pytest.raises(errors.InvalidParameterError, match="specification of a fitted posterior"):
        resample(unresolved, 1, strict=True)
    head = posterior.head()
    for name in ("noise", "landmarks"):
        npz.save(tmp_path / "unresolved.npz", {**head, "spec": {**head["spec"], name: "auto"}}, posterior.arrays())
        with pytest.raises(errors.StorageError, match=f"parameter {name} is 'auto'"):
            load(tmp_path / "unresolved.npz")


def test_a_draw_without_solution_keeps_no_neighbors(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a draw fails, the trustworthiness of its noise model is 0, and the fit goes on."""

    def failing(*_: Any, **__: Any) -> None:
        raise errors.ConvergenceError("No solver found the embedding.", remedy="Raise reg.")

    X = NOISY[:200]
    posterior = fit(X, disconnected="bridge")
    Y = posterior.embedding
    assert findings.trust_of(X, Y) == pytest.approx(trustworthiness(X, Y), rel=1e-12)
    monkeypatch.setattr(type(posterior), "draws", failing)
    assert findings.trust_of_draws(X, posterior) == 0.0
