"""Draws of one posterior, several at a time: sampling, factors, Lanczos and the acceptance test, lane by lane."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.eigen.batched.acceptance import deviations, null_left
from glle_engine.eigen.batched.krylov.lanczos import lanczos
from glle_engine.eigen.batched.numeric.factorization import factorise
from glle_engine.eigen.eigenpairs import GOOD_PIN, MAX_STEPS, Eigenpairs, pin_refusal, refusal, start_vector
from glle_engine.linalg import LANES
from glle_engine.weights.lane_sampling import sample, unpack

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from glle_engine.eigen.batched.symbolic.structure import Structure

TOLERANCE = 1e-9
# Without pivoting one draw in a hundred has factors so ill-conditioned that its eigenvectors are off by 1e-8 to 1e-6;
# their deviation says so, 1e-8 to 1e-6, too. Some three in a thousand are above this, and are solved again.
ACCEPTED_DEVIATION = 3e-8
_LINE = 8  # doubles of a cache line, to which vectors are aligned: one that lies across two costs twice
_PAGE = 2**21 // 8  # doubles of a large page: numpy asks for such where they fit
Stream = tuple[int, int, float]
"""One draw's randomness: the key (seed, index) of its stream, and the square root of its scale."""


class Workspace:
    """The arrays that one batch needs; one thread's at a time.

    Parameters
    ----------
    structure : Structure
    k, wanted, lanes : int

    """

    def __init__(self, structure: Structure, wanted: int, lanes: int) -> None:
        n, k = structure.neighbors.shape
        self.tag = (0,) * lanes
        shapes = {
            "normals": (4 * k * lanes,),
            "diagonal": (64 * lanes,),
            "weights": (n * k * lanes,),
            "lower": (structure.lower_size * lanes,),
            "upper": (structure.upper_size * lanes,),
            "blocks": (structure.block_size * lanes,),
            "work": (3, n * lanes),
            "vectors": (wanted, n * lanes),
            "values": (wanted + 1, lanes),
            "strength": (lanes,),
            "found": (lanes,),
            # Most of these is never touched, and then takes no memory: Lanczos ends after some ten steps.
            "basis": (MAX_STEPS + 2, n * lanes),
            "images": (MAX_STEPS + 2, n * lanes),
            "points": (MAX_STEPS + 2, n * lanes),
        }
        # One piece, so that it is large enough for large pages.
        sizes = [math.prod(shape) + -math.prod(shape) % _LINE for shape in shapes.values()]
        room = aligned(sum(sizes), to=_PAGE if sum(sizes) > _PAGE else _LINE)
        ends = list(itertools.accumulate(sizes))
        parts = {
            name: room[end - size : end - size + math.prod(shape)].reshape(shape)
            for (name, shape), size, end in zip(shapes.items(), sizes, ends, strict=True)
        }
        self.normals, self.diagonal, self.weights = parts["normals"], parts["diagonal"], parts["weights"]
        self.lower, self.upper, self.blocks = parts["lower"], parts["upper"], parts["blocks"]
        self.work, self.vectors, self.values = parts["work"], parts["vectors"], parts["values"]
        self.strength, self.found = parts["strength"], parts["found"]
        self.basis, self.images, self.points = parts["basis"], parts["images"], parts["points"]
        self.steps = np.empty(lanes, np.int64)


def aligned(*shape: int, to: int = _LINE) -> NDArray[np.float64]:
    """Return an array that begins with a cache line, or with a page; not initialised."""
    size = math.prod(shape)
    room = np.empty(size + to)
    first = -(room.ctypes.data // 8) % to
    return room[first : first + size].reshape(shape)


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a view that cannot be written: for numba a type of its own, compiled for by `warm`."""
    view = array.view()
    view.flags.writeable = False
    return view


Laned = tuple[Eigenpairs | None, list[str]]
"""What a lane came to: eigenpairs, or None and the reasons why they are not accepted."""


@dataclass(eq=False)
class LaneSolver:
    """The eigenproblems of one pattern, several sets of weights at a time.

    Attributes
    ----------
    structure : Structure
    pin : int
        Position of the pin, -1 for the published variant.
    wanted : int
        Eigenpairs of a draw, the published first one not counted.
    lanes : int
        How many draws a batch has.

    """

    structure: Structure
    pin: int
    wanted: int
    lanes: int = LANES
    _idle: list[Workspace] = field(default_factory=list)

    @classmethod
    def prepare(cls, structure: Structure, pins: NDArray[np.int32], wanted: int) -> LaneSolver:
        """Return the solver of an analysed pattern with at most one closed class."""
        return cls(structure, int(structure.position[pins[0]]) if len(pins) else -1, wanted)

    @cached_property
    def _start(self) -> NDArray[np.float64]:
        return start_vector(len(self.structure.order))[self.structure.order]

    def solve(
        self,
        streams: Sequence[Stream],
        mean: NDArray[np.float64],
        factor: NDArray[np.float64],
    ) -> list[Laned]:
        """Draw weights and find their eigenpairs, for at most `lanes` draws; one alone gives the same bits.

        A lane that fails the acceptance test while its own y nearly vanishes at the pin is factored again with the pin
        where its y is largest.
        """
        try:
            room = self._idle.pop()
        except IndexError:
            room = Workspace(self.structure, self.wanted + (self.pin < 0), self.lanes)
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
    ) -> list[Laned]:
        lanes = self.lanes
        filled = [*streams, *[streams[0]] * (lanes - len(streams))]  # what is left over repeats the first
        sample(
            room.tag,
            self.structure.position,
            _read_only(mean),
            _read_only(factor),
            np.array([seed for seed, _, _ in filled], np.uint64),
            np.array([index for _, index, _ in filled], np.uint64),
            np.array([spread for _, _, spread in filled]),
            room.normals,
            room.weights,
        )
        pins = np.full(lanes, self.pin, np.int32)
        results: list[Laned] = [(None, []) for _ in streams]
        open_ = list(range(len(streams)))
        tried: list[list[str]] = [[] for _ in streams]
        for solver in ("lanes", "lanes-repinned"):
            self._factor_and_iterate(room, pins)
            vectors = np.empty((lanes, len(self.structure.order), len(room.vectors)))
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
        null_left(room.tag, self.structure, room.lower, room.upper, np.zeros(self.lanes, np.int32), room.work)

    def _factor_and_iterate(self, room: Workspace, pins: NDArray[np.int32]) -> None:
        factorise(room.tag, self.structure, room.weights, pins, room.lower, room.upper, room.blocks, room.diagonal)
        lanczos(
            room.tag,
            self.structure,
            room.lower,
            room.upper,
            pins,
            self.pin >= 0,
            self._start,
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
        deviations(room.tag, self.structure, room.weights, room.values, room.vectors, room.found)

    def _judge(self, room: Workspace, lane: int, vectors: NDArray[np.float64]) -> tuple[Eigenpairs, str | None]:
        """Return a lane's pairs, and why they are not accepted."""
        steps, pin, deviation = int(room.steps[lane]), float(room.strength[lane]), float(room.found[lane])
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
        """Move the pins of lanes to where their y is largest; return those that had a bad one."""
        if not lanes:
            return []
        null_left(room.tag, self.structure, room.lower, room.upper, pins, room.work)
        null = np.abs(room.work[0].reshape(-1, len(room.tag)))
        moved = []
        for lane in lanes:
            best = int(np.argmax(null[:, lane]))
            if np.isfinite(null[:, lane]).all() and null[pins[lane], lane] < GOOD_PIN * null[best, lane]:
                pins[lane] = best
                moved.append(lane)
        return moved
