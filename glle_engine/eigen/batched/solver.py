"""Batches of draws: sampling, factors, Lanczos and the acceptance test, lane by lane.

The test compares the deviation of the eigenpairs, and y, whose size at the pin counts.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.eigen.batched.factorization import SCRATCH, factorise
from glle_engine.eigen.batched.lanczos import lanczos
from glle_engine.eigen.batched.solves import solve_lower_transposed, solve_units
from glle_engine.eigen.batched.structure import addresses, words
from glle_engine.eigen.eigenpairs import GOOD_PIN, MAX_STEPS, Eigenpairs, pin_refusal, refusal, start_vector
from glle_engine.linalg import LANES
from glle_engine.linalg.compiled import compiled
from glle_engine.linalg.dense import readable
from glle_engine.linalg.vectors import address, fma, fnma, load, store
from glle_engine.weights.gaussian import sample, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.structure import Structure

TOLERANCE = 1e-9
# Without pivoting one draw in a hundred has ill-conditioned factors and eigenvectors off by 1e-8 to 1e-6, with as
# large a deviation. Some three in a thousand exceed this bound and are solved again.
ACCEPTED_DEVIATION = 3e-8
_RANDOM = 0.1  # size of the random numbers in a start, in [-1/2, 1/2), beside columns of variance 1
_LINE = 8  # doubles of a cache line: a vector across two lines costs twice
_PAGE = 2**21 // 8  # doubles of a large page, which numpy requests for large arrays
Stream = tuple[int, int, float]
"""Key (seed, index) of a draw's random stream, and the square root of its scale."""


class Workspace:
    """Arrays of one batch; used by one thread at a time."""

    def __init__(self, structure: Structure, wanted: int) -> None:
        n, k = structure.neighbors.shape
        self._origin = structure, wanted
        self.words = words(structure)
        self.tag = (0,) * LANES
        shapes = {
            "normals": (4 * k * LANES,),
            "scratch": (SCRATCH * LANES,),
            "weights": (n * k * LANES,),
            "lower": (structure.lower_size * LANES,),
            "upper": (structure.upper_size * LANES,),
            "blocks": (structure.block_size * LANES,),
            "work": (3, n * LANES),
            "vectors": (wanted, n * LANES),
            "values": (wanted + 1, LANES),
            "strength": (LANES,),
            "deviation": (LANES,),
            # Mostly untouched, and then without memory: Lanczos ends after some ten steps.
            "basis": (MAX_STEPS + 2, n * LANES),
            "images": (MAX_STEPS + 2, n * LANES),
            "points": (MAX_STEPS + 2, n * LANES),
        }
        # One allocation, large enough for large pages.
        sizes = [math.prod(shape) + -math.prod(shape) % _LINE for shape in shapes.values()]
        room = empty_aligned(sum(sizes), to=_PAGE if sum(sizes) > _PAGE else _LINE)
        ends = list(itertools.accumulate(sizes))
        parts = {
            name: room[end - size : end - size + math.prod(shape)].reshape(shape)
            for (name, shape), size, end in zip(shapes.items(), sizes, ends, strict=True)
        }
        self.normals, self.scratch, self.weights = parts["normals"], parts["scratch"], parts["weights"]
        self.lower, self.upper, self.blocks = parts["lower"], parts["upper"], parts["blocks"]
        self.work, self.vectors, self.values = parts["work"], parts["vectors"], parts["values"]
        self.strength, self.deviation = parts["strength"], parts["deviation"]
        self.basis, self.images, self.points = parts["basis"], parts["images"], parts["points"]
        self.steps = np.empty(LANES, np.int64)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the addresses of their own arrays."""
        return Workspace, self._origin


def empty_aligned(*shape: int, to: int = _LINE) -> NDArray[np.float64]:
    """Return an uninitialized array that begins on a cache line or a page."""
    size = math.prod(shape)
    room = np.empty(size + to)
    first = -(room.ctypes.data // 8) % to
    return room[first : first + size].reshape(shape)


LaneResult = tuple[Eigenpairs | None, list[str]]
"""Result of one lane: eigenpairs, or None and the rejection reasons."""


@dataclass(eq=False)
class LaneSolver:
    """Eigenproblems of one pattern, several sets of weights at a time.

    Attributes
    ----------
    structure : Structure
    pin : int
        Position of the pin, -1 for the published variant.
    wanted : int
        Eigenpairs of a draw, the published first one not counted.
    start : (n,) float64
        From which Lanczos starts, in the order of elimination.

    """

    structure: Structure
    pin: int
    wanted: int
    start: NDArray[np.float64]
    _idle: list[Workspace] = field(default_factory=list)

    @classmethod
    def prepare(cls, structure: Structure, pins: NDArray[np.int32], embedding: NDArray[np.float64]) -> LaneSolver:
        """Return the solver of an analysed pattern with at most one closed class.

        Draws resemble the reference `embedding` (n, p), (1/n) Y^T Y = I, so that Lanczos starts from the sum of its
        columns. Random numbers of a thirtieth of its size add all other directions, without which a draw at scale 0
        has no direction left after p steps.
        """
        # The order of numpy's sums depends on the layout.
        start = np.ascontiguousarray(embedding).sum(axis=1) + _RANDOM * start_vector(len(embedding))
        pin = int(structure.position[pins[0]]) if len(pins) else -1
        return cls(structure, pin, embedding.shape[1], start[structure.order])

    def solve(
        self,
        streams: Sequence[Stream],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> list[LaneResult]:
        """Draw weights and find their eigenpairs, for at most `LANES` draws; a batch has the bits of single draws.

        If a lane fails the acceptance test and its y nearly vanishes at the pin, it is factored again with the pin at
        the largest |y|.
        """
        try:
            room = self._idle.pop()
        except IndexError:
            room = Workspace(self.structure, self.wanted + (self.pin < 0))
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
        filled = [*streams, *[streams[0]] * (LANES - len(streams))]  # unused lanes repeat the first
        sample(
            room.tag,
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
        results: list[LaneResult] = [(None, []) for _ in streams]
        open_ = list(range(len(streams)))
        tried: list[list[str]] = [[] for _ in streams]
        for solver in ("lanes", "lanes-repinned"):
            self._factor_and_iterate(room, pins)
            vectors = np.empty((LANES, len(self.structure.order), len(room.vectors)))
            unpack(room.tag, self.structure.position, room.vectors, vectors)
            for lane in list(open_):
                pairs, reason = self._judge(room, lane, vectors[lane])
                if reason is None:
                    pairs.diagnostics.update(solver=solver, rejected=list(tried[lane]))
                    results[lane] = (pairs, [])
                    open_.remove(lane)
                else:
                    tried[lane].append(f"{solver}: {reason}")
            again = self._repin(room, pins, open_) if self.pin >= 0 and solver == "lanes" else []
            for lane in set(open_) - set(again):
                results[lane] = (None, tried[lane])
            open_ = again
            if not open_:
                break
        return results

    def warm(self, mean: NDArray[np.float64], factor: NDArray[np.float64]) -> None:
        """Compile all code of the solver by one draw."""
        self.solve([(0, 0, 1.0)], mean, factor)
        room = self._idle[0]
        null_left(room.tag, room.words, room.lower, room.upper, np.zeros(LANES, np.int32), room.work)

    def _factor_and_iterate(self, room: Workspace, pins: NDArray[np.int32]) -> None:
        factorise(room.tag, room.words, room.weights, pins, room.lower, room.upper, room.blocks, room.scratch)
        lanczos(
            room.tag,
            room.words,
            room.lower,
            room.upper,
            pins,
            self.pin >= 0,
            self.start,
            len(room.vectors),
            TOLERANCE,
            room.basis,
            room.images,
            room.points,
            room.work,
            room.values,
            room.vectors,
            room.steps,
            room.strength,
        )
        deviations(room.tag, self.structure.neighbors, room.weights, room.values, room.vectors, room.deviation)

    def _judge(self, room: Workspace, lane: int, vectors: NDArray[np.float64]) -> tuple[Eigenpairs, str | None]:
        """Return a lane's pairs, and the reason to reject them, or None."""
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
        """Move bad pins to the largest |y|, and return their lanes."""
        if not lanes:
            return []
        null_left(room.tag, room.words, room.lower, room.upper, pins, room.work)
        null = np.abs(room.work[0].reshape(-1, len(room.tag)))
        moved = []
        for lane in lanes:
            best = int(np.argmax(null[:, lane]))
            if np.isfinite(null[:, lane]).all() and null[pins[lane], lane] < GOOD_PIN * null[best, lane]:
                pins[lane] = best
                moved.append(lane)
        return moved


@compiled
def deviations(
    tag: tuple[int, ...],
    neighbors: NDArray[np.int32],
    weights: NDArray[np.float64],
    values: NDArray[np.float64],
    vectors: NDArray[np.float64],
    result: NDArray[np.float64],
) -> None:
    r"""Put :math:`|\,\|B v\|^2 / \lambda - 1|`, the largest over a lane's eigenpairs, into `result` (lanes,)."""
    lanes, (n, k) = len(tag), neighbors.shape
    wanted = len(vectors)
    others, entries = address(neighbors), address(weights)
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
            result[lane] = np.maximum(result[lane], np.abs(square[i, lane] / values[i, lane] - 1.0))


@compiled
def null_left(
    tag: tuple[int, ...],
    words: NDArray[np.int64],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    pins: NDArray[np.int32],
    work: NDArray[np.float64],
) -> None:
    """Put a multiple of every lane's y into work[0], in the order of elimination."""
    tree = addresses(words)
    solve_units(tag, tree, address(upper), pins, work[0])
    solve_lower_transposed(tag, tree, address(lower), address(work[0]))
