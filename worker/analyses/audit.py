"""Audits, which say how far a map can be believed: an embedding, a posterior, or coordinates that the user uploaded.

An audit by a method embeds random halves of the data, and compares these maps with each other and with the audited map.
"""

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

NEIGHBORS_PREFIX = "neighbors_"  # prefix of the names of the arrays of the sparse matrix of neighbors


MIN_HALVES = 8  # every audit of a method embeds this many random halves of the data; some audits need more of them
REQUEST = ("engine", "dataset", "standardize", "metric", "labels", "blocks", "score_neighbors", "seed")
"""Parameters of the request that are repeated in the result."""
READ_FROM_HALVES = ("labels", "score_neighbors")
"""Parameters that change what is read from the maps of random halves of the data, but not these maps."""


@dataclass(frozen=True, kw_only=True)
class AuditSpec(AnalysisSpec):
    """Parameters of an audit.

    Which map is audited depends on the parameters that are set:

    - `recipe`: the embedding that has these inputs.
    - `coordinates`: the map that the user uploaded. With a `method`, it is compared with maps by this method.
    - `method` alone: the map by this method, which the audit itself computes. Such a map is not a stored embedding,
      because the request has a `standardize` or `metric` that is not a parameter of the method, as for PCA.
    - none of these: the job's posterior.
    """

    kind = "audit"
    main = "embedding"

    dataset: str
    coordinates: str | None = None  # id of the data set with the coordinates
    embedding: str | None = None  # id of the embedding
    recipe: dict[str, Any] | None = None  # fields of the embedding's `Recipe`
    method: str | None = None
    parameters: dict[str, Any] | None = None  # values of all parameters of the method
    standardize: Standardize | None = None
    metric: Metric | None = None
    labels: str | None = None  # id of the data set with the groups of the points
    # Name of a column of the data, or id of a data set, that says which points depend on each other: equal values mark
    # points of one block, such as all samples of one subject.
    blocks: str | None = None
    score_neighbors: int = 15
    seed: int = 0

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the records that the result is about; the result is deleted with any of them.

        If an embedding is audited, these are the embedding and its data set. Otherwise it is only `subject`: the job's
        posterior, or the job's data set if there is no posterior.
        """
        return super().owners(subject) if self.recipe is None else Recipe(**self.recipe).owners

    def parts(self) -> list[Part]:
        """Return the work that several tasks can share: to embed the first `MIN_HALVES` random halves of the data.

        The list is empty if only coordinates are audited, because then nothing can embed the halves.
        """
        is_of_method = self.coordinates is None or self.method is not None
        return resample_parts(self.halves, MIN_HALVES) if is_of_method else []

    def halves(self, context: AnalysisContext, embedder: Embedder | None = None) -> StoredResamples:
        """Return a reader of the maps of random halves of the data, which computes and stores missing maps.

        `embedder` embeds the halves; by default, an embedder is made from the parameters when one is needed.
        """

        def load_embedder(_: AnalysisContext) -> Embedder:
            from glle_engine.audit.halves import embedder_of_halves  # noqa: PLC0415 # as in `run`

            return embedder or embedder_of_halves(
                **self._subject(context), blocks=self._blocks(context), seed=self.seed
            )

        name = digest({key: value for key, value in self.to_dict().items() if key not in READ_FROM_HALVES}) + ":"
        return StoredResamples(self.owners(context.subject), SEPARATE, self.seed, load_embedder, name=name)

    def run(self, context: AnalysisContext) -> Entry:
        """Make the audit, and return its result; publish the preliminary audit after each stage as partial result."""
        result = Entry({}, {})
        for audit in self.audits(context):
            result = self.entry(audit, context.subject)
            context.publish_partial(self.key(context.subject), result)
        return result

    def audits(self, context: AnalysisContext, on_halves: Callable[[Resamples], None] | None = None) -> Iterator[Audit]:
        """Yield the engine's audit after each of its stages, the last of which is final.

        Each stage uses more maps of random halves, which are read if they are stored, or otherwise computed and stored.
        `on_halves` is called with the maps that a stage adds.
        """
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
            threads=1,  # one thread per task, because several tasks run at once
            embed_halves=embed_halves,
            on_progress=context.on_progress,
        ):
            yield replace(audit, notes=tuple(note.with_names(names) for note in audit.notes))

    def _subject(self, context: AnalysisContext) -> dict[str, Any]:
        """Return the data, the audited map and the method as keyword arguments of the engine's `audits`."""
        if self.recipe is None and self.coordinates is None and self.method is None:
            return {"X": context.training(), "Y": context.posterior}
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
        if method == "glle":  # halves are embedded at the mean weights, for which the options of draws do not matter
            parameters = {
                name: parameters[name] for name in parameters.keys() & {item.name for item in fields(FitSpec)}
            }
        return {**subject, "method": method, "parameters": parameters}

    def _blocks(self, context: AnalysisContext) -> Array | None:
        """Return the block of each point (n,), such as a person whose points must stay in one half; None for none."""
        if self.blocks is None:
            return None
        if (column := block_column(context.record_of(self.dataset), self.blocks)) is None:
            return groups_of(context, self.blocks)
        name, position = column
        array = np.asarray(context.extras(self.dataset)[name])
        return array if array.ndim == 1 else array[:, position]

    def entry(self, audit: Audit, posterior: str) -> Entry:
        """Return an audit in its stored form: statement, arrays with a row for each point, and matrix of neighbors.

        `posterior` is the id of the job's posterior, which is what is audited unless the parameters name another map.
        """
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
    """Find a column of the uploaded table by name among the labels, colors and ids of a data set.

    Return the name of the array, and the column's index in it; None if no array has the column.
    """
    return array_of_column(name, dataset.source.get("columns", {}))


def groups_of(context: AnalysisContext, dataset: str) -> Array:
    """Return the group (n,) of each point: the labels of a data set or, without labels, its first column.

    Groups are integers if all values are integers, otherwise texts.
    """
    labels = context.extras(dataset).get("labels")
    raw = np.asarray(context.values(dataset)[:, 0] if labels is None else labels)
    if raw.dtype.kind == "U":
        return raw
    return raw.astype(np.int64) if np.array_equal(raw, np.round(raw)) else raw.astype(str)
