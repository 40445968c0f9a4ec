"""Starts of the descents: given coordinates in place of the name of a start."""

from typing import Any

import numpy as np
import pytest

from glle_engine import manifolds
from glle_engine.base.errors import DegenerateDataError, GlleError, InvalidParameterError, InvalidShapeError
from glle_engine.methods import METHODS, method
from glle_engine.methods.neighbor_embedding import affinities
from glle_engine.methods.neighbor_embedding.affinities import START_NOISE, noisy
from tests.engine.methods.reference import LIBRARIES, import_or_skip, with_slow_ones

NAMES = [name for name, one in METHODS.items() if "init" in one.spec.parameters()]
SHEET = manifolds.make("s_curve", 90, seed=3).X
QUICK: dict[str, dict[str, Any]] = {
    "t-sne": {"perplexity": 8.0, "early_iter": 10, "max_iter": 20},
    **{name: {"perplexity": 8.0, "max_iter": 20} for name in ("sne", "symmetric-sne", "elastic-embedding")},
    **{name: {"max_iter": 20} for name in ("umap", "densmap")},
    "pacmap": {"max_iter": 5},
}


@pytest.mark.parametrize("name", with_slow_ones(NAMES))
def test_given_coordinates_replace_the_start(name: str) -> None:
    """Given coordinates replace the start, whatever their scale; equal coordinates give equal bits."""
    one = method(name)
    if name in LIBRARIES:
        import_or_skip(LIBRARIES[name])
    spec = one.spec(seed=5, **QUICK[name])
    start = np.random.default_rng(1).standard_normal((90, 2))
    first, moved = (one.embed(SHEET, spec, init=Y).Y for Y in (start, 4.0 * start.astype(np.float64)))
    np.testing.assert_array_equal(first, moved)
    turned = one.embed(SHEET, spec, init=start[:, ::-1].tolist()).Y
    assert not np.array_equal(first, turned)
    assert not np.array_equal(first, one.embed(SHEET, spec).Y)
    line = SHEET[:, :1]  # one feature has no two principal components, but coordinates can be given
    if name != "pacmap":
        assert np.isfinite(one.embed(line, spec, init=start).Y).all()


def test_a_descent_begins_at_the_given_coordinates(monkeypatch: pytest.MonkeyPatch) -> None:
    """The descent begins at the given coordinates, centered, scaled down, and with a little noise."""
    begun: list[np.ndarray[Any, Any]] = []
    begin = affinities.begin

    def begin_and_record(*args: Any) -> Any:
        begun.append(begin(*args))
        return begun[-1]

    monkeypatch.setattr(affinities, "begin", begin_and_record)
    start = np.random.default_rng(2).standard_normal((90, 2)) * [3.0, 1.0] + 7.0
    one = method("symmetric-sne")
    one.embed(SHEET, one.spec(seed=3, **QUICK["symmetric-sne"]), init=start)
    centered = (start - start.mean(axis=0)) / start[:, 0].std()
    np.testing.assert_allclose(begun[0], 1e-2 * noisy(centered, 3), rtol=1e-12)
    assert abs(begun[0] / 1e-2 - centered).max() < 6 * START_NOISE


@pytest.mark.parametrize(
    ("init", "error", "words"),
    [
        (np.zeros((90, 3)), InvalidShapeError, r"`init` has shape \(90, 3\)"),
        ("random", InvalidShapeError, "the name of a start"),
        (np.full((90, 2), 2.5), DegenerateDataError, "All 90 points of `init` have the same position"),
        (np.full((90, 2), np.nan), GlleError, r"init\[0, 0\] is nan"),
    ],
)
def test_coordinates_that_are_no_start_are_refused(init: Any, error: type[Exception], words: str) -> None:
    """Coordinates of another shape, equal or not finite, and unknown names raise an error."""
    one = method("sne")
    with pytest.raises(error, match=words):
        one.embed(SHEET, one.spec(perplexity=8.0), init=init)


def test_misplaced_starts_are_refused() -> None:
    """Coordinates raise an error for a method without a start, or if the name of a start is also given."""
    start = np.random.default_rng(1).standard_normal((90, 2))
    with pytest.raises(InvalidParameterError, match="Principal component analysis does not start from"):
        method("pca").embed(SHEET, init=start)
    one = method("sne")
    with pytest.raises(InvalidParameterError, match="init='random' and initial coordinates"):
        one.embed(SHEET, one.spec(perplexity=8.0, init="random"), init=start)
