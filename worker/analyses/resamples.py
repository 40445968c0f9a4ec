"""Resamples of a posterior or of a method, in stored parts, and the spread of an embedding over such refits.

The key of a part covers its inputs. A job that starts again, one with more resamples, and another analysis, such as a
comparison with `spread`, therefore make only the missing parts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.reliability.resamples import SEEDS, Resamples, resample, stream_of
from worker.analyses.base import AnalysisSpec, Part, arrays_of
from worker.analyses.embedding import Recipe, classes_of
from worker.records.cache_entry import Entry, file_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.movement import Movement
    from glle_engine.reliability.refits import MethodEmbedder
    from glle_engine.reliability.resamples import Embedder, Stream
    from worker.analyses.base import AnalysisContext

PART = 4  # resamples in a stored part; fewer give more workers a part, and more files


@dataclass(frozen=True)
class StoredResamples:
    """Resamples of one stream.

    Parameters
    ----------
    owners
        Ids of the records with which they are deleted; the last one is the embedder.
    embedder
        Returns what is embedded again.
    strict
        Whether a resample that fails ends the analysis; otherwise its places are NaN.
    name
        Of what else they depend on.

    """

    owners: tuple[str, ...]
    stream: Stream
    seed: int
    embedder: Callable[[AnalysisContext], Embedder]
    strict: bool = False
    name: str = ""

    def key(self, indices: range) -> str:
        """Return the key of a part."""
        stream = f"{self.stream.number}:{self.stream.share}:{self.seed}"
        return f"{self.owners[-1]}:resamples:{self.name}{stream}:{indices.start}:{indices.stop}"

    def parts(self, count: int) -> list[Part]:
        """Return the parts of an analysis that make the first `count` resamples."""
        return resample_parts(lambda _: self, count)

    def missing(self, contains: Callable[[list[str]], list[bool]], count: int) -> list[range]:
        """Return the parts of the first `count` resamples that are not stored; `contains` looks up keys."""
        ranges = part_ranges(count)
        stored = contains([self.key(indices) for indices in ranges])
        return [indices for indices, is_stored in zip(ranges, stored, strict=True) if not is_stored]

    def load_or_compute(
        self, context: AnalysisContext, count: int, on_progress: OnProgress, skipped: int = 0
    ) -> Resamples:
        """Return the first `count` resamples without the skipped ones, whose number is one of whole parts."""
        found = []
        for indices in part_ranges(count, skipped):

            def forward(done: int, _total: int, stage: str, first: int = indices.start) -> None:
                on_progress(first + done, count, stage)

            found.append(self.load_or_compute_part(context, indices, forward))
            on_progress(indices.stop, count, self.stream.name)
        made = np.concatenate([np.asarray(entry.arrays["places"]) for entry in found])
        places = np.full((count - skipped, *made.shape[1:]), np.nan)
        places[[number - skipped for entry in found for number in entry.meta["numbers"]]] = made
        return Resamples(self.stream, places, tuple(problem for entry in found for problem in entry.meta["problems"]))

    def load_or_compute_part(self, context: AnalysisContext, indices: range, on_progress: OnProgress) -> Entry:
        """Return a stored part; compute and store it if it is missing."""
        if (entry := context.find_part(self.key(indices))) is not None:
            return entry
        made = resample(
            self.embedder(context),
            len(indices),
            stream=self.stream,
            first=indices.start,
            seed=self.seed,
            strict=self.strict,
            on_progress=on_progress,
        )
        numbers = (indices.start + np.flatnonzero(np.isfinite(made.places).all(axis=(1, 2)))).tolist()
        entry = Entry({"problems": list(made.problems), "numbers": numbers}, {"places": made.embeddings})
        context.keep_part(self.key(indices), entry, self.owners)
        return entry


def posterior_resamples(posterior: str, stream: Stream, seed: int) -> StoredResamples:
    """Return the resamples of a posterior."""
    return StoredResamples((posterior,), stream, seed, lambda context: context.embedder(), strict=True)


def resample_parts(resamples_of: Callable[[AnalysisContext], StoredResamples], count: int) -> list[Part]:
    """Return the parts of an analysis that make the first `count` resamples."""
    return [Part(len(indices), partial(_make, resamples_of, indices)) for indices in part_ranges(count)]


def part_ranges(count: int, skipped: int = 0) -> list[range]:
    """Return the numbers of the resamples in each part of the first `count`, after the skipped ones."""
    return [range(first, min(first + PART, count)) for first in range(skipped, count, PART)]


def resamples_bytes(n: int, p: int, count: int) -> int:
    """Return the bytes of `count` resamples of n points in p dimensions."""
    return file_bytes((count, n, p))


def _make(resamples_of: Callable[[AnalysisContext], StoredResamples], indices: range, context: AnalysisContext) -> None:
    resamples_of(context).load_or_compute_part(context, indices, context.on_progress)


@dataclass(frozen=True, kw_only=True)
class SpreadSpec(AnalysisSpec):
    """Movement, neighbors and clusters of an embedding over refits."""

    kind = "spread"
    main = "movement"

    dataset: str  # the data of the embedding
    embedding: str  # the id of the embedding
    recipe: dict[str, Any]  # the inputs of the embedding
    n_resamples: int = 40
    n_refits: int = 8  # refits with other seeds, if the method has a seed
    seed: int = 0  # seed of the half-samples
    labels: str | None = None  # the data set of the classes; None for the clusters of the embedding
    n_neighbors: int = 10  # neighbors in the score of kept neighbors
    share: float = 0.5  # share of the points in a sample

    @property
    def total(self) -> int:
        """The number of half-samples; how many refits follow depends on the method."""
        return self.n_resamples

    def owners(self, subject: str) -> tuple[str, ...]:  # noqa: ARG002 # the recipe has the data set
        """Return the ids of the records with which the result is deleted."""
        return Recipe(**self.recipe).owners

    def parts(self) -> list[Part]:
        """Return the parts of its refits."""
        return [part for _, refits, count in self._refits() for part in refits.parts(count)]

    def _refits(self) -> list[tuple[str, StoredResamples, int]]:
        """Return name and number of the refits; a method without a seed has no refits of the whole data."""
        recipe = Recipe(**self.recipe)
        of = partial(StoredResamples, recipe.owners, embedder=partial(_embedder, recipe))
        halves, seeds = of(stream_of(self.share), self.seed), of(SEEDS, 0)
        return [("n_resamples", halves, self.n_resamples), ("n_refits", seeds, self.n_refits)]

    def missing(self, contains: Callable[[list[str]], list[bool]]) -> dict[str, int]:
        """Return the numbers of `n_resamples` and of `n_refits` that are not stored; `contains` looks up keys."""
        return {name: sum(map(len, found.missing(contains, count))) for name, found, count in self._refits()}

    def run(self, context: AnalysisContext) -> Entry:
        """Return the figures and notes, and the arrays with one row for each point."""
        found = self.movement(context, context.on_progress)
        arrays = arrays_of(found)
        if found.figures["separated"] is None:  # one class
            del arrays["margin"]
        counted = {"n_resamples", "n_refits", "share"}  # among the figures
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


def spread_of(recipe: Recipe, *, n_resamples: int, labels: str | None = None) -> SpreadSpec:
    """Return the spread of an embedding within a comparison: without refits by other seeds."""
    return SpreadSpec(
        dataset=recipe.dataset,
        embedding=recipe.id,
        recipe=asdict(recipe),
        n_resamples=n_resamples,
        n_refits=0,
        labels=labels,
        engine=recipe.engine,
    )
