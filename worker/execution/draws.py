"""Making draws from a posterior in a worker: `LANES` draws (a lane group) are computed together, in SIMD lanes."""

from __future__ import annotations

import time
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import Draw, Posterior
from glle_engine.eigen.eigenpairs import MAX_LANCZOS_STEPS
from glle_engine.linalg import LANES
from worker.base.memory import limited_work
from worker.base.problems import refuse
from worker.execution.telemetry import count_draws, stage
from worker.records.cache_entry import Entry
from worker.records.ids import content_sha256

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from worker.records.draws import DrawAddress

# Bytes for each point in the three arrays of Lanczos vectors (float64) that a solver of several draws allocates. Few
# of the vectors are used; the others take no memory.
_UNTOUCHED = 3 * (MAX_LANCZOS_STEPS + 2) * LANES * 8


def limited_drawing(posterior: Posterior) -> AbstractContextManager[object]:
    """Return a context that limits the working memory while draws are made; a nested context changes nothing."""
    return limited_work(untouched_bytes(len(posterior.order)))


def untouched_bytes(n_points: int) -> int:
    """Return how many bytes the solver allocates for draws of `n_points` points, but never uses.

    They take no memory, but count in the system's limit on allocations, so `limited_work` adds them to the limit.
    """
    return _UNTOUCHED * n_points


def group_size(posterior: Posterior) -> int:
    """Return how many draws are computed together: `LANES`, in SIMD lanes, if the posterior's solver can; otherwise 1.

    Raises MemoryError.
    """
    with limited_drawing(posterior):
        return LANES if posterior.lane_solver else 1


def lane_group(key: DrawAddress, size: int) -> list[DrawAddress]:
    """Return the addresses of the draws that can be computed together with the draw `key`, which comes first.

    An address is all that determines a draw, such as its seed and index. Draws are computed in groups of `size`
    consecutive indices, in SIMD lanes; the first index is a multiple of `size`.
    """
    first = key.index - key.index % size
    return [key, *(replace(key, index=index) for index in range(first, first + size) if index != key.index)]


def make_draws(posterior: Posterior, keys: Sequence[DrawAddress]) -> tuple[list[Draw], float]:
    """Make draws with one source ("posterior" or "prior") and one alignment; return them, and the seconds per draw.

    Raises MemoryError (`limited_drawing`), and `ProblemError` (``no-convergence``) if a draw is not finite.
    """
    started = time.perf_counter()
    with stage("drawing"), limited_drawing(posterior):
        draws = list(
            posterior.draws_of(
                [glle_engine.DrawKey(key.index, key.seed, key.scale) for key in keys],
                source=keys[0].source,  # type: ignore[arg-type] # checked by the engine
                align=keys[0].align,  # type: ignore[arg-type]
            )
        )
        count_draws(draws)
    for draw in draws:
        if not np.isfinite(draw.embedding).all():
            detail = f"Draw {draw.index} has NaN or infinite coordinates, so that its eigenproblem was not solved."
            raise refuse("no-convergence", 422, detail, "Use a smaller scale or a larger reg.")
    return draws, round((time.perf_counter() - started) / len(draws), 6)


def draw_entries(keys: Sequence[DrawAddress], draws: Sequence[Draw], seconds: float) -> dict[DrawAddress, Entry]:
    """Return the form in which draws are cached, by their addresses (`keys`); each draw took `seconds`."""
    return {
        key: Entry(draw_meta(key, draw, seconds), {"embedding": draw.embedding, "eigenvalues": draw.eigenvalues})
        for key, draw in zip(keys, draws, strict=True)
    }


def draws_entry(drawn: Sequence[tuple[DrawAddress, Draw, float]]) -> Entry:
    """Return the form in which m draws of a job are stored: embeddings (m, n, p), eigenvalues (m, p) and metadata.

    `drawn` has for each draw its address (seed, index, scale ...), the draw, and the seconds that it took.
    """
    return Entry(
        {"draws": [draw_meta(*each) for each in drawn]},
        {
            "embeddings": np.stack([draw.embedding for _, draw, _ in drawn]),
            "eigenvalues": np.stack([draw.eigenvalues for _, draw, _ in drawn]),
        },
    )


def draw_meta(key: DrawAddress, draw: Draw, seconds: float) -> dict[str, Any]:
    """Return the metadata of a draw: its address (`key`), diagnostics, seconds, and a digest of the draw.

    The digest also covers address and diagnostics, but not the seconds, which differ each time.
    """
    meta = {**asdict(key), "diagnostics": draw.diagnostics}
    arrays = {"embedding": draw.embedding, "eigenvalues": draw.eigenvalues}
    return {**meta, "seconds": seconds, "sha256": content_sha256(meta, arrays)}
