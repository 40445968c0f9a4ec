"""Summaries of many draws."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy.linalg import subspace_angles

from glle_engine import fit
from glle_engine.base.errors import InvalidParameterError
from glle_engine.posterior.summary import summarize

if TYPE_CHECKING:
    from glle_engine import Posterior


def test_draws_that_have_little_to_do_with_the_reference_are_noted(posterior: Posterior) -> None:
    """The note comes with a mean disparity above 3/4, and not with draws of a roll."""
    assert posterior.summary(10).notes == ()
    noise = np.random.default_rng(0).standard_normal((300, 20))
    (note,) = fit(noise).summary(10).notes
    assert note.code == "unrelated-draws"
    apart = np.mean([draw.diagnostics["disparity"] for draw in fit(noise).draws(10)])
    assert apart > 0.75
    assert f"{apart:.2f}" in note.message


def test_summary_of_a_posterior(posterior: Posterior) -> None:
    """Covariance, spread, stability, spectrum and agreement are those of the draws, recomputed by hand."""
    summary = posterior.summary(12, seed=3)
    draws = list(posterior.draws(12, seed=3))
    np.testing.assert_allclose(summary.spread**2, np.trace(summary.covariance, axis1=1, axis2=2))
    np.testing.assert_array_equal(summary.eigenvalues, [d.eigenvalues for d in draws])
    angles = subspace_angles(draws[4].embedding, posterior.embedding)
    assert summary.agreement[4] == pytest.approx((np.cos(angles) ** 2).mean(), abs=1e-9)
    following = draws[2].diagnostics["next_eigenvalue"]
    assert summary.relative_gaps[2] == pytest.approx(1 - draws[2].eigenvalues[1] / following)
    assert ((summary.stability > 0) & (summary.stability <= 1)).all()
    assert np.linalg.norm(summary.consensus - posterior.embedding) <= np.linalg.norm(
        summary.consensus * [1, -1] - posterior.embedding
    )


def test_spread_grows_with_the_scale_and_vanishes_at_zero(posterior: Posterior) -> None:
    """At scale 0 all draws are the reference: no spread, full stability and agreement."""
    still, small, large = (posterior.summary(10, scale=scale) for scale in (0.0, 0.01, 1.0))
    assert still.spread.max() < 1e-6
    assert still.stability.min() == pytest.approx(1)
    np.testing.assert_allclose(still.agreement, 1, atol=1e-9)
    np.testing.assert_allclose(still.consensus, posterior.embedding, atol=1e-6)
    assert np.median(small.spread) < np.median(large.spread)
    assert small.stability.mean() > large.stability.mean()


def test_one_draw_has_no_spread(posterior: Posterior) -> None:
    """Fewer than two draws are refused with the remedy."""
    with pytest.raises(InvalidParameterError, match="two draws"):
        posterior.summary(1)


def test_progress_is_reported_and_can_end_it(posterior: Posterior) -> None:
    """Rounds and draws are reported; an exception of the callback cancels the summary."""
    reports: list[tuple[int, int, str]] = []
    draws = list(posterior.draws(5))
    summarize(draws, posterior.embedding, on_progress=lambda *args: reports.append(args))
    assert reports[0][2] == "consensus"
    assert [entry for entry in reports if entry[2] == "stability"] == [(i, 5, "stability") for i in range(1, 6)]

    class Stop(Exception):  # noqa: N818 # a listener's own
        pass

    def stop(done: int, _: int, stage: str) -> None:
        if (done, stage) == (2, "stability"):
            raise Stop

    with pytest.raises(Stop):
        summarize(draws, posterior.embedding, on_progress=stop)
