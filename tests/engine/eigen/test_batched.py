"""Draws that are computed together, compared with dense linear algebra, numpy, and the same draws alone."""

import copy
import itertools
import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.datasets import load_digits

from glle_engine import Posterior, fit, manifolds
from glle_engine.base.errors import InvalidParameterError
from glle_engine.eigen.batched import solver as lanes
from glle_engine.eigen.batched.elimination import MAX_SUPERNODE_COLUMNS, MAX_SUPERNODES_PER_FRONT
from glle_engine.eigen.batched.factorization import factorize
from glle_engine.eigen.batched.lanczos import Workspace, empty_aligned, verdict
from glle_engine.eigen.batched.solver import LaneSolver
from glle_engine.eigen.batched.structure import Structure, analyze
from glle_engine.eigen.lu import SingleLU
from glle_engine.eigen.pattern import Pattern
from glle_engine.linalg import LANES
from glle_engine.linalg.dense import readable
from glle_engine.posterior.sampler import DrawKey
from glle_engine.weights.gaussian import WeightDistribution, sample
from tests.engine.eigen.dense_reference import angle, bottom, normals_by_numpy
from tests.engine.eigen.hard_problems import with_vanishing_pivot, with_weak_point

SHEETS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "few neighbors": ("swiss_roll", 300, 1, {"n_neighbors": 5}),
    "many neighbors": ("s_curve", 300, 1, {"n_neighbors": 30}),
    "ten components": ("s_curve", 300, 2, {"n_components": 10, "n_neighbors": 14}),
    "published": ("s_curve", 300, 4, {"variant": "published", "method": "direct"}),
    "small": ("swiss_roll", 81, 3, {"n_neighbors": 7}),
    "adaptive": ("swiss_roll", 300, 0, {"n_neighbors": 14, "neighborhoods": "adaptive"}),
}
HARD = [*SHEETS, "digits", "intrinsic dimension 5", "clusters that touch", "much outside the closed class"]


def solver_of(posterior: Posterior) -> LaneSolver:
    """Return the posterior's solver for several draws at once."""
    assert posterior.lane_solver is not None
    return posterior.lane_solver


def test_the_stream_is_numpys() -> None:
    """Random numbers are numpy's Philox and, to rounding, Box and Muller's normals, for one draw and for several."""
    n, k = 1000, 4
    seeds, indices = np.array([[0, 7, 2**63, 2**64 - 1], [0, 2**64 - 1, 2**40, 5]], np.uint64)
    zero, identity = np.zeros((n, k)), np.ones((n, 1, 1)) * np.eye(k)
    alone = WeightDistribution(zero, identity, 0.0, None, constrained=False, sigma=None).draw((0, 0), 1.0, "posterior")
    got, distribution = empty_aligned(n * k * LANES), (readable(zero), readable(identity))
    tag, order = (0,) * LANES, np.arange(n, dtype=np.int32)
    sample(tag, order, order, 0, *distribution, seeds, indices, np.ones(LANES), empty_aligned(4 * k * LANES), got)
    assert got[0::LANES].tobytes() == alone.tobytes()
    for lane, (seed, index) in enumerate(zip(seeds.tolist(), indices.tolist(), strict=True)):
        expected = normals_by_numpy(seed, index, n * k)
        np.testing.assert_allclose(got.reshape(n * k, LANES)[:, lane], expected, rtol=1e-10, atol=1e-13)


@cache
def hard(name: str) -> Posterior:
    """Return the posterior of a data set with this name, fitted once for all scales."""
    if name in SHEETS:
        sheet, n, seed, options = SHEETS[name]
        return fit(manifolds.make(sheet, n, seed=seed).X, **options)
    rng = np.random.default_rng(8)
    if name == "digits":
        return fit(load_digits().data[:300], variance="ml")
    if name == "intrinsic dimension 5":
        return fit(np.sin(rng.uniform(-1, 1, (300, 5)) @ rng.standard_normal((5, 8))), n_neighbors=12)
    if name == "clusters that touch":
        return fit(np.concatenate([rng.normal(3 * i, 1, (75, 3)) for i in range(4)]), n_neighbors=14)
    # A tight core, the closed class, and a widening spiral that leads into it.
    radius, angles = np.geomspace(0.05, 50, 200), rng.uniform(0, 2 * np.pi, 200)
    spiral = radius[:, None] * np.stack([np.cos(angles), np.sin(angles)], 1)
    return fit(np.concatenate([rng.normal(0, 0.01, (12, 2)), spiral]), n_neighbors=9)


@pytest.mark.parametrize("name", HARD)
@pytest.mark.parametrize("scale", [1.0, 10.0])
def test_hard_cases_against_a_dense_svd(name: str, scale: float) -> None:
    """Draws have the eigenvalues and the span of a dense SVD, on data that are hard for a solver."""
    posterior = hard(name)
    assert posterior.lane_solver is not None
    p = posterior.spec.n_components
    laned = 0
    for draw in posterior.draws(LANES, scale=scale, align="none"):
        weights = posterior.weights(draw.index, scale=scale)
        values, vectors = bottom(posterior.neighbors, weights, p, constrained=posterior.distribution.constrained)
        np.testing.assert_allclose(draw.eigenvalues, values, rtol=1e-5)
        assert angle(draw.embedding, vectors) < 1e-6
        laned += draw.diagnostics["solver"].startswith("lanes")
    assert laned or scale > 1, "the lanes do the work of ordinary draws"


def test_a_draw_is_the_same_bits_in_any_company(posterior: Posterior) -> None:
    """A draw has the same bits alone and anywhere in a batch with other seeds, scales and indices."""
    alone = posterior.draw(11, seed=5, scale=0.5)
    rng = np.random.default_rng(0)
    key = DrawKey(11, 5, 0.5)
    for size in range(1, 10):
        others = [DrawKey(int(i), int(s), float(a)) for i, s, a in rng.integers(0, 9, (size, 3))]
        place = int(rng.integers(size + 1))
        drawn = list(posterior.draws_of([*others[:place], key, *others[place:]]))[place]
        assert drawn.embedding.tobytes() == alone.embedding.tobytes()
        assert drawn.eigenvalues.tobytes() == alone.eigenvalues.tobytes()
        assert drawn.diagnostics == alone.diagnostics


def test_the_start_does_not_depend_on_the_layout_of_the_reference(posterior: Posterior) -> None:
    """The start vector has the same bits if a stored embedding is in Fortran order."""
    embedding = np.random.default_rng(0).standard_normal((posterior.n_points, 12))
    structure, pins = solver_of(posterior).structure, posterior.pins
    by_columns = np.asfortranarray(embedding)
    assert embedding.sum(axis=1).tobytes() != by_columns.sum(axis=1).tobytes()
    one, other = (LaneSolver.prepare(structure, pins, layout).start for layout in (embedding, by_columns))
    assert one.tobytes() == other.tobytes()


@pytest.mark.parametrize("scale", [0.0, 1e-12, 1e-4])
def test_small_draws_are_near_the_reference(posterior: Posterior, scale: float) -> None:
    """Lanczos starts near the reference, and yet finds the gap beyond it if the draw is the reference itself."""
    drawn = posterior.draw(3, scale=scale)
    assert drawn.diagnostics["solver"].startswith("lanes")
    assert drawn.diagnostics["steps"] < 20
    assert angle(drawn.embedding, posterior.embedding) < 1e-8 + 10 * math.sqrt(scale)
    np.testing.assert_allclose(drawn.eigenvalues, posterior.eigenvalues[:-1], rtol=1e-6 + 10 * math.sqrt(scale))
    assert drawn.diagnostics["next_eigenvalue"] == pytest.approx(posterior.eigenvalues[-1], rel=0.1)


def test_a_lane_that_fails_disturbs_no_other(posterior: Posterior) -> None:
    """A draw with an enormous scale fails, and changes no bit of the draws that are computed with it."""
    solver = solver_of(posterior)
    mean, factor = posterior.distribution.gaussian("posterior")
    good = solver.solve([(0, i, 1.0) for i in range(3)], mean, factor)
    mixed = solver.solve([(0, 0, 1.0), (0, 9, 1e200), (0, 1, 1.0), (0, 2, 1.0)], mean, factor)
    assert mixed[1][0] is None
    assert all(mixed[1][1])
    for (pairs, _), (expected, _) in zip([mixed[0], *mixed[2:]], good, strict=True):
        assert pairs is not None
        assert expected is not None
        assert pairs.vectors.tobytes() == expected.vectors.tobytes()


def test_threads_share_a_posterior(sheet: NDArray[np.float64]) -> None:
    """Several threads at once draw the same bits, because each batch has its own memory."""
    posterior = fit(sheet, landmarks=151)
    expected = [draw.embedding.tobytes() for draw in posterior.draws(24)]
    with ThreadPoolExecutor(4) as pool:
        got = list(pool.map(lambda index: posterior.draw(index).embedding.tobytes(), range(24)))
    assert got == expected
    with ThreadPoolExecutor(3) as pool:
        parts = pool.map(lambda first: [*posterior.draws(8, first=first)], (0, 8, 16))
        assert [draw.embedding.tobytes() for part in parts for draw in part] == expected


def test_draws_are_computed_as_they_are_needed(posterior: Posterior) -> None:
    """If a caller stops early, at most one further batch is computed; an invalid key raises when its turn comes."""
    taken = []

    def keys() -> Iterator[DrawKey]:
        for index in itertools.count():
            taken.append(index)
            yield DrawKey(index)

    stream = posterior.draws_of(keys())
    assert [next(stream).index for _ in range(6)] == list(range(6))
    assert len(taken) <= 8
    with pytest.raises(InvalidParameterError):
        list(posterior.draws(2, first=2**64 - 1))


def test_a_bad_pin_is_moved_in_its_own_lane(posterior: Posterior) -> None:
    """If the left null vector y is 1e-9 at the pin, the pin moves to the largest entry of y; the diagnostics say so."""
    solver = solver_of(posterior)
    point = int(posterior.order[0])
    weights = with_weak_point(posterior.neighbors, posterior.mean, point)
    bad = replace(solver, pin=int(solver.structure.position[point]), _idle=[])
    ((pairs, _),) = bad.solve([(0, 0, 0.0)], weights, posterior.distribution.factor)
    assert pairs is not None
    assert pairs.diagnostics["solver"] == "lanes-repinned"
    assert pairs.diagnostics["rejected"][0].startswith("lanes: pin")
    assert angle(pairs.vectors, bottom(posterior.neighbors, weights, 2)[1]) < 1e-8


def test_a_vanishing_pivot_is_seen_and_another_solver_answers(posterior: Posterior) -> None:
    """Factors without a correct digit are rejected, and a factorization with pivoting gives the embedding."""
    solver = solver_of(posterior)
    weights = with_vanishing_pivot(posterior.neighbors, posterior.mean, solver.structure.order)
    ((refused, reasons),) = solver.solve([(0, 0, 0.0)], weights, posterior.distribution.factor)
    assert refused is None
    assert reasons
    pairs = posterior.eigenproblem.solve(weights, 2, rejected=reasons)
    assert pairs.diagnostics["rejected"][: len(reasons)] == reasons
    assert angle(pairs.vectors, bottom(posterior.neighbors, weights, 2)[1]) < 1e-8


def test_what_the_lanes_refuse_goes_to_pivoted_factors(posterior: Posterior, monkeypatch: pytest.MonkeyPatch) -> None:
    """A draw that the batched solver rejects is computed by another solver, and the diagnostics name both."""
    expected = posterior.draw(2)
    monkeypatch.setattr(lanes, "refusal", lambda *_: "no")
    drawn = posterior.draw(2)
    assert drawn.diagnostics["rejected"][0] == "lanes: no"
    assert not drawn.diagnostics["solver"].startswith("lanes")
    assert angle(drawn.embedding, expected.embedding) < 1e-8


@pytest.mark.parametrize("source", ["posterior", "prior"])
@pytest.mark.parametrize("options", [{}, {"noise": "tangent"}, {"variant": "published"}, {"neighborhoods": "adaptive"}])
def test_the_lanes_weights_are_those_of_the_posterior(
    sheet: NDArray[np.float64], options: dict[str, Any], source: Any
) -> None:
    """The batched solver samples the same bits as `Posterior.weights`, from which a rejected draw is computed again."""
    posterior = fit(sheet, **options)
    solver = solver_of(posterior)
    mean, factor = posterior.distribution.gaussian(source)
    solver.solve([(5, 7, math.sqrt(0.7)), (5, 8, 1.0)], mean, factor)
    n, k = posterior.neighbors.shape
    drawn = solver._idle[0].weights.reshape(n, k, LANES)[solver.structure.position]
    expected = posterior.weights(7, seed=5, scale=0.7, source=source)
    assert np.ascontiguousarray(drawn[:, :, 0]).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "options", [{}, {"variant": "published"}, {"variant": "published", "covariance": "full", "max_iter": 3}]
)
def test_the_prior_is_drawn_in_the_lanes_too(sheet: NDArray[np.float64], options: dict[str, Any]) -> None:
    """Draws from the prior use its mean and covariance factor, in the first batch and in the next."""
    posterior = fit(sheet, **options)
    mean, factor = posterior.distribution.gaussian("prior")
    z = normals_by_numpy(0, 1, mean.size).reshape(mean.shape)
    expected = posterior.weights(1, scale=2.0, source="prior")
    np.testing.assert_allclose(mean + math.sqrt(2) * np.einsum("nij,nj->ni", factor, z), expected, atol=1e-12)
    several = list(posterior.draws(LANES + 1, first=1, scale=2.0, source="prior", align="none"))
    vectors = bottom(posterior.neighbors, expected, 2, constrained=posterior.distribution.constrained)[1]
    assert angle(several[0].embedding, vectors) < 1e-6
    for one in (several[0], several[-1]):
        alone = posterior.draw(one.index, scale=2.0, source="prior", align="none")
        assert one.embedding.tobytes() == alone.embedding.tobytes()


@pytest.mark.scale
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("name", "count"), [("swiss_roll", 6000), ("s_curve", 3000), ("digits", 1000)])
def test_no_error_goes_unseen_in_ten_thousand_draws(name: str, count: int) -> None:
    """Each of ten thousand accepted draws has the span that a factorization with pivoting finds."""
    X = load_digits().data if name == "digits" else manifolds.make(name, 500).X
    posterior = fit(X)
    for draw in posterior.draws(count, align="none"):
        referee = posterior.eigenproblem.solve(posterior.weights(draw.index), 2)
        if referee.diagnostics["pin"] > 1e-4:  # SuperLU's own error passes its test below
            assert angle(draw.embedding, referee.vectors) < 1e-6


def test_a_copied_posterior_draws_the_same() -> None:
    """A deep copy of a posterior draws the same, although its arrays have other addresses."""
    posterior = fit(manifolds.make("swiss_roll", 200).X)
    before, copied = posterior.draw(0), copy.deepcopy(posterior)
    del posterior
    assert np.array_equal(before.embedding, copied.draw(0).embedding)


def drawn_neighbors(rng: np.random.Generator, n: int, k: int) -> NDArray[np.int32]:
    """Return k random neighbors of each of n points."""
    rows = [np.sort(rng.choice(np.delete(np.arange(n), i), k, replace=False)) for i in range(n)]
    return np.array(rows, np.int32)


def require_factors(structure: Structure, rng: np.random.Generator) -> None:
    """Require L U = I - W + e_i e_i^T for each draw of a batch, with the same bits as for the draw alone."""
    n, k = structure.neighbors.shape
    assert np.array_equal(structure.order[structure.position], np.arange(n))
    room = Workspace.for_structure(structure, 1)
    weights = rng.uniform(-0.9 / k, 0.9 / k, (n, k, LANES))  # diagonally dominant: nothing to pivot
    room.weights[:] = weights.ravel()
    pins = rng.integers(-1, n, LANES).astype(np.int32)
    factorize(room.tag, room.words, room.weights, pins, room.lower, room.upper, room.blocks, room.scratch)
    for lane, pin in enumerate(pins):
        of_points = np.empty((n, k))
        of_points[structure.order] = weights[:, :, lane]
        single = SingleLU.factor(structure, of_points, structure.order[[pin] if pin >= 0 else []])
        assert single.lower.tobytes() == room.lower[lane::LANES].tobytes()
        assert single.upper.tobytes() == room.upper[lane::LANES].tobytes()
        matrix = np.eye(n)
        np.subtract.at(matrix, (np.arange(n)[:, None], structure.neighbors), weights[:, :, lane])
        matrix[pin, pin] += pin >= 0
        b = np.asarray(rng.standard_normal(n))
        np.testing.assert_allclose(matrix @ single.solve(b, "T"), b, atol=1e-11)
        np.testing.assert_allclose(matrix.T @ single.solve(b), b, atol=1e-11)


@settings(max_examples=40)
@given(n=st.integers(6, 60), k=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_factors_of_any_pattern_solve_in_every_lane(n: int, k: int, seed: int) -> None:
    """The factors of random graphs, in a random elimination order and with random pins, solve linear systems."""
    rng = np.random.default_rng(seed)
    structure = analyze(drawn_neighbors(rng, n, min(k, n - 1)), rng.permutation(n).astype(np.int32))
    require_factors(structure, rng)


@pytest.mark.parametrize(("n", "k"), [(150, 5), (400, 6)])
def test_fronts_of_several_supernodes_solve_in_every_lane(n: int, k: int) -> None:
    """The factors are right if the last separator of a graph is so wide that its columns are divided."""
    rng = np.random.default_rng(n)
    pattern, _ = Pattern.from_neighbors(drawn_neighbors(rng, n, k)).order_for(1)
    structure = analyze(pattern.neighbors, pattern.order)
    assert np.diff(structure.first).max() == MAX_SUPERNODE_COLUMNS
    assert 1 < np.diff(structure.front).max() <= MAX_SUPERNODES_PER_FRONT
    require_factors(structure, rng)


def test_lanczos_ends_at_the_tolerance() -> None:
    """A tolerance just above the error ends the iteration, and one just below does not.

    The residual of a Ritz pair is beta times the last entry of its vector; the error is relative to the smaller of the
    Ritz value and its gap.
    """
    diagonal, off = np.array([5.0, 3.0, 2.0, 1.0]), np.array([0.5, 0.3, 0.2, 0.1])
    values, vectors = np.linalg.eigh(np.diag(diagonal) + np.diag(off[:3], 1) + np.diag(off[:3], -1))
    error = off[3] * abs(vectors[3, 3]) / min(values[3], values[3] - values[2])
    assert verdict(diagonal, off, 1, error * 1.001) == 1
    assert verdict(diagonal, off, 1, error * 0.999) == 0
