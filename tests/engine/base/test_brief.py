"""Short representations of the engine's objects."""

from typing import Any

from glle_engine import FitSpec, fit, manifolds
from glle_engine.methods import METHODS
from glle_engine.reliability.calibration import calibrate

MOST = 400  # characters: eleven arrays of a summary
SHEET = manifolds.make("s_curve", 120, seed=0)


def public_objects() -> list[Any]:
    """Return one object of each public kind."""
    X = SHEET.X
    posterior, landmarks = fit(X), fit(X, landmarks=40)
    return [
        SHEET,
        posterior,
        landmarks,
        posterior.diagnostics,
        posterior.draw(0),
        posterior.summary(4),
        posterior.extend(X, X[:3]),
        calibrate(posterior, X, n_resamples=4, n_draws=4),
        METHODS["pca"],
        METHODS["pca"].embed(X),
    ]


def test_a_representation_is_one_line_without_values_of_arrays() -> None:
    """It names the class; that of a posterior has its size and parameters."""
    for value in public_objects():
        text = repr(value)
        assert text.startswith(f"{type(value).__name__}(")
        assert "\n" not in text
        assert "array(" not in text
        assert len(text) <= MOST, text
    expected = "Posterior(n=120, method='em', n_neighbors=12, n_components=2, landmarks=40)"
    assert repr(fit(SHEET.X, FitSpec(n_neighbors=12, landmarks=40))) == expected
