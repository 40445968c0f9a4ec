"""Comparisons: several methods on one data set, with the same scores."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import redis
from rq.timeouts import JobTimeoutException

from glle_engine.linalg.procrustes import procrustes_rotation
from worker.analyses.base import AnalysisSpec
from worker.analyses.embedding import EmbeddingSpec, ScoreSpec, truth_of
from worker.base.problems import problem_of
from worker.jobs.store import Cancelled
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from worker.analyses.base import AnalysisContext
    from worker.records.cache_entry import Array

Target = Literal["first", "truth"]

_FATAL = (Cancelled, JobTimeoutException, redis.RedisError)  # they end the whole job

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ComparisonSpec(AnalysisSpec, ScoreSpec):
    """A comparison of methods."""

    kind = "comparison"

    dataset: str
    methods: tuple[dict[str, Any], ...]  # label, method, all parameters; problem: why it cannot run, or None
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

    def run(self, context: AnalysisContext) -> Entry:
        """Return one row per method, in their order; with `align` also the embeddings by label, (n, p) each.

        A method that fails is a row with its problem; the others continue. The rows so far are the partial result.
        """
        rows: list[dict[str, Any]] = []
        embeddings: dict[str, Array] = {}
        result = Entry({}, {})
        for done, method in enumerate(self.methods):
            row, Y = self._row(context, method, done)
            rows.append(row)
            if Y is not None:
                embeddings[method["label"]] = Y
            result = self._entry(context, rows, embeddings)
            context.publish_partial(self.key(context.subject), result)
            context.on_progress(done + 1, self.total, f"{method['label']}: done")
        return result

    def _entry(self, context: AnalysisContext, rows: list[dict[str, Any]], embeddings: dict[str, Array]) -> Entry:
        """Return the rows, and the embeddings if they are aligned."""
        alignment: dict[str, Any] = {"align": self.align, "aligned_to": None}
        if self.align is not None and embeddings:
            first = next(iter(embeddings))
            alignment["aligned_to"] = first if self.align == "first" else "truth"
            target = embeddings[first] if self.align == "first" else truth_of(context, str(self.truth))
            embeddings = {label: _align(Y, target) for label, Y in embeddings.items()}
        request = {name: value for name, value in self.to_dict().items() if name not in {"methods", "scores", "align"}}
        return Entry({**request, **alignment, "rows": [*rows]}, embeddings if self.align else {})

    def _row(self, context: AnalysisContext, method: dict[str, Any], done: int) -> tuple[dict[str, Any], Array | None]:
        """Return the row of a method, and its embedding, or None."""
        row: dict[str, Any] = {
            **{name: method[name] for name in ("label", "method", "parameters")},
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
        except _FATAL:
            raise
        except Exception as error:
            if (problem := problem_of(error)).is_internal:
                log.exception("A method of a comparison failed")
            row["problem"] = problem.to_dict()
        return row, Y


def _align(Y: Array, target: Array) -> Array:
    """Return the least-squares similarity transform of an embedding to a target with as many columns."""
    center = target.mean(axis=0)
    a, b = Y - Y.mean(axis=0), target - center
    rotated = a @ procrustes_rotation(a, b)
    size = np.vdot(a, a)
    return np.asarray(rotated * (np.vdot(rotated, b) / size if size > 0 else 1.0) + center)
