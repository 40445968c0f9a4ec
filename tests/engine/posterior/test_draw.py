"""Draws, their keys, their summaries, and files of posteriors with changed arrays."""

import json
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import subspace_angles

from glle_engine import DrawKey, Posterior, fit, load, manifolds
from glle_engine.base.errors import ConvergenceError, InvalidParameterError, StorageError
from glle_engine.base.spec import Source
from glle_engine.eigen.lu import few_points
from glle_engine.linalg.procrustes import disparity, procrustes_rotation
from glle_engine.metrics.ranks import trustworthiness
from glle_engine.posterior import npz
from glle_engine.posterior.summary import summarize


@pytest.mark.parametrize("other", [{"index": 1}, {"seed": 1}, {"scale": 2.0}, {"source": "prior"}])
def test_what_changes_a_draw(posterior: Posterior, other: dict[str, Any]) -> None:
    """Another index, seed, scale or source gives another draw."""
    assert not np.array_equal(posterior.draw(0).embedding, posterior.draw(**{"index": 0, **other}).embedding)


def test_alignment(posterior: Posterior) -> None:
    """An aligned draw is nearest to the reference; an unaligned one has the same span and follows the sign rule."""
    turned, raw = posterior.draw(3), posterior.draw(3, align="none")
    reference = posterior.embedding
    assert np.linalg.norm(turned.embedding - reference) <= np.linalg.norm(raw.embedding - reference) + 1e-9
    assert disparity(turned.embedding, reference) == pytest.approx(disparity(raw.embedding, reference), abs=1e-9)
    largest = np.abs(raw.embedding).argmax(axis=0)
    assert (raw.embedding[largest, [0, 1]] > 0).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"index": -1}, "index"),
        ({"index": 2**64}, "2^64"),
        *(({"index": value}, "integer") for value in (np.True_, np.float64(1), np.arange(2))),
        ({"seed": 1.5}, "seed"),
        ({"scale": float("nan")}, "scale"),
        ({"scale": "auto"}, "calibrate(posterior, X).scale"),
        ({"source": "both"}, "posterior, prior"),
        ({"align": "affine"}, "procrustes, none"),
    ],
)
def test_impossible_draws_name_the_remedy(posterior: Posterior, options: dict[str, Any], word: str) -> None:
    """An argument outside its domain raises an error that names it or the possible values."""
    with pytest.raises(InvalidParameterError) as caught:
        posterior.draw(**{"index": 0, **options})
    assert word in str(caught.value)


def test_numpy_numbers_ask_for_the_same_draws(posterior: Posterior) -> None:
    """Numpy numbers as index, seed or scale give the same draws as Python numbers."""
    one, two, seed, scale = np.int64(1), np.uint8(2), np.int8(3), np.float32(0.5)
    key: Any = DrawKey(two, seed, scale)  # type: ignore[arg-type] # as clients have them
    assert key == DrawKey(2, 3, 0.5)
    assert [type(value) for value in vars(key).values()] == [int, int, float]
    expected = posterior.draw(2, seed=3, scale=0.5).embedding.tobytes()
    several = [*posterior.draws(two, first=one, seed=seed, scale=scale)]  # type: ignore[arg-type]
    assert json.dumps([several[1].index, several[1].seed, several[1].scale]) == "[2, 3, 0.5]"
    assert several[1].embedding.tobytes() == expected
    summary = posterior.summary(two, first=one)  # type: ignore[arg-type]
    np.testing.assert_array_equal(summary.consensus, posterior.summary(2, first=1).consensus)
    np.testing.assert_array_equal(posterior.weights(one), posterior.weights(1))  # type: ignore[arg-type]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["embedding", "eigenvalues", "mean", "covariance_factor", "prior_factor"]),
    part=st.sampled_from(["all", "row", "entry"]),
    index=st.integers(0, 10**6),
    value=st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-30, 1e30, 1e110, 1e140, -1e144, 1e154, 1e308, np.inf]),
    change=st.sampled_from(["set", "scaled"]),
)
def test_changed_arrays_are_refused_or_drawn(
    tmp_path: Path, posterior: Posterior, name: str, part: str, index: int, value: float, change: str
) -> None:
    """A file with a changed array is refused, or its draws are finite, or a draw raises `ConvergenceError`."""
    arrays = {key: np.array(array) for key, array in posterior.arrays().items()}
    target = arrays[name]
    chosen = target.reshape(-1) if part != "row" else target
    where = slice(None) if part == "all" else index % len(chosen)
    with np.errstate(all="ignore"):
        chosen[where] = value if change == "set" else chosen[where] * value
    npz.save(tmp_path / "changed.npz", posterior.head(), arrays)
    try:
        loaded = load(tmp_path / "changed.npz")
    except StorageError:
        return
    for source in get_args(Source):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # overflow on the way to a refusal
            try:
                draw = loaded.draw(3, source=source)
            except ConvergenceError:
                continue
        assert np.isfinite(draw.embedding).all()


def test_few_points_of_enormous_weights_have_no_embedding() -> None:
    """The dense solver raises `ConvergenceError` with a remedy if squares of the weights overflow."""
    neighbors = np.sort((np.arange(20)[:, None] + np.arange(1, 4)) % 20, axis=1).astype(np.int32)
    for constrained in (0, 1):
        with pytest.raises(ConvergenceError, match="lower the scale"), np.errstate(over="ignore", invalid="ignore"):
            few_points(neighbors, np.full((20, 3), 1e200), 2, constrained)


def test_posteriors_are_frozen(posterior: Posterior) -> None:
    """Neither the fields nor the arrays of a posterior can be changed."""
    with pytest.raises(AttributeError):
        posterior.version = "2"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        posterior.embedding[0, 0] = 1


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_rotation_is_orthogonal_for_products_of_any_rank(rank: int) -> None:
    """The Procrustes rotation is orthogonal and optimal, even if Y^T Y_0 is singular."""
    rng = np.random.default_rng(rank)
    Y, reference = rng.standard_normal((40, 3)), rng.standard_normal((40, 3))
    Y[:, rank:] = 0
    turn = procrustes_rotation(Y, reference)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-14)
    nuclear = np.linalg.svd(Y.T @ reference, compute_uv=False).sum()
    assert np.trace(turn.T @ Y.T @ reference) == pytest.approx(nuclear, abs=1e-12)


def test_draws_that_have_little_to_do_with_the_reference_are_noted(posterior: Posterior) -> None:
    """A summary has a warning if the mean disparity of its draws to the reference is above 3/4."""
    assert posterior.summary(10).notes == ()
    noise = np.random.default_rng(0).standard_normal((300, 20))
    unrelated = fit(noise)
    (note,) = unrelated.summary(10).notes
    assert note.code == "unrelated-draws"
    apart = np.mean([draw.diagnostics["disparity"] for draw in unrelated.draws(10)])
    assert apart > 0.75
    assert f"{apart:.2f}" in note.message


def test_summary_of_a_posterior(posterior: Posterior) -> None:
    """The fields of a summary equal what is computed from its draws here."""
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
    """At scale 0, all draws are the reference; a larger scale gives more spread and less stability."""
    still, small, large = (posterior.summary(10, scale=scale) for scale in (0.0, 0.01, 1.0))
    assert still.spread.max() < 1e-6
    assert still.stability.min() == pytest.approx(1)
    np.testing.assert_allclose(still.agreement, 1, atol=1e-9)
    np.testing.assert_allclose(still.consensus, posterior.embedding, atol=1e-6)
    assert np.median(small.spread) < np.median(large.spread)
    assert small.stability.mean() > large.stability.mean()


def test_progress_is_reported(posterior: Posterior) -> None:
    """A summary reports rounds and draws, and refuses fewer than two draws."""
    reports: list[tuple[int, int, str]] = []
    summarize(list(posterior.draws(5)), posterior.embedding, on_progress=lambda *args: reports.append(args))
    assert reports[0][2] == "consensus"
    assert [entry for entry in reports if entry[2] == "stability"] == [(i, 5, "stability") for i in range(1, 6)]
    with pytest.raises(InvalidParameterError, match="two draws"):
        posterior.summary(1)


def judge(X: NDArray[np.float64], seed: int, draws: int, probes: int, **options: Any) -> tuple[float, float]:
    """Return the mean trustworthiness of some draws, at random points, and their mean disparity from each other."""
    drawn = [draw.embedding for draw in fit(X, n_neighbors=10, **options).draws(draws)]
    points = np.random.default_rng(seed).choice(len(X), probes, replace=False)
    trust = [trustworthiness(X, Y, points=points) for Y in drawn]
    return float(np.mean(trust)), float(np.mean([disparity(a, b) for a, b in combinations(drawn, 2)]))


@pytest.mark.parametrize(
    "name",
    ["swiss_roll", *(pytest.param(name, marks=pytest.mark.slow) for name in manifolds.NAMES if name != "swiss_roll")],
)
def test_draws_are_true_and_diverse(name: str) -> None:
    """At n = 5,000, k = 10, scale 1: mean trust of 8 draws at least .995, mean pairwise disparity at least .05.

    Means over three samples of the sheet, since the disparity of one sample ranges from .03 to .4.
    """
    scores = [judge(manifolds.make(name, 5000, seed=seed).X, seed, 8, 1000) for seed in range(3)]
    trust, apart = np.mean(scores, axis=0)
    assert trust >= 0.995
    assert apart >= 0.05


@pytest.mark.parametrize(
    ("n", "noise"),
    [pytest.param(2000, 0.0, marks=pytest.mark.slow), (2000, 0.01), pytest.param(5000, 0.03, marks=pytest.mark.slow)],
)
def test_tangent_noise_draws_are_true_under_noise(n: int, noise: float) -> None:
    """Mean trust over the four sheets at least .99 at scale 1, mean disparity at least .05, k = 10.

    Two samples of each sheet, six draws each; isotropic noise has .9709 at n = 5,000 and noise .03.
    """
    samples = [
        (manifolds.make(name, n, noise=noise, seed=seed).X, seed) for name in manifolds.NAMES for seed in range(2)
    ]
    trust, apart = np.mean([judge(X, seed, 6, 500, noise="tangent") for X, seed in samples], axis=0)
    assert trust >= 0.99
    assert apart >= 0.05
