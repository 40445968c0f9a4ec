"""A draw of the posterior as a method."""

from dataclasses import fields

import numpy as np
import pytest

from glle_engine import Posterior, fit, manifolds
from glle_engine.base.errors import DisconnectedGraphError, InvalidParameterError, OutOfRangeError
from glle_engine.base.spec import FitSpec
from glle_engine.methods import method

GLLE = method("glle")


@pytest.fixture(scope="module")
def sheet() -> np.ndarray:
    """Return 600 points of a Swiss roll, whose embedding is trusted."""
    return manifolds.make("swiss_roll", 600, seed=2).X


@pytest.fixture(scope="module")
def posterior(sheet: np.ndarray) -> Posterior:
    """Return the default posterior of the sheet."""
    return fit(sheet)


def test_is_a_draw_of_the_posterior(sheet: np.ndarray, posterior: Posterior) -> None:
    """By default draw 0 of seed 0; others by index, seed, scale and source; figures and notes are the fit's."""
    found = GLLE.embed(sheet)
    draw = posterior.draw(0)
    assert np.array_equal(found.Y, draw.embedding)
    assert found.eigenvalues is not None
    assert np.array_equal(found.eigenvalues, draw.eigenvalues)
    assert found.figures == {**posterior.diagnostics.figures, "draw": draw.diagnostics}
    assert found.notes == posterior.diagnostics.notes
    assert {"neighbors", "weights", "embedding", "posterior", "diagnostics", "draw"} <= set(found.seconds)
    other = GLLE.embed(sheet, GLLE.spec(index=7, seed=2**64 - 1, scale=0.5, source="prior"))
    assert np.array_equal(other.Y, posterior.draw(7, seed=2**64 - 1, scale=0.5, source="prior").embedding)


def test_at_scale_zero_is_lle(sheet: np.ndarray) -> None:
    """The mean of the posterior is LLE's."""
    lle = method("lle").embed(sheet).Y
    np.testing.assert_allclose(GLLE.embed(sheet, GLLE.spec(scale=0)).Y, lle, atol=1e-5)


def test_has_all_parameters_of_a_fit_with_their_defaults() -> None:
    """Whatever a posterior can be asked for, the method can; and refuses as it does."""
    assert GLLE.spec().fit_spec() == FitSpec()
    assert {one.name for one in fields(FitSpec)} < set(GLLE.spec.parameters())
    asked = {"variant": "published", "method": "direct", "mean": "derived", "n_neighbors": 7}
    assert GLLE.spec(**asked).fit_spec() == FitSpec.from_dict(asked)
    with pytest.raises(InvalidParameterError, match="variant='constrained' only"):
        GLLE.spec(variant="published", noise="tangent")
    with pytest.raises(InvalidParameterError, match="no prior"):
        GLLE.spec(variant="published", method="direct", source="prior")


def test_takes_data_in_any_unit(sheet: np.ndarray) -> None:
    """A power of two changes no bit; the published equations, which depend on the unit, refuse what overflows."""
    assert np.array_equal(GLLE.embed(np.ldexp(sheet, 800)).Y, GLLE.embed(sheet).Y)
    with pytest.raises(OutOfRangeError, match="divide the data"):
        GLLE.embed(sheet * 1e160, GLLE.spec(variant="published"))


def test_passes_the_notes_of_the_fit_on(sheet: np.ndarray) -> None:
    """A note reports the effect of the published equations."""
    found = GLLE.embed(sheet, GLLE.spec(variant="published"))
    assert found.notes
    assert found.notes == fit(sheet, variant="published").diagnostics.notes


def test_bridges_separate_sheets(sheet: np.ndarray) -> None:
    """Two sheets far apart are bridged, or an error if asked for."""
    two = np.vstack([sheet[:150], sheet[:150] + 1000])
    with pytest.raises(DisconnectedGraphError):
        GLLE.embed(two, GLLE.spec(disconnected="error"))
    assert GLLE.embed(two).figures["n_bridges"] == 1
