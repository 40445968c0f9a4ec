"""A draw is a pure function of (posterior, seed, index, scale, source)."""

from __future__ import annotations

import json
import multiprocessing
import warnings
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glle_engine import DrawKey, Posterior, fit, load
from glle_engine.base import npz
from glle_engine.base.errors import ConvergenceError, InvalidParameterError, StorageError
from glle_engine.base.spec import Source
from glle_engine.eigen.fallbacks import few_points
from glle_engine.linalg.procrustes import disparity, procrustes_rotation

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def test_draw_731_alone_and_in_a_batch(posterior: Posterior) -> None:
    """The same bits, whatever was drawn before."""
    alone = posterior.draw(731, seed=5, scale=0.3)
    batch = {d.index: d for d in posterior.draws(4, first=729, seed=5, scale=0.3)}
    assert list(batch) == [729, 730, 731, 732]
    assert alone.embedding.tobytes() == batch[731].embedding.tobytes()
    assert alone.eigenvalues.tobytes() == batch[731].eigenvalues.tobytes()
    assert alone.diagnostics == batch[731].diagnostics


def _bits(X: NDArray[np.float64]) -> bytes:
    return fit(X).draw(731).embedding.tobytes()


def test_another_process_draws_the_same_bits(sheet: NDArray[np.float64]) -> None:
    """A posterior fitted anew in a fresh process gives the same bits."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_bits, (sheet,)) == _bits(sheet)


def test_what_changes_a_draw(posterior: Posterior) -> None:
    """Index, seed, scale and source each give another draw."""
    base = posterior.draw(0).embedding
    others: list[dict[str, Any]] = [{"index": 1}, {"seed": 1}, {"scale": 2.0}, {"source": "prior"}]
    for other in others:
        options = {"index": 0, **other}
        assert not np.array_equal(base, posterior.draw(options.pop("index"), **options).embedding)


def test_alignment(posterior: Posterior) -> None:
    """Procrustes rotates towards the reference and changes neither span nor disparity; none has the sign rule."""
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
        ({"seed": 1.5}, "seed"),
        ({"scale": -1}, "scale"),
        ({"scale": float("nan")}, "scale"),
        ({"source": "both"}, "posterior, prior"),
        ({"align": "affine"}, "procrustes, none"),
    ],
)
def test_impossible_draws_name_the_remedy(posterior: Posterior, options: dict[str, Any], word: str) -> None:
    """Each argument outside its domain is an error that names it."""
    with pytest.raises(InvalidParameterError) as caught:
        posterior.draw(options.pop("index", 0), **options)
    assert word in str(caught.value)


def test_numpy_numbers_ask_for_the_same_draws(posterior: Posterior) -> None:
    """An index of `np.arange` is an index; keys, draws and weights are those of Python's numbers."""
    key: Any = DrawKey(np.uint8(255), np.uint64(3), np.float32(0.5))  # type: ignore[arg-type]  # as clients have them
    assert key == DrawKey(255, 3, 0.5)
    assert [type(value) for value in vars(key).values()] == [int, int, float]
    expected = posterior.draw(255, seed=3, scale=0.5)
    drawn = posterior.draw(np.uint8(255), seed=np.int64(3), scale=np.float32(0.5))  # type: ignore[arg-type]
    assert json.dumps([drawn.index, drawn.seed, drawn.scale]) == "[255, 3, 0.5]"
    assert drawn.embedding.tobytes() == expected.embedding.tobytes()
    several = posterior.draws(np.int64(2), first=np.uint8(254), seed=np.int8(3), scale=np.float64(0.5))  # type: ignore[arg-type]
    assert [one.embedding.tobytes() for one in several][1] == expected.embedding.tobytes()
    summary = posterior.summary(np.int64(3), first=np.int64(1))  # type: ignore[arg-type]
    np.testing.assert_array_equal(summary.consensus, posterior.summary(3, first=1).consensus)
    np.testing.assert_array_equal(posterior.weights(np.int64(4)), posterior.weights(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [np.True_, True, np.float64(1), "1", np.arange(2), None])
def test_an_index_is_an_integer(value: Any) -> None:
    """Booleans of either kind, fractions, words and arrays are none."""
    with pytest.raises(InvalidParameterError, match="integer"):
        DrawKey(value)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "direct"},
        {"variant": "published"},
        {"variant": "published", "covariance": "full", "max_iter": 3},
        {"variant": "published", "covariance": "full-corrected", "max_iter": 3},
    ],
)
def test_save_and_load(sheet: NDArray[np.float64], tmp_path: Path, options: dict[str, Any]) -> None:
    """A loaded posterior has the same parts and draws the same bits."""
    saved = fit(sheet, **options)
    saved.save(tmp_path / "posterior.npz")
    loaded = load(tmp_path / "posterior.npz")
    assert loaded.head() == saved.head()
    assert loaded.spec == saved.spec
    for name, array in saved.arrays().items():
        np.testing.assert_array_equal(loaded.arrays()[name], array)
    assert loaded.draw(2).embedding.tobytes() == saved.draw(2).embedding.tobytes()
    assert [file.name for file in tmp_path.iterdir()] == ["posterior.npz"]


def test_a_file_that_is_no_posterior(tmp_path: Path, posterior: Posterior) -> None:
    """Another npz, a pickle and a truncated file are refused with the remedy; a missing one is missing."""
    other, pickled, half = tmp_path / "a.npz", tmp_path / "b.npz", tmp_path / "c.npz"
    np.savez(other, x=np.ones(3))
    np.savez(pickled, x=np.array([object()]))
    posterior.save(half)
    half.write_bytes(half.read_bytes()[:5000])
    for path in (other, pickled, half):
        with pytest.raises(StorageError, match=r"Posterior\.save"):
            load(path)
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "none.npz")


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    name=st.sampled_from(["embedding", "eigenvalues", "mean", "covariance_factor", "prior_factor"]),
    part=st.sampled_from(["all", "row", "entry"]),
    at=st.integers(0, 10**6),
    value=st.sampled_from([0.0, 1.0, -1.0, 5e-324, 1e-30, 1e30, 1e110, 1e140, -1e144, 1e154, 1e308, np.inf]),
    change=st.sampled_from(["set", "scaled"]),
)
def test_changed_arrays_are_refused_or_drawn(
    tmp_path: Path, posterior: Posterior, name: str, part: str, at: int, value: float, change: str
) -> None:
    """A file with a changed array is refused, or its draws are finite, or a solver reports that it found none."""
    arrays = {key: np.array(array) for key, array in posterior.arrays().items()}
    target = arrays[name]
    chosen = target.reshape(-1) if part != "row" else target
    where = slice(None) if part == "all" else at % len(chosen)
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
    """The solver of few points reports it like the others, with the remedy."""
    neighbors = np.sort((np.arange(20)[:, None] + np.arange(1, 4)) % 20, axis=1).astype(np.int32)
    for constrained in (0, 1):
        with pytest.raises(ConvergenceError, match="lower the scale"), np.errstate(over="ignore", invalid="ignore"):
            few_points(neighbors, np.full((20, 3), 1e200), 2, constrained)


def test_posteriors_are_frozen(posterior: Posterior) -> None:
    """Neither fields nor arrays can be written."""
    with pytest.raises(AttributeError):
        posterior.version = "2"  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        posterior.embedding[0, 0] = 1


@pytest.mark.parametrize("rank", [0, 1, 2, 3])
def test_the_rotation_is_orthogonal_for_products_of_any_rank(rank: int) -> None:
    """R R^T = I, and no rotation is closer, where Y^T Y_0 is singular."""
    rng = np.random.default_rng(rank)
    Y, reference = rng.standard_normal((40, 3)), rng.standard_normal((40, 3))
    Y[:, rank:] = 0
    turn = procrustes_rotation(Y, reference)
    np.testing.assert_allclose(turn @ turn.T, np.eye(3), atol=1e-14)
    nuclear = np.linalg.svd(Y.T @ reference, compute_uv=False).sum()
    assert np.trace(turn.T @ Y.T @ reference) == pytest.approx(nuclear, abs=1e-12)
