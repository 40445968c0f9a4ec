"""Resamples of a posterior or of a method, in cached parts, and the spread of an embedding over such refits.

Each part has a separate content address. A job that starts again, one with more resamples, and another analysis, such
as a comparison with `spread`, therefore make only the missing parts.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.reliability.resamples import SEEDS, Resamples, resample, stream_of
from worker.analyses.base import AnalysisSpec, Part, arrays_of, results_prefix
from worker.analyses.embedding import Recipe, classes_of
from worker.base.versions import versioned_key
from worker.records.cache_entry import Entry, entry_bytes
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.movement import Movement
    from glle_engine.reliability.refits import MethodEmbedder
    from glle_engine.reliability.resamples import Embedder, Stream
    from worker.analyses.base import AnalysisContext

PART = 4  # resamples in an entry of the cache; fewer give more workers a part, and more entries


@dataclass(frozen=True)
class CachedResamples:
    """Resamples of one stream.

    Parameters
    ----------
    prefix
        Of the cache keys of all resamples of an embedder.
    embedder
        Returns what is embedded again.
    strict
        Whether a resample that fails ends the analysis; otherwise it is left out.

    """

    prefix: str
    stream: Stream
    seed: int
    embedder: Callable[[AnalysisContext], Embedder]
    strict: bool = False

    def key(self, indices: range) -> str:
        """Return the cache key of a part."""
        stream = self.stream
        return f"{self.prefix}{stream.number}:{stream.share}:{self.seed}:{indices.start}:{indices.stop}"

    def parts(self, count: int) -> list[Part]:
        """Return the parts of an analysis that make the first `count` resamples."""
        return resample_parts(lambda _: self, count)

    def missing(self, contains: Callable[[list[str]], list[bool]], count: int) -> list[range]:
        """Return the parts of the first `count` resamples that are not cached; `contains` looks up keys."""
        ranges = part_ranges(count)
        cached = contains([self.key(indices) for indices in ranges]) if ranges else []
        return [indices for indices, is_cached in zip(ranges, cached, strict=True) if not is_cached]

    def load_or_compute(self, context: AnalysisContext, count: int, on_progress: OnProgress) -> Resamples:
        """Return the first `count` resamples, without those that failed."""
        found = []
        for indices in part_ranges(count):

            def forward(done: int, _total: int, stage: str, first: int = indices.start) -> None:
                on_progress(first + done, count, stage)

            found.append(self.load_or_compute_part(context, indices, count, forward))
            on_progress(indices.stop, count, self.stream.name)
        places = np.concatenate([np.asarray(entry.arrays["places"]) for entry in found])
        return Resamples(self.stream, places, tuple(problem for entry in found for problem in entry.meta["problems"]))

    def load_or_compute_part(
        self, context: AnalysisContext, indices: range, count: int, on_progress: OnProgress
    ) -> Entry:
        """Return a part of the first `count` resamples from the cache; compute and cache it if it is missing."""
        if (entry := context.find_cached(self.key(indices))) is not None:
            return entry
        embedder, began = self.embedder(context), time.perf_counter()
        made = resample(
            embedder,
            len(indices),
            stream=self.stream,
            first=indices.start,
            seed=self.seed,
            strict=self.strict,
            on_progress=on_progress,
        )
        entry = Entry({"problems": list(made.problems)}, {"places": made.embeddings})
        nbytes, seconds = resamples_bytes(*embedder.shape, count), time.perf_counter() - began
        return context.cache(self.key(indices), entry, seconds=seconds, together=nbytes)


def posterior_resamples(arrays_id: str, stream: Stream, seed: int) -> CachedResamples:
    """Return the resamples of a posterior whose arrays have this name (`PosteriorRecord.arrays_id`)."""
    prefix = versioned_key(f"resamples:{arrays_id}:")
    return CachedResamples(prefix, stream, seed, lambda context: context.embedder(), strict=True)


def resample_parts(resamples_of: Callable[[AnalysisContext], CachedResamples], count: int) -> list[Part]:
    """Return the parts of an analysis that make the first `count` resamples."""
    return [Part(len(indices), partial(_make, resamples_of, indices, count)) for indices in part_ranges(count)]


def part_ranges(count: int) -> list[range]:
    """Return the numbers of the resamples in each part of the first `count`."""
    return [range(first, min(first + PART, count)) for first in range(0, count, PART)]


def resamples_bytes(n: int, p: int, count: int) -> int:
    """Return the cache bytes of `count` resamples of n points in p dimensions."""
    return len(part_ranges(count)) * entry_bytes((PART, n, p))


def _make(
    resamples_of: Callable[[AnalysisContext], CachedResamples], indices: range, count: int, context: AnalysisContext
) -> None:
    resamples_of(context).load_or_compute_part(context, indices, count, context.on_progress)


@dataclass(frozen=True, kw_only=True)
class SpreadSpec(AnalysisSpec):
    """Movement, neighbors and clusters of an embedding over refits."""

    kind = "spread"
    main = "movement"

    dataset: str  # of the embedding
    embedding: str  # its id
    recipe: dict[str, Any]  # its inputs
    half_samples: int = 40
    refits: int = 8  # with other seeds, of a method that has a seed
    seed: int = 0  # of the half-samples
    labels: str | None = None  # the data set of the classes; None for the clusters of the embedding
    n_neighbors: int = 10  # that may be kept
    share: float = 0.5  # of the points in a half-sample

    @property
    def total(self) -> int:
        """The number of half-samples; that of the refits depends on the method."""
        return self.half_samples

    def cache_key(self, subject: str) -> str:  # noqa: ARG002 # that of the recipe
        """Return the cache key of the result, which is removed with the embedding."""
        return f"{spread_prefix(Recipe(**self.recipe))}{self.kind}:{digest(self.to_dict())}"

    def parts(self) -> list[Part]:
        """Return the parts of its refits."""
        return [part for _, refits, count in self._refits() for part in refits.parts(count)]

    def _refits(self) -> list[tuple[str, CachedResamples, int]]:
        """Return name and number of the refits; a method without a seed has no refits of the whole data."""
        recipe = Recipe(**self.recipe)
        of = partial(CachedResamples, spread_prefix(recipe), embedder=partial(_embedder, recipe))
        halves, seeds = of(stream_of(self.share), self.seed), of(SEEDS, 0)
        return [("half_samples", halves, self.half_samples), ("refits", seeds, self.refits)]

    def missing(self, contains: Callable[[list[str]], list[bool]]) -> dict[str, int]:
        """Return the numbers of `half_samples` and of `refits` that are not cached; `contains` looks up keys."""
        return {name: sum(map(len, found.missing(contains, count))) for name, found, count in self._refits()}

    def run(self, context: AnalysisContext) -> Entry:
        """Return the figures and notes, and the arrays with one row for each point."""
        found = self.movement(context, context.on_progress)
        arrays = arrays_of(found)
        if found.figures["separated"] is None:  # one class
            del arrays["margin"]
        counted = {"half_samples", "refits", "share"}  # among the figures
        request = {name: value for name, value in self.to_dict().items() if name not in counted}
        recipe = request.pop("recipe")
        return Entry({**request, "method": recipe["method"], **found.to_dict()}, arrays)

    def movement(self, context: AnalysisContext, on_progress: OnProgress) -> Movement:
        """Return the movement of the embedding over its refits."""
        from glle_engine.reliability.movement import movement  # noqa: PLC0415 # as in `_embedder`

        recipe = Recipe(**self.recipe)
        embedder = _embedder(recipe, context)
        reference = np.asarray(recipe.load_or_compute(context, on_progress).arrays["embedding"])
        (_, halves, count), (_, seeds, again) = self._refits()
        return movement(
            embedder,
            reference,
            halves.load_or_compute(context, count, on_progress),
            seeds.load_or_compute(context, again, on_progress) if again and embedder.method.random else None,
            labels=None if self.labels is None else classes_of(context, self.labels),
            n_neighbors=self.n_neighbors,
            on_progress=on_progress,
        )


def _embedder(recipe: Recipe, context: AnalysisContext) -> MethodEmbedder[Any]:
    """Return the method of an embedding with its parameters and data."""
    from glle_engine.methods import method  # noqa: PLC0415 # tasks load the methods, the stores do not
    from glle_engine.reliability.refits import MethodEmbedder  # noqa: PLC0415

    embedder = method(recipe.method)
    labels = None if recipe.labels is None else classes_of(context, recipe.labels)
    values = np.asarray(context.values(recipe.dataset), np.float64)
    return MethodEmbedder(values, embedder, embedder.spec.from_dict(recipe.parameters), labels)


def spread_of(recipe: Recipe, *, half_samples: int, labels: str | None = None) -> SpreadSpec:
    """Return the spread of an embedding within a comparison: without refits by other seeds."""
    return SpreadSpec(
        dataset=recipe.dataset,
        embedding=recipe.id,
        recipe=asdict(recipe),
        half_samples=half_samples,
        refits=0,
        labels=labels,
        engine=recipe.engine,
    )


def spread_prefix(recipe: Recipe) -> str:
    """Return the prefix of the cache keys of an embedding's refits and spreads."""
    return f"{results_prefix(recipe.dataset)}spread:{recipe.id}:"
