"""Audits of a map: an embedding, a posterior, or coordinates from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.spec import FitSpec
from glle_engine.reliability.resamples import SEPARATE
from glle_engine.tables.roles import array_of_column
from worker.analyses.base import AnalysisSpec
from worker.analyses.embedding import Recipe
from worker.analyses.resamples import StoredResamples, resample_parts
from worker.base.problems import notes_in_http
from worker.records.cache_entry import Entry
from worker.records.ids import digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from glle_engine.audit.result import Audit
    from glle_engine.base.progress import OnProgress
    from glle_engine.base.spec import Metric, Standardize
    from glle_engine.reliability.resamples import Embedder, Resamples
    from worker.analyses.base import AnalysisContext, Part
    from worker.records.cache_entry import Array
    from worker.records.dataset import Dataset

NEIGHBORS_PREFIX = "neighbors_"  # prefix of the arrays of a sparse matrix, which have no row for each point


MIN_HALVES = 8  # halves in every audit of a method; its statement may need more
REQUEST = ("engine", "dataset", "standardize", "metric", "labels", "blocks", "score_neighbors", "seed")
"""Parameters that the result repeats."""
READ_FROM_HALVES = ("labels", "score_neighbors")
"""Parameters that change what is read from the maps of halves, and not the maps."""


@dataclass(frozen=True, kw_only=True)
class AuditSpec(AnalysisSpec):
    """An audit of an embedding by its recipe, of coordinates, of a method, or else of the job's posterior.

    If there are coordinates and a method, the coordinates are compared with the method's maps. A method alone is given
    if its embedding cannot be stored, because `standardize` or `metric` is not among its parameters (as for PCA).
    """

    kind = "audit"
    main = "embedding"

    dataset: str
    coordinates: str | None = None  # the data set of the coordinates
    embedding: str | None = None  # the id of the embedding
    recipe: dict[str, Any] | None = None  # the inputs of the embedding
    method: str | None = None
    parameters: dict[str, Any] | None = None  # values of all parameters of the method
    standardize: Standardize | None = None
    metric: Metric | None = None
    labels: str | None = None  # the data set of the groups
    blocks: str | None = None  # a column of the data, or the data set of the blocks
    score_neighbors: int = 15
    seed: int = 0

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the records with which the result is deleted."""
        return super().owners(subject) if self.recipe is None else Recipe(**self.recipe).owners

    def parts(self) -> list[Part]:
        """Return the parts of the halves that every audit by a method needs."""
        is_of_method = self.coordinates is None or self.method is not None
        return resample_parts(self.halves, MIN_HALVES) if is_of_method else []

    def halves(self, context: AnalysisContext, embedder: Embedder | None = None) -> StoredResamples:
        """Return the maps of halves. They are stored, so that a task that starts again makes only the missing ones."""

        def load_embedder(_: AnalysisContext) -> Embedder:
            from glle_engine.audit.halves import embedder_of_halves  # noqa: PLC0415 # as in `run`

            return embedder or embedder_of_halves(
                **self._subject(context), blocks=self._blocks(context), seed=self.seed
            )

        name = digest({key: value for key, value in self.to_dict().items() if key not in READ_FROM_HALVES}) + ":"
        return StoredResamples(self.owners(context.subject), SEPARATE, self.seed, load_embedder, name=name)

    def run(self, context: AnalysisContext) -> Entry:
        """Return the final statement; publish each earlier one as the partial result."""
        result = Entry({}, {})
        for audit in self.audits(context):
            result = self.entry(audit, context.subject)
            context.publish_partial(self.key(context.subject), result)
        return result

    def audits(self, context: AnalysisContext, on_halves: Callable[[Resamples], None] | None = None) -> Iterator[Audit]:
        """Yield the engine's audits, with stored maps of halves; `on_halves` gets these maps as they are needed."""
        from glle_engine.audit.audit import audits  # noqa: PLC0415 # tasks load the methods, the stores do not

        def embed_halves(
            embedder: Embedder, count: int, *, first: int, on_progress: OnProgress, **_: object
        ) -> Resamples:
            halves = self.halves(context, embedder)
            maps = halves.load_or_compute(context, first + count, on_progress, first)
            if on_halves is not None:
                on_halves(maps)
            return maps

        record = context.record_of(self.dataset)
        names = record.names
        for audit in audits(
            **self._subject(context),
            labels=None if self.labels is None else groups_of(context, self.labels),
            blocks=self._blocks(context),
            ids=context.extras(self.dataset).get("ids"),
            id_names=record.source.get("columns", {}).get("id", ()),
            is_own_map=self.recipe is not None,
            score_neighbors=self.score_neighbors,
            names=names,
            seed=self.seed,
            threads=1,  # several tasks run at once, and workers announce one thread for each
            embed_halves=embed_halves,
            on_progress=context.on_progress,
        ):
            yield replace(audit, notes=tuple(note.with_names(names) for note in audit.notes))

    def _subject(self, context: AnalysisContext) -> dict[str, Any]:
        """Return the data and the embedding: the arguments of the engine's `audits`."""
        if self.recipe is None and self.coordinates is None and self.method is None:
            return {"X": context.training(), "Y": context.posterior()}
        subject = {
            "X": np.asarray(context.values(self.dataset), np.float64),
            "standardize": self.standardize,
            "metric": self.metric,
        }
        if self.coordinates is not None:
            subject["Y"] = np.asarray(context.values(self.coordinates), np.float64)
        method, parameters = self.method, self.parameters or {}
        if self.recipe is not None:
            recipe = Recipe(**self.recipe)
            method, parameters = recipe.method, recipe.parameters
            subject["Y"] = np.asarray(recipe.load_or_compute(context, context.on_progress).arrays["embedding"])
        if method == "glle":  # GLLE maps are draws or the mean, and resamples are of the mean
            parameters = {
                name: parameters[name] for name in parameters.keys() & {item.name for item in fields(FitSpec)}
            }
        return {**subject, "method": method, "parameters": parameters}

    def _blocks(self, context: AnalysisContext) -> Array | None:
        """Return the block of each point, or None."""
        if self.blocks is None:
            return None
        if (column := block_column(context.record_of(self.dataset), self.blocks)) is None:
            return groups_of(context, self.blocks)
        name, position = column
        array = np.asarray(context.extras(self.dataset)[name])
        return array if array.ndim == 1 else array[:, position]

    def entry(self, audit: Audit, posterior: str) -> Entry:
        """Return the statements, and the arrays: one row for each point, and the sparse matrix of neighbors."""
        arrays = audit.arrays()
        if audit.neighbors is not None:
            parts = ("data", "indices", "indptr")
            arrays |= {NEIGHBORS_PREFIX + name: getattr(audit.neighbors, name) for name in parts}
        subject = self.coordinates or self.embedding or posterior
        method = self.method if self.recipe is None else self.recipe["method"]
        if method is None and self.coordinates is None:
            method = "glle"
        request = {name: getattr(self, name) for name in REQUEST}
        statements = {**audit.to_dict(), "notes": notes_in_http(audit.notes)}
        return Entry({**request, "subject": subject, "method": method, **statements}, arrays)


def block_column(dataset: Dataset, name: str) -> tuple[str, int] | None:
    """Return which array of a data set (labels, colors or ids) holds a column, and the column's index; or None."""
    return array_of_column(name, dataset.source.get("columns", {}))


def groups_of(context: AnalysisContext, dataset: str) -> Array:
    """Return the labels (n,) of a data set, or else its one column, as integers if all values are, or as texts."""
    labels = context.extras(dataset).get("labels")
    raw = np.asarray(context.values(dataset)[:, 0] if labels is None else labels)
    if raw.dtype.kind == "U":
        return raw
    return raw.astype(np.int64) if np.array_equal(raw, np.round(raw)) else raw.astype(str)
