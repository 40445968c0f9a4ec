"""Resamples, which are embeddings computed from random parts of the data, stored in parts.

The key of a part covers all inputs of its resamples. A task that starts again, a request for more resamples, and
another analysis of these resamples therefore make only the missing parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.reliability.resamples import Resamples, resample
from worker.analyses.base import Part
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.resamples import Embedder, Stream
    from worker.analyses.base import AnalysisContext

PART = 4  # number of resamples in a part; smaller parts could go to more workers, but mean more files


@dataclass(frozen=True)
class StoredResamples:
    """Resamples of one stream and seed, stored in parts of `PART`.

    Parameters
    ----------
    owners
        Ids of the records with which the resamples are deleted. Keys of parts begin with the last id.
    embedder
        Returns the embedder that makes the resamples.
    strict
        Whether a failed resample raises its error; otherwise the positions of this resample are NaN.
    name
        Text for the keys that stands for all other inputs of the resamples.

    """

    owners: tuple[str, ...]
    stream: Stream
    seed: int
    embedder: Callable[[AnalysisContext], Embedder]
    strict: bool = False
    name: str = ""

    def key(self, indices: range) -> str:
        """Return the key of the part that has the resamples with these numbers."""
        stream = f"{self.stream.number}:{self.seed}"
        return f"{self.owners[-1]}:resamples:{self.name}{stream}:{indices.start}:{indices.stop}"

    def parts(self, count: int) -> list[Part]:
        """Return the parts, for the tasks of an analysis, that make the first `count` resamples."""
        return resample_parts(lambda _: self, count)

    def load_or_compute(
        self, context: AnalysisContext, count: int, on_progress: OnProgress, skipped: int = 0
    ) -> Resamples:
        """Return the resamples with the numbers `skipped` to `count` - 1; compute and store missing parts.

        `skipped` must be the end of a part.
        """
        entries = []
        for indices in part_ranges(count, skipped):

            def forward(done: int, _total: int, stage: str, first: int = indices.start) -> None:
                on_progress(first + done, count, stage)

            entries.append(self.load_or_compute_part(context, indices, forward))
            on_progress(indices.stop, count, self.stream.name)
        embeddings = np.concatenate([np.asarray(entry.arrays["places"]) for entry in entries])
        places = np.full((count - skipped, *embeddings.shape[1:]), np.nan)
        places[[number - skipped for entry in entries for number in entry.meta["numbers"]]] = embeddings
        return Resamples(self.stream, places, tuple(problem for entry in entries for problem in entry.meta["problems"]))

    def load_or_compute_part(self, context: AnalysisContext, indices: range, on_progress: OnProgress) -> Entry:
        """Return the part that has the resamples with these numbers; compute and store the part if it is missing."""
        if (entry := context.find_part(self.key(indices))) is not None:
            return entry
        resamples = resample(
            self.embedder(context),
            len(indices),
            stream=self.stream,
            first=indices.start,
            seed=self.seed,
            strict=self.strict,
            on_progress=on_progress,
        )
        numbers = (indices.start + np.flatnonzero(np.isfinite(resamples.places).all(axis=(1, 2)))).tolist()
        entry = Entry({"problems": list(resamples.problems), "numbers": numbers}, {"places": resamples.embeddings})
        context.keep_part(self.key(indices), entry, self.owners)
        return entry


def posterior_resamples(posterior: str, stream: Stream, seed: int) -> StoredResamples:
    """Return the resamples of a posterior's data, embedded as the posterior was fitted."""
    return StoredResamples((posterior,), stream, seed, lambda context: context.embedder(), strict=True)


def resample_parts(resamples_of: Callable[[AnalysisContext], StoredResamples], count: int) -> list[Part]:
    """Return the parts, for the tasks of an analysis, that make the first `count` resamples."""
    return [Part(len(indices), partial(_make, resamples_of, indices)) for indices in part_ranges(count)]


def part_ranges(count: int, skipped: int = 0) -> list[range]:
    """Return, for each part, the range of its resamples' numbers; together they go from `skipped` to `count` - 1."""
    return [range(first, min(first + PART, count)) for first in range(skipped, count, PART)]


def _make(resamples_of: Callable[[AnalysisContext], StoredResamples], indices: range, context: AnalysisContext) -> None:
    resamples_of(context).load_or_compute_part(context, indices, context.on_progress)
