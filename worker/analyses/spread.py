"""Spread of an embedding: its movement when the method is refitted to half-samples, and with other seeds.

The refits are cached in parts, each under a separate content address. A job that starts again, one with more
half-samples, and a comparison with `spread` therefore make only the missing parts.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.reliability.resamples import SEEDS, Resamples, resample, stream_of
from worker.analyses.base import AnalysisSpec, Part, arrays_of, results_prefix
from worker.analyses.embedding import Recipe, classes_of
from worker.records.cache_entry import Entry
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from glle_engine.base.progress import OnProgress
    from glle_engine.reliability.movement import Movement
    from glle_engine.reliability.refits import MethodEmbedder
    from glle_engine.reliability.resamples import Stream
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

Kind = Literal["half-samples", "refits"]

PART = 4  # refits in an entry of the cache; fewer give more workers a part, and more entries


@dataclass(frozen=True)
class Refits:
    """Refits of an embedding, in parts that are cached."""

    recipe: Recipe
    seed: int
    share: float = 0.5  # of the points in a half-sample

    def parts(self, kind: Kind, count: int) -> list[tuple[range, str]]:
        """Return the numbers and the cache key of each part of `count` refits."""
        ranges = [range(first, min(first + PART, count)) for first in range(0, count, PART)]
        return [(indices, self._key(kind, indices)) for indices in ranges]

    def load_or_compute(self, context: AnalysisContext, kind: Kind, count: int, on_progress: OnProgress) -> Resamples:
        """Return the refits 0, ..., count - 1, without those that failed."""
        places: list[Array] = []
        problems: list[str] = []
        for indices, key in self.parts(kind, count):

            def forward(done: int, _total: int, stage: str, first: int = indices.start) -> None:
                on_progress(first + done, count, stage)

            entry = self.load_or_compute_part(context, kind, indices, key, forward)
            places.append(np.asarray(entry.arrays["places"]))
            problems += entry.meta["problems"]
            on_progress(indices.stop, count, kind)
        return Resamples(self._stream(kind), np.concatenate(places), tuple(problems))

    def load_or_compute_part(
        self, context: AnalysisContext, kind: Kind, indices: range, key: str, on_progress: OnProgress
    ) -> Entry:
        """Return a part from the cache, or compute and cache it."""
        entry = context.find_cached(key)
        return entry or context.cache(key, self._compute(context, kind, indices, on_progress))

    def embedder(self, context: AnalysisContext) -> MethodEmbedder[Any]:
        """Return the method with its parameters and data."""
        from glle_engine.methods import method  # noqa: PLC0415 # tasks load the methods, the stores do not
        from glle_engine.reliability.refits import MethodEmbedder  # noqa: PLC0415

        recipe, embedder = self.recipe, method(self.recipe.method)
        labels = None if recipe.labels is None else classes_of(context, recipe.labels)
        values = np.asarray(context.values(recipe.dataset), np.float64)
        return MethodEmbedder(values, embedder, embedder.spec.from_dict(recipe.parameters), labels)

    def _stream(self, kind: Kind) -> Stream:
        return SEEDS if kind == "refits" else stream_of(self.share)

    def _compute(self, context: AnalysisContext, kind: Kind, indices: range, on_progress: OnProgress) -> Entry:
        refits = resample(
            self.embedder(context),
            len(indices),
            stream=self._stream(kind),
            first=indices.start,
            seed=self.seed,
            on_progress=on_progress,
        )
        return Entry({"embedding": self.recipe.id, "problems": list(refits.problems)}, {"places": refits.embeddings})

    def _key(self, kind: Kind, indices: range) -> str:
        of = [] if kind == "refits" else [self.seed, self.share]
        return f"{spread_prefix(self.recipe)}{kind}:{digest([*of, indices.start, indices.stop])}"


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
        refits = self._all()
        return [
            Part(len(indices), partial(_make_part, refits=refits, kind=kind, indices=indices, key=key))
            for _, kind, count in self._counts()
            for indices, key in refits.parts(kind, count)
        ]

    def _all(self) -> Refits:
        return Refits(Recipe(**self.recipe), self.seed, self.share)

    def _counts(self) -> list[tuple[str, Kind, int]]:
        """Return name, kind and number of the refits; a method without a seed has no refits of the whole data."""
        return [("half_samples", "half-samples", self.half_samples), ("refits", "refits", self.refits)]

    def missing(self, contains: Callable[[list[str]], list[bool]]) -> dict[str, int]:
        """Return the numbers of `half_samples` and of `refits` that are not cached; `contains` looks up keys."""
        refits, found = self._all(), {}
        for name, kind, count in self._counts():
            listed = refits.parts(kind, count)
            cached = contains([key for _, key in listed]) if listed else []
            found[name] = sum(len(indices) for (indices, _), here in zip(listed, cached, strict=True) if not here)
        return found

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
        from glle_engine.reliability.movement import movement  # noqa: PLC0415 # as in `Refits.embedder`

        refits = self._all()
        embedder = refits.embedder(context)
        reference = np.asarray(refits.recipe.load_or_compute(context, on_progress).arrays["embedding"])
        halves = refits.load_or_compute(context, "half-samples", self.half_samples, on_progress)
        again = self.refits if embedder.method.random else 0
        return movement(
            embedder,
            reference,
            halves,
            refits.load_or_compute(context, "refits", again, on_progress) if again else None,
            labels=None if self.labels is None else classes_of(context, self.labels),
            n_neighbors=self.n_neighbors,
            on_progress=on_progress,
        )


def _make_part(context: AnalysisContext, *, refits: Refits, kind: Kind, indices: range, key: str) -> None:
    refits.load_or_compute_part(context, kind, indices, key, context.on_progress)


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
