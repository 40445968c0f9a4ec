"""Other laws of the draws in the study of honesty."""

from __future__ import annotations

import numpy as np
import pytest

from docs.figures.honesty import laws, measures
from glle_engine import Posterior, fit, manifolds
from glle_engine.posterior.summary import generalized_procrustes

N = 120
X = manifolds.make("s_curve", N, noise=0.02, seed=1).X


@pytest.fixture(scope="module")
def posterior() -> Posterior:
    """Return a posterior of the default law."""
    return fit(X, n_neighbors=12)


@pytest.fixture(scope="module")
def tangent() -> Posterior:
    """Return a posterior of the tangent law."""
    return fit(X, n_neighbors=12, noise="tangent")


def test_a_local_scale_repairs_a_wrong_one() -> None:
    """Draws that spread twice too much on one side, and half on the other, have the spread of half-samples again."""
    rng = np.random.default_rng(0)
    places = manifolds.make("s_curve", 400, seed=0).coordinates
    places = (places - places.mean(axis=0)) / places.std(axis=0)
    halves = places + 0.02 * rng.standard_normal((200, 400, 2))
    factor = np.where(places[:, :1] > 0, 2.0, 0.5)
    drawn = places + 0.02 * factor * rng.standard_normal((200, 400, 2))
    inside = np.abs(places[:, 0]) > 0.7  # away from the step
    for stack, within in ((drawn, 0.9), (laws.local_scale(drawn, halves, places), 0.15)):
        ratio = measures.spread(measures.covariance(generalized_procrustes(stack)[1])) / (0.02 * np.sqrt(2))
        assert np.median(np.abs(ratio[inside] - 1)) < within
    assert np.median(np.abs(measures.spread(measures.covariance(drawn)) / (0.02 * np.sqrt(2)) - 1)) > 0.4


def test_every_law_returns_the_draws_that_were_asked_for(
    posterior: Posterior, tangent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Aligned to the reference, finite, different from each other, and equal when repeated."""
    monkeypatch.setattr(laws, "PARTS", 3)
    for law, of in (
        (laws.random_neighbors, posterior),
        (laws.random_frames, tangent),
        (laws.adaptive, posterior),
    ):
        drawn = law(of, X, 0.5, 6)
        assert drawn.shape == (6, N, 2)
        assert np.isfinite(drawn).all()
        assert len(np.unique(drawn[:, 0, 0])) == 6
        np.testing.assert_array_equal(drawn, law(of, X, 0.5, 6))


def test_at_scale_zero_random_parts_still_differ(
    posterior: Posterior, tangent: Posterior, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random n_neighbors and frames spread by themselves; adaptive neighborhoods do not."""
    monkeypatch.setattr(laws, "PARTS", 3)
    assert laws.random_neighbors(posterior, X, 0.0, 3).std(axis=0).max() > 1e-6
    assert laws.random_frames(tangent, X, 0.0, 3).std(axis=0).max() > 1e-6
    assert laws.adaptive(posterior, X, 0.0, 3).std(axis=0).max() < 1e-9


def test_the_table_compares_with_the_first_of_each_group() -> None:
    """Means over settings, wins on those held out, and the ceiling."""
    rows = {
        setting.name: [({"draws, calibrated": (0.5, 1.0), "a law": (0.6, 2.0), "ensemble": (0.7, 1.0)}, 0.9)]
        for setting in laws.smaller((*laws.KNOWN, *laws.HELD_OUT))
    }
    lines = laws.table(rows).splitlines()
    held_out = len(laws.smaller(laws.HELD_OUT))
    assert held_out == len(laws.HELD_OUT)
    assert lines[2] == "| draws, calibrated | .50 | .50 |  | 1.00 |"
    assert lines[3] == f"| a law | .60 | .60 | {held_out} of {held_out} | 2.00 |"
    assert lines[4] == "| ensemble | .70 | .70 |  | 1.00 |"
    assert lines[5] == "| ceiling | .90 | .90 | | |"


@pytest.mark.parametrize("held_out", [False, True])
def test_settings_keep_the_mark_of_the_study(held_out: bool) -> None:  # noqa: FBT001 # a parameter
    """Those that were held out when the ensemble was chosen are held out here, with fewer points."""
    for setting in laws.smaller(laws.HELD_OUT if held_out else laws.KNOWN):
        assert setting.held_out == held_out
        assert len(setting.sample(0)) == laws.POINTS
