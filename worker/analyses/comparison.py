"""Comparisons: several methods on one data set, side by side, with the same scores."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import redis
from rq.timeouts import JobTimeoutException

from glle_engine.linalg.procrustes import procrustes_rotation
from worker.analyses.base import AnalysisSpec
from worker.analyses.embedding import EmbeddingSpec, truth_of
from worker.base.problems import problem_of
from worker.jobs.store import Cancelled
from worker.records.cache_entry import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.analyses.base import Desk
    from worker.base.problems import Problem
    from worker.records.cache_entry import Array

Target = Literal["first", "truth"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ComparisonSpec(AnalysisSpec):
    """Methods to compare.

    Parameters
    ----------
    methods
        Of each `label`, `method`, `parameters` (every one of them), and `problem`: why it is not even tried, or None.
    align
        To what the embeddings are turned and scaled for display; None: they are not part of the result.

    """

    kind = "comparison"

    dataset: str
    methods: tuple[dict[str, Any], ...]
    labels: str | None = None
    truth: str | None = None
    scores: tuple[str, ...] = ()
    n_neighbors: int = 10
    align: Target | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "methods", tuple(self.methods))  # JSON made lists of them
        object.__setattr__(self, "scores", tuple(self.scores))

    @property
    def total(self) -> int:
        """The number of methods."""
        return len(self.methods)

    def embedding(self, row: dict[str, Any]) -> EmbeddingSpec:
        """Return what is made for a row."""
        return EmbeddingSpec(
            dataset=self.dataset,
            method=row["method"],
            parameters=row["parameters"],
            labels=self.labels,
            truth=self.truth,
            scores=self.scores,
            n_neighbors=self.n_neighbors,
            engine=self.engine,
        )

    def run(self, desk: Desk) -> Entry:
        """Return a row a method, in their order; with `align` also the embeddings by their labels, (n, p) each.

        A method that fails is a row with its problem, and the others go on.
        """
        rows, places = [], {}
        for done, asked in enumerate(self.methods):
            row, Y = self._row(desk, asked, done)
            rows.append(row)
            if Y is not None:
                places[asked["label"]] = Y
            desk.tell(done + 1, self.total, f"{asked['label']}: done")
        aligned: dict[str, Any] = {"align": self.align, "aligned_to": None}
        if self.align is not None and places:
            first = next(iter(places))
            aligned["aligned_to"] = first if self.align == "first" else "truth"
            target = places[first] if self.align == "first" else truth_of(desk, str(self.truth))
            places = {label: _aligned(Y, target) for label, Y in places.items()}
        told = {name: value for name, value in self.to_dict().items() if name not in {"methods", "scores", "align"}}
        return Entry({**told, **aligned, "rows": rows}, places if self.align else {})

    def _row(self, desk: Desk, asked: dict[str, Any], done: int) -> tuple[dict[str, Any], Array | None]:
        """Return what is told of a method, and its embedding."""
        spec = self.embedding(asked)
        told: dict[str, Any] = {
            **{name: asked[name] for name in ("label", "method", "parameters")},
            **dict.fromkeys(("embedding", "seconds", "eigenvalues", "figures", "scores", "problem")),
            "notes": [],
        }
        if asked["problem"] is not None:
            return {**told, "problem": asked["problem"]}, None
        tell = _telling(desk, asked["label"], done, self.total)
        places: list[Array] = []

        def work() -> None:
            entry = spec.recipe.kept(desk, tell)
            told.update({name: entry.meta[name] for name in ("seconds", "eigenvalues", "figures", "notes")})
            told["embedding"] = entry.meta["id"]
            places.append(entry.arrays["embedding"])
            told["scores"], notes = spec.judgement.of(desk, self.dataset, places[0], tell)
            told["notes"] = [*told["notes"], *notes]

        if (problem := _problem_of(work)) is not None:
            told["problem"] = problem.to_dict()
        return told, places[0] if places else None


def _problem_of(work: Callable[[], None]) -> Problem | None:
    """Return why a piece of work failed, None when it did not; what ends the whole job is raised."""
    try:
        work()
    except (Cancelled, JobTimeoutException, redis.RedisError):
        raise
    except Exception as error:
        if (problem := problem_of(error)).is_internal:
            log.exception("A method of a comparison failed")
        return problem
    return None


def _telling(desk: Desk, label: str, done: int, total: int) -> Callable[[int, int, str], None]:
    """Return an `on_progress` that counts methods, and tells which one is at what."""

    def tell(_done: int, _total: int, stage: str) -> None:
        desk.tell(done, total, f"{label}: {stage}")

    return tell


def _aligned(Y: Array, target: Array) -> Array:
    """Return an embedding turned, scaled and moved to a target of as many columns: least squares over similarities."""
    centre = target.mean(axis=0)
    a, b = Y - Y.mean(axis=0), target - centre
    turned = a @ procrustes_rotation(a, b)
    size = np.vdot(a, a)
    return np.asarray(turned * (np.vdot(turned, b) / size if size > 0 else 1.0) + centre)
