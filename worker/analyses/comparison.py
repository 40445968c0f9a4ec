"""Comparisons of several methods on one data set by the same scores, and optionally by audits on the same halves.

A comparison with audits has two parts for each map: a short audit, by two pairs of random halves of the data, and a
whole audit unless the map is clearly behind the others. Parts, maps of halves and results of audits are stored. A
killed task therefore repeats only its last part, and a later audit of one of the maps finds its result.
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
    """Parameters of a comparison of methods."""

    kind = "comparison"

    dataset: str
    # A dictionary for each map to compare: label, title, method, all parameters, problem (why the map cannot be made
    # for these data, or None), and audit (the parameters of its audit, or None).
    methods: tuple[dict[str, Any], ...]
    audits: bool = False  # whether each map is audited, and the best maps are recommended
    standardize: Standardize | None = None  # with `metric`: the distances by which the maps are judged
    metric: Metric | None = None
    align: Target | None = None  # target to which the embeddings in the result are aligned; None: no embeddings

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "methods", tuple(self.methods))

    @property
    def total(self) -> int:
        """Number of methods."""
        return len(self.methods)

    def embedding(self, method: dict[str, Any]) -> EmbeddingSpec:
        """Return the analysis that embeds the data by `method`, one of `methods`, and scores the embedding."""
        shared = ("dataset", "labels", "truth", "scores", "score_neighbors", "engine")
        request = {name: getattr(self, name) for name in shared}
        return EmbeddingSpec(method=method["method"], parameters=method["parameters"], **request)

    def recipe_of(self, row: dict[str, Any]) -> Recipe | None:
        """Return all inputs (the `Recipe`) of the embedding of `row`, which is one of `methods`.

        Return None if this embedding is never stored, as when an audit computes a map by itself (see `AuditSpec`).
        """
        if not self.audits:
            return self.embedding(row).recipe
        recipe = None if row["audit"] is None else row["audit"]["recipe"]
        return None if recipe is None else Recipe(**recipe)

    def recipes(self) -> list[Recipe]:
        """Return all inputs (the `Recipe`) of each compared embedding, except of embeddings that are never stored."""
        recipes = [self.recipe_of(row) for row in self.methods if row["problem"] is None]
        return [recipe for recipe in recipes if recipe is not None]

    def parts(self) -> list[Part]:
        """Return the work that several tasks can share: the short audit of each map, then the whole audit of each map.

        The list is empty if the request wants no audits.
        """
        rows = [row for row in self.methods if self.audits and row["problem"] is None]
        return [
            Part(1, partial(self._attempt, row=row, is_whole=is_whole)) for is_whole in (False, True) for row in rows
        ]

    def run(self, context: AnalysisContext) -> Entry:
        """Return one row for each method, in order; with `align` also the embeddings (n, p), by label.

        A method that fails gets a row with its problem, and the other methods go on. After each method, the rows so far
        are published as the partial result.
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

        CandidateMaps(self, context).audit(row, is_whole=is_whole)

    def entry(self, context: AnalysisContext, rows: list[dict[str, Any]], embeddings: dict[str, Array]) -> Entry:
        """Return the result for the clients: parameters, rows and, with `align`, the aligned embeddings by label."""
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
        """Embed the data by one method, and compute the scores; return the row and the embedding (n, p).

        If the method fails, the row has its problem, and the embedding is None. `done` is the number of finished
        methods, for the progress.
        """
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
    """Rotate, scale and move an embedding (n, p) so that it is as near as possible to a target (n, p).

    The similarity transform has the least sum of squared distances. If all points of the embedding coincide, they are
    moved to the mean of the target.
    """
    center = target.mean(axis=0)
    a, b = Y - Y.mean(axis=0), target - center
    rotated = a @ procrustes_rotation(a, b)
    size = np.vdot(a, a)
    return np.asarray(rotated * (np.vdot(rotated, b) / size if size > 0 else 1.0) + center)
