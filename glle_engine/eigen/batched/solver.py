"""Compute several draws at once: sample weights, factor B = I - W, find eigenpairs, and test their accuracy.

Each draw of a batch occupies one lane, the entry with one number in every SIMD vector.

The test checks that | ||B v||^2 / lambda - 1 | is small for each eigenpair (lambda, v) of B^T B, and that the left null
vector y of B does not nearly vanish at the pin, the point at which 1 was added to the diagonal of B to make B
nonsingular.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.eigen.batched.factorization import factorize
from glle_engine.eigen.batched.lanczos import Workspace, lanczos
from glle_engine.eigen.batched.solves import solve_lower_transposed, solve_units
from glle_engine.eigen.batched.structure import addresses
from glle_engine.eigen.eigenpairs import GOOD_PIN, Eigenpairs, pin_refusal, refusal, start_vector
from glle_engine.linalg import LANES
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense import readable
from glle_engine.linalg.vectors import address, fma, fnma, load, store
from glle_engine.weights.gaussian import sample, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Structure

# Lanczos computes the largest eigenvalues of the inverse of M. It stops when the residual of each wanted eigenpair is
# at most this number times the eigenvalue, and also at most this number times the distance from the eigenvalue to the
# first eigenvalue that is not wanted.
LANE_TOLERANCE = 1e-9
# Upper bound on the deviation of a draw, the largest | ||B v||^2 / lambda - 1 | of its eigenpairs. Without pivoting,
# one draw in a hundred has ill-conditioned factors: its eigenvectors have errors of 1e-8 to 1e-6, and its deviation is
# of the same size. About three draws in a thousand exceed this bound, and are solved again.
ACCEPTED_DEVIATION = 3e-8
# Lanczos starts from a sum of embedding columns, which have variance 1, plus random numbers in [-1/2, 1/2) times this
# number: enough to reach every direction, and little beside the embedding.
_START_NOISE = 0.1
Stream = tuple[int, int, float]
"""What determines the weights of a draw: the seed and index of its random numbers, and the square root of its scale.

The weights are the mean plus this root times a random deviation.
"""

LaneResult = tuple[Eigenpairs | None, list[str]]
"""Result of one draw: the eigenpairs and an empty list, or None and the reasons why the eigenpairs were rejected."""


@dataclass(eq=False)
class LaneSolver:
    """Draws weights and computes their eigenpairs, for `LANES` draws of one posterior at a time.

    Attributes
    ----------
    structure : Structure
        The symbolic factorization for the kNN graph of the posterior.
    pin : int
        Position, in the order of elimination, at which 1 is added to the diagonal of I - W to make it nonsingular. It
        is -1 for the published variant of GLLE, whose I - W is nonsingular.
    wanted : int
        How many eigenpairs `solve` returns for a draw. The published variant computes one more, the first, and skips
        it.
    start : (n,) float64
        The vector from which Lanczos starts, in the order of elimination.

    """

    structure: Structure
    pin: int
    wanted: int
    start: NDArray[np.float64]
    _idle: list[Workspace] = field(default_factory=list)

    @classmethod
    def prepare(cls, structure: Structure, pins: NDArray[np.int32], embedding: NDArray[np.float64]) -> LaneSolver:
        """Return the solver for the kNN graph of `structure`.

        `pins` has one point, at which 1 is added to the diagonal of I - W, which makes I - W nonsingular; it is empty
        for the published variant of GLLE, whose I - W is nonsingular.

        Draws resemble the reference `embedding` (n, p), which has (1/n) Y^T Y = I. Lanczos therefore starts from the
        sum of the embedding's columns. Small random numbers add all other directions: a draw at scale 0 is the
        embedding itself, so that Lanczos would have no direction left after p steps.
        """
        # The memory layout is fixed, because it decides in which order numpy adds, and so the bits of the sum.
        start = np.ascontiguousarray(embedding).sum(axis=1) + _START_NOISE * start_vector(len(embedding))
        pin = int(structure.position[pins[0]]) if len(pins) else -1
        return cls(structure, pin, embedding.shape[1], start[structure.order])

    def solve(
        self,
        streams: Sequence[Stream],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> list[LaneResult]:
        """Draw the weights of at most `LANES` draws, and return the eigenpairs of each draw, or why they were rejected.

        `mean` (n, k) and `factor` (n, k, k) are the mean and covariance factor of the weights. The bits of a draw do
        not depend on the other draws. The pin is the point at which 1 is added to the diagonal of I - W. If the
        eigenpairs of a draw are inaccurate, and the left null vector y of its I - W nearly vanishes at the pin, the
        draw is solved once more with the pin where |y| is largest.
        """
        try:
            room = self._idle.pop()
        except IndexError:
            room = Workspace.for_structure(self.structure, self.wanted + (self.pin < 0))
        try:
            return self._solve(room, streams, mean, factor)
        finally:
            self._idle.append(room)

    def _solve(
        self,
        room: Workspace,
        streams: Sequence[Stream],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> list[LaneResult]:
        filled = [*streams, *[streams[0]] * (LANES - len(streams))]  # unused lanes repeat the first draw
        sample(
            room.tag,
            np.arange(len(mean), dtype=np.int32),
            self.structure.position,
            0,
            readable(mean),
            readable(factor),
            np.array([seed for seed, _, _ in filled], np.uint64),
            np.array([index for _, index, _ in filled], np.uint64),
            np.array([spread for _, _, spread in filled]),
            room.normals,
            room.weights,
        )
        pins = np.full(LANES, self.pin, np.int32)
        tried: list[list[str]] = [[] for _ in streams]
        results: list[LaneResult] = [(None, reasons) for reasons in tried]
        open_ = list(range(len(streams)))
        for solver in ("lanes", "lanes-repinned"):
            factorize(room.tag, room.words, room.weights, pins, room.lower, room.upper, room.blocks, room.scratch)
            lanczos(room, pins, self.pin >= 0, self.start, LANE_TOLERANCE)
            deviations(room, self.structure.neighbors)
            vectors = np.empty((LANES, len(self.structure.order), len(room.vectors)))
            unpack(self.structure.position, room.vectors, vectors)
            for lane in list(open_):
                pairs, reason = self._judge(room, lane, vectors[lane])
                if reason is None:
                    pairs.diagnostics.update(solver=solver, rejected=tried[lane])
                    results[lane] = (pairs, [])
                    open_.remove(lane)
                else:
                    tried[lane].append(f"{solver}: {reason}")
            open_ = self._repin(room, pins, open_) if self.pin >= 0 and solver == "lanes" else []
            if not open_:
                break
        return results

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling and copying, without the workspaces, which contain memory addresses."""
        return {**vars(self), "_idle": []}

    def warm(self, mean: NDArray[np.float64], factor: NDArray[np.float64]) -> None:
        """Compile all code of the solver by computing one draw; `mean` and `factor` are the parameters of `solve`."""
        self.solve([(0, 0, 1.0)], mean, factor)
        room = self._idle[0]
        null_left(room, np.zeros(LANES, np.int32))

    def _judge(self, room: Workspace, lane: int, vectors: NDArray[np.float64]) -> tuple[Eigenpairs, str | None]:
        """Return the eigenpairs of draw number `lane` of a batch, and the reason to reject them or None.

        `vectors` (n, m) are the eigenvectors of this draw, with rows in the order of the points.
        """
        steps, pin, deviation = int(room.steps[lane]), float(room.strength[lane]), float(room.deviation[lane])
        first = 0 if self.pin >= 0 else 1
        values = room.values[:, lane].copy()
        following = float(values[-1])
        pairs = Eigenpairs(
            values[first:-1],
            vectors[:, first:],
            {
                "steps": steps,
                "deviation": deviation,
                "pin": pin,
                "next_eigenvalue": following if np.isfinite(following) else None,
            },
        )
        return pairs, "not finite" if steps < 0 else pin_refusal(pin) or refusal(deviation, steps, ACCEPTED_DEVIATION)

    def _repin(self, room: Workspace, pins: NDArray[np.int32], lanes: list[int]) -> list[int]:
        """Move the pin of each draw in `lanes` whose left null vector y is small at the pin to where |y| is largest.

        The pin of a draw is the position at which 1 is added to the diagonal of its I - W. `pins` has the pin of each
        draw of the batch, and is changed in place. Returns the numbers of the draws whose pin was moved, which have to
        be solved again.
        """
        if not lanes:
            return []
        null_left(room, pins)
        null = np.abs(room.work[0].reshape(-1, len(room.tag)))
        moved = []
        for lane in lanes:
            best = int(np.argmax(null[:, lane]))
            if np.isfinite(null[:, lane]).all() and null[pins[lane], lane] < GOOD_PIN * null[best, lane]:
                pins[lane] = best
                moved.append(lane)
        return moved


@compiled
def deviations(room: Workspace, neighbors: NDArray[np.int32]) -> None:
    r"""Write how inaccurate the eigenpairs of each draw are into `room.deviation`.

    The number is the largest :math:`|\,\|B v\|^2 / \lambda - 1|` over the eigenpairs :math:`(\lambda, v)` of
    :math:`B^T B`, where B = I - W. `neighbors` (n, k) is the kNN graph of W, renumbered in the order of elimination.
    """
    tag, vectors, result = room.tag, room.vectors, room.deviation
    lanes, (n, k) = len(tag), neighbors.shape
    wanted = len(vectors)
    others, entries = address(neighbors), address(room.weights)
    square = np.zeros((wanted, lanes))
    squares = address(square)
    x = address(vectors)
    for row in range(n):
        for i in range(wanted):
            value = load(tag, x, i * n + row)
            for j in range(k):
                neighbor = load(tag, x, i * n + others[row * k + j])
                value = fnma(load(tag, entries, row * k + j), neighbor, value)
            store(squares, i, fma(value, value, load(tag, squares, i)))
    result[:] = 0.0
    for i in range(wanted):
        for lane in range(lanes):
            result[lane] = np.maximum(result[lane], np.abs(square[i, lane] / room.values[i, lane] - 1.0))


@compiled
def null_left(room: Workspace, pins: NDArray[np.int32]) -> None:
    """Write a multiple of the left null vector y of I - W into `room.work[0]`, for each draw of a batch.

    `pins` has the position i at which 1 was added to the diagonal of each draw's I - W. Positions, and the entries of
    y, are in the order of elimination.
    """
    tree = addresses(room.words)
    solve_units(room.tag, tree, address(room.upper), pins, room.work[0])
    solve_lower_transposed(room.tag, tree, address(room.lower), address(room.work[0]))
