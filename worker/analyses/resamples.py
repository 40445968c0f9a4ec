"""Resamples: embeddings of random halves of the data, which are stored in parts of `RESAMPLES_PER_PART` resamples.

The key of a part is made from all inputs of its resamples. A task that starts again, a request for more resamples, and
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

RESAMPLES_PER_PART = 4  # smaller parts could go to more workers, but mean more files


@dataclass(frozen=True)
class StoredResamples:
    """Reads stored resamples (embeddings of random halves of the data), and computes and stores those that are missing.

    Parameters
    ----------
    stream, seed
        The sequence of random halves (`glle_engine.reliability.resamples.Stream`), and its seed.
    owners
        Ids of the records that the resamples are about: the resamples are deleted with any of them. The keys under
        which parts of the resamples are stored begin with the last of these ids.
    embedder
        Returns the embedder that makes the resamples.
    strict
        Whether a failed resample raises its error; otherwise the positions of this resample are NaN.
    name
        Text in these keys that stands for all further inputs of the resamples, beside the last id, stream and seed.

    """

    owners: tuple[str, ...]
    stream: Stream
    seed: int
    embedder: Callable[[AnalysisContext], Embedder]
    strict: bool = False
    name: str = ""

    def key(self, indices: range) -> str:
        """Return the key under which a part of the resamples (embeddings of random halves of the data) is stored.

        `indices` are the numbers of the resamples in the part.
        """
        stream = f"{self.stream.number}:{self.seed}"
        return f"{self.owners[-1]}:resamples:{self.name}{stream}:{indices.start}:{indices.stop}"

    def load_or_compute(
        self, context: AnalysisContext, count: int, on_progress: OnProgress, skipped: int = 0
    ) -> Resamples:
        """Return the embeddings of the random halves of the data with the numbers `skipped`, ..., `count` - 1.

        Stored parts are read, and missing parts are computed and stored.
        `skipped` must be a multiple of `RESAMPLES_PER_PART`.
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
        """Return one part: the embeddings of the random halves of the data whose numbers are `indices`.

        If the part is not stored, compute and store it.
        """
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
    """Return an object that reads the stored resamples of a posterior, and computes and stores missing ones.

    A resample is a random half of the posterior's data, embedded as in its fit. `stream` and `seed` determine the
    sequence of random halves.
    """
    return StoredResamples((posterior,), stream, seed, lambda context: context.embedder, strict=True)


def resample_parts(resamples_of: Callable[[AnalysisContext], StoredResamples], count: int) -> list[Part]:
    """Return the parts of an analysis that embed the first `count` random halves of the data (resamples).

    `resamples_of` is called in the task that makes a part, and returns access to the stored resamples.
    """
    return [Part(len(indices), partial(_make, resamples_of, indices)) for indices in part_ranges(count)]


def part_ranges(count: int, skipped: int = 0) -> list[range]:
    """Divide the resamples with the numbers `skipped`, ..., `count` - 1 into parts; return the numbers in each part.

    A resample is the embedding of a random half of the data. A part has `RESAMPLES_PER_PART` resamples, the last part
    maybe fewer.
    """
    return [range(first, min(first + RESAMPLES_PER_PART, count)) for first in range(skipped, count, RESAMPLES_PER_PART)]


def _make(resamples_of: Callable[[AnalysisContext], StoredResamples], indices: range, context: AnalysisContext) -> None:
    resamples_of(context).load_or_compute_part(context, indices, context.on_progress)
