"""Comparisons: several methods on one data set, with the same scores, and with audits on the same halves.

The parts of a comparison with audits are first looks at all candidates, by two pairs of halves, and then whole audits
of the candidates that are not clearly behind. Each part is stored, and so are the halves and the results of its audit:
a killed task repeats its part, and a later audit of a candidate is done.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from glle_engine.linalg.procrustes import procrustes_rotation
from worker.analyses.base import FATAL, AnalysisSpec, Part
from worker.analyses.embedding import EmbeddingSpec, Recipe, ScoreSpec, truth_of
from worker.base.problems import problem_of
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from glle_engine.base.spec import Metric, Standardize
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

Target = Literal["first", "truth"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ComparisonSpec(AnalysisSpec, ScoreSpec):
    """A comparison of methods."""

    kind = "comparison"

    dataset: str
    methods: tuple[dict[str, Any], ...]  # label, title, method, all parameters, problem, and audit or None
    audits: bool = False  # whether rows are audited, and maps are chosen; the rows then have an `audit`
    standardize: Standardize | None = None  # space in which the maps are judged
    metric: Metric | None = None
    align: Target | None = None  # target to which the returned embeddings are rotated; None returns none

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "methods", tuple(self.methods))

    @property
    def total(self) -> int:
        """The number of methods."""
        return len(self.methods)

    def embedding(self, method: dict[str, Any]) -> EmbeddingSpec:
        """Return the embedding of one of the methods."""
        shared = ("dataset", "labels", "truth", "scores", "score_neighbors", "engine")
        request = {name: getattr(self, name) for name in shared}
        return EmbeddingSpec(method=method["method"], parameters=method["parameters"], **request)

    def recipe_of(self, row: dict[str, Any]) -> Recipe | None:
        """Return the recipe of a row's embedding; None if it has no record of its own."""
        if not self.audits:
            return self.embedding(row).recipe
        recipe = None if row["audit"] is None else row["audit"]["recipe"]
        return None if recipe is None else Recipe(**recipe)

    def recipes(self) -> list[Recipe]:
        """Return the embeddings that have a record."""
        recipes = [self.recipe_of(row) for row in self.methods if row["problem"] is None]
        return [recipe for recipe in recipes if recipe is not None]

    def parts(self) -> list[Part]:
        """Return a first look at each candidate, and then the whole audit of each that is not clearly behind."""
        rows = [row for row in self.methods if self.audits and row["problem"] is None]
        return [
            Part(1, partial(self._attempt, row=row, is_whole=is_whole)) for is_whole in (False, True) for row in rows
        ]

    def run(self, context: AnalysisContext) -> Entry:
        """Return one row per method, in their order; with `align` also the embeddings by label, (n, p) each.

        A method that fails is a row with its problem; the others continue. The rows so far are the partial result.
        """
        if self.audits:
            from worker.analyses.candidates import CandidateMaps  # noqa: PLC0415 # it loads the engine's audits

            return CandidateMaps(self, context).choose()
        rows: list[dict[str, Any]] = []
        embeddings: dict[str, Array] = {}
        result = Entry({}, {})
        for done, method in enumerate(self.methods):
            row, Y = self._row(context, method, done)
            rows.append(row)
            if Y is not None:
                embeddings[method["label"]] = Y
            result = self.entry(context, rows, embeddings)
            context.publish_partial(self.key(context.subject), result)
            context.on_progress(done + 1, self.total, f"{method['label']}: done")
        return result

    def _attempt(self, context: AnalysisContext, *, row: dict[str, Any], is_whole: bool) -> None:
        from worker.analyses.candidates import CandidateMaps  # noqa: PLC0415 # it loads the engine's audits

        CandidateMaps(self, context).attempt(row, is_whole=is_whole)

    def entry(self, context: AnalysisContext, rows: list[dict[str, Any]], embeddings: dict[str, Array]) -> Entry:
        """Return the rows, and the embeddings if they are aligned."""
        alignment: dict[str, Any] = {"align": self.align, "aligned_to": None}
        if self.align is not None and embeddings:
            first = next(iter(embeddings))
            alignment["aligned_to"] = first if self.align == "first" else "truth"
            target = embeddings[first] if self.align == "first" else truth_of(context, str(self.truth))
            embeddings = {label: align(Y, target) for label, Y in embeddings.items()}
        request = {
            name: value
            for name, value in self.to_dict().items()
            if name not in {"methods", "scores", "align", "audits"}
        }
        return Entry({**request, **alignment, "rows": [*rows]}, embeddings if self.align else {})

    def _row(self, context: AnalysisContext, method: dict[str, Any], done: int) -> tuple[dict[str, Any], Array | None]:
        """Return the row of a method, and its embedding, or None."""
        row: dict[str, Any] = {
            **{name: method[name] for name in ("label", "title", "method", "parameters")},
            **dict.fromkeys(("embedding", "seconds", "eigenvalues", "figures", "scores", "problem")),
            "notes": [],
        }
        if method["problem"] is not None:
            return {**row, "problem": method["problem"]}, None
        spec, Y = self.embedding(method), None

        def on_progress(_done: int, _total: int, stage: str) -> None:
            context.on_progress(done, self.total, f"{method['label']}: {stage}")

        try:
            entry = spec.recipe.load_or_compute(context, on_progress)
            row |= {name: entry.meta[name] for name in ("seconds", "eigenvalues", "figures", "notes")}
            row["embedding"] = entry.meta["id"]
            Y = entry.arrays["embedding"]
            row["scores"], notes = self.evaluate(context, self.dataset, Y, on_progress)
            row["notes"] = [*row["notes"], *notes]
        except FATAL:
            raise
        except Exception as error:
            if (problem := problem_of(error)).is_internal:
                log.exception("A method of a comparison failed")
            row["problem"] = problem.to_dict()
        return row, Y


def align(Y: Array, target: Array) -> Array:
    """Return the least-squares similarity transform of an embedding to a target with as many columns.

    An embedding whose points coincide goes to the mean of the target.
    """
    center = target.mean(axis=0)
    a, b = Y - Y.mean(axis=0), target - center
    rotated = a @ procrustes_rotation(a, b)
    size = np.vdot(a, a)
    return np.asarray(rotated * (np.vdot(rotated, b) / size if size > 0 else 1.0) + center)
