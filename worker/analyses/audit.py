"""Audits: which statements of a map the data support, for an embedding, a posterior, or coordinates from anywhere."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.base.spec import FitSpec
from worker.analyses.base import AnalysisSpec
from worker.analyses.embedding import Recipe
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from glle_engine.audit.result import Audit
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

NEIGHBORS = "neighbors_"  # of the names of the arrays of a sparse matrix: they have no row for each point


@dataclass(frozen=True, kw_only=True)
class AuditSpec(AnalysisSpec):
    """An audit of an embedding by its recipe, of coordinates, or of the job's posterior if it has neither."""

    kind = "audit"
    main = "embedding"

    dataset: str
    coordinates: str | None = None  # the data set of the coordinates
    embedding: str | None = None  # its id
    recipe: dict[str, Any] | None = None  # its inputs
    labels: str | None = None  # the data set of the groups
    n_neighbors: int = 15
    seed: int = 0

    def owners(self, subject: str) -> tuple[str, ...]:
        """Return the ids of the records with which the result is deleted."""
        return super().owners(subject) if self.recipe is None else Recipe(**self.recipe).owners

    def run(self, context: AnalysisContext) -> Entry:
        """Return the last statement; publish each one before as the partial result."""
        from glle_engine.audit.audit import audits  # noqa: PLC0415 # tasks load the methods, the stores do not

        labels = None if self.labels is None else groups_of(context, self.labels)
        result = Entry({}, {})
        for audit in audits(
            **self._subject(context),
            labels=labels,
            n_neighbors=self.n_neighbors,
            seed=self.seed,
            threads=1,  # as the workers announce; they compute several tasks at once
            on_progress=context.on_progress,
        ):
            result = self._entry(audit, context.subject)
            context.publish_partial(self.key(context.subject), result)
        return result

    def _subject(self, context: AnalysisContext) -> dict[str, Any]:
        """Return the data and the embedding: the arguments of the engine's `audits`."""
        if self.recipe is None and self.coordinates is None:
            return {"X": context.training(), "Y": context.posterior()}
        data = {"X": np.asarray(context.values(self.dataset), np.float64)}
        if self.recipe is None:
            assert self.coordinates is not None
            return {**data, "Y": np.asarray(context.values(self.coordinates), np.float64)}
        recipe = Recipe(**self.recipe)
        parameters = recipe.parameters
        if recipe.method == "glle":  # a draw, or the mean; resamples have the posterior's mean
            parameters = {
                name: parameters[name] for name in parameters.keys() & {item.name for item in fields(FitSpec)}
            }
        Y = recipe.load_or_compute(context, context.on_progress).arrays["embedding"]
        return {**data, "Y": np.asarray(Y), "method": recipe.method, "parameters": parameters}

    def _entry(self, audit: Audit, posterior: str) -> Entry:
        """Return the statements, and the arrays: one row for each point, and the sparse matrix of neighbors."""
        arrays = audit.arrays()
        if audit.neighbors is not None:
            parts = ("data", "indices", "indptr")
            arrays |= {NEIGHBORS + name: getattr(audit.neighbors, name) for name in parts}
        subject = self.coordinates or self.embedding or posterior
        request = {name: getattr(self, name) for name in ("engine", "dataset", "labels", "n_neighbors", "seed")}
        method = None if self.coordinates else "glle" if self.recipe is None else self.recipe["method"]
        return Entry({**request, "subject": subject, "method": method, **audit.to_dict()}, arrays)


def groups_of(context: AnalysisContext, dataset: str) -> Array:
    """Return the labels (n,) of a data set, or else its one column: texts, or integers if all are."""
    labels = context.extras(dataset).get("labels")
    raw = np.asarray(context.values(dataset)[:, 0] if labels is None else labels)
    if raw.dtype.kind == "U":
        return raw
    return raw.astype(np.int64) if np.array_equal(raw, np.round(raw)) else raw.astype(str)
