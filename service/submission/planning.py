"""Checks and settings of embeddings, audits and comparisons: parameters, scores, labels, memory, limits of the data."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.base.errors import InvalidParameterError, InvalidShapeError
from glle_engine.base.texts import Way
from glle_engine.methods import method
from glle_engine.metrics.registry import SCORES, default_scores, possible_score
from glle_engine.reliability.refits import require_resamplable
from service.schemas.resources import MAX_COUNTER
from service.submission.validation import require_rows, require_storage
from worker.analyses.audit import block_column
from worker.analyses.embedding import Recipe, ScoreSpec
from worker.base.memory import INTERACTIVE_BYTES
from worker.base.problems import refuse
from worker.records.cache_entry import file_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from glle_engine.methods import Method, MethodSpec
    from service.schemas.analyses import ScoredIn
    from worker.base.settings import Settings
    from worker.storage.datasets import Dataset
    from worker.stores import Stores

SCORE_NEIGHBORS = 10  # neighbors of each point that scores compare by default
MEMORY_FACTOR = 3  # expected memory of an embedding task, relative to the arrays that its method must hold at least
MAX_GROUPS = 100  # groups of points (labels) that an audit compares; it compares all pairs


@dataclass(frozen=True)
class Plan:
    """An embedding method with the values of its parameters, to be checked against data before a job is created."""

    method: Method[Any]
    spec: MethodSpec

    @classmethod
    def from_method(cls, name: str, parameters: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Return the plan of the method `name` with these parameters; missing ones have their defaults.

        Raises
        ------
        InvalidParameterError
            For an unknown method, and for a parameter outside its domain.

        """
        for parameter, value in parameters.items():
            if isinstance(value, int) and abs(value) > MAX_COUNTER:
                raise InvalidParameterError(
                    f"The value of {parameter[:50]} is larger than 2^64 - 1.",
                    remedy=f"Use a {parameter[:50]} of at most {MAX_COUNTER}.",
                )
        chosen = method(name)
        return cls(chosen, chosen.spec.from_dict(dict(parameters)))

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, ready for JSON."""
        return self.spec.to_dict()

    @property
    def needs_labels(self) -> bool:
        """Whether the method needs labels with these parameters."""
        return self.method.needs_labels(self.spec)

    def require_possible(self, stores: Stores, dataset: Dataset, *, labels: bool) -> None:
        """Raise `GlleError` if the method cannot embed the data set, `ProblemError` if there is no room to store it.

        `labels` says whether the request has labels.
        """
        n, p = dataset.n, self.spec.n_components
        self.method.require_possible(n, dataset.d, self.spec, labels=labels and self.needs_labels)
        has_arrays = self.method.restore is not None and self.method.neighbor_map is None
        shapes = [(n, p), *([(max(n, dataset.d), p + 1)] if has_arrays else [])]
        require_storage(stores, file_bytes(*shapes), f"The embedding of {n:,} points")

    def require_resamplable(self, dataset: Dataset) -> None:
        """Raise `GlleError` if the method cannot embed random halves of the data set, which an audit needs."""
        require_resamplable(dataset.n, dataset.d, self.method, self.spec)

    def is_short(self, n: int) -> bool:
        """Return whether embedding n points is expected to keep within the time and memory of an interactive task.

        An interactive task that exceeds its time or memory goes on, or starts again, as a batch task.
        """
        return not self.method.compiles and MEMORY_FACTOR * self.method.least_bytes(n, self.spec) <= INTERACTIVE_BYTES

    def require_memory(self, n: int, settings: Settings) -> None:
        """Raise `ProblemError` (``too-much-memory``) if the method's arrays for n points exceed the limit of a task."""
        method, spec, allowed = self.method, self.spec, settings.method_bytes
        needed = method.least_bytes(n, spec)
        if needed <= allowed:
            return
        max_points = bisect_right(range(1, n), allowed, key=lambda m: method.least_bytes(m, spec))
        remedy = "Ask the administrator to raise GLLE_METHOD_BYTES."
        if max_points:
            remedy = f"Embed at most {max_points:,} points, or ask the administrator to raise GLLE_METHOD_BYTES."
        raise refuse(
            "too-much-memory",
            422,
            f"{method.title} of {n:,} points needs arrays of at least {needed:,} bytes; a task may use {allowed:,}.",
            remedy,
            least_bytes=needed,
            allowed_bytes=allowed,
            most_points=max_points or None,
        )


def plan_to_audit(name: str, parameters: Mapping[str, Any], space: dict[str, Any]) -> tuple[Plan, dict[str, Any]]:
    """Return the plan (method and values of its parameters) of a map to audit, and further settings of the audit.

    `space` has the request's `standardize` and `metric`, without those that the request does not set. If the method has
    a parameter for each setting in `space`, the plan gets these settings, and the further settings are {}. Otherwise
    the further settings are `space`. For the method glle, the plan has scale 0, which gives the embedding by the mean
    weights, unless `parameters` has another scale.
    """
    of_method = space if space.keys() <= method(name).spec.parameters().keys() else {}
    mean = {"scale": 0.0} if name == "glle" else {}
    plan = Plan.from_method(name, mean | dict(parameters) | of_method)
    return plan, {} if of_method else space


def map_of_plan(dataset: str, plan: Plan, space: dict[str, Any], *, has_coordinates: bool = False) -> dict[str, Any]:
    """Return the fields of an `AuditSpec` that say which map of a method is audited.

    Usually this is a stored embedding, and the fields are its id and its `recipe` (all inputs of the embedding). If the
    request has coordinates, or if `space` is not empty, the fields are instead the method, its parameters, and the
    entries of `space`. These are a `standardize` and a `metric` for the audit, if the plan could not take them as
    parameters of the method (`plan_to_audit`).
    """
    if has_coordinates or space:
        return {"method": plan.method.name, "parameters": plan.parameters, **space}
    recipe = Recipe(dataset=dataset, method=plan.method.name, parameters=plan.parameters)
    return {"embedding": recipe.id, "recipe": asdict(recipe)}


def scores_to_compute(stores: Stores, dataset: Dataset, body: ScoredIn, *, uses: frozenset[str]) -> ScoreSpec:
    """Return which scores a request asks for, with their number of neighbors and the data sets of labels and truth.

    Parameters
    ----------
    uses
        Which of `labels` and `truth` are needed apart from the scores: labels by a supervised method, truth by an
        alignment to it.

    Raises
    ------
    InvalidParameterError
        For an unknown score, a score that these data do not allow, too many neighbors, and a truth that nothing uses.
    InvalidShapeError
        If labels or truth do not have a row for each point.

    """
    inputs = {name for name in ("labels", "truth") if getattr(body, name) is not None}
    if body.labels is not None:
        _require_classes(stores, stores.datasets.fetch(body.labels), dataset.n)
    if body.truth is not None:
        require_rows("truth", stores.datasets.fetch(body.truth).n, dataset.n)
    if body.scores is None:
        names = {*default_scores(inputs)}
    else:
        names = {possible_score(name, dataset.n, inputs).name for name in body.scores}
    used = uses | {SCORES[name].needs for name in names}
    if "truth" in inputs - used:
        raise InvalidParameterError(
            "`truth` was given, but none of the chosen scores uses it.",
            remedy="Leave `truth` out, or choose a score that compares embeddings with true coordinates.",
        )
    return ScoreSpec(
        scores=tuple(name for name in SCORES if name in names),
        score_neighbors=_neighbors(body.score_neighbors, dataset.n) if names else SCORE_NEIGHBORS,
        labels=body.labels if "labels" in used else None,
        truth=body.truth,
    )


def classes_for_audit(stores: Stores, dataset: Dataset, labels: str | None) -> str | None:
    """Return the id of the data set with the groups for an audit: `labels`, or else `dataset` if it has labels.

    Returns None without labels, and if `dataset` itself has more than `MAX_GROUPS` different labels.

    Raises
    ------
    InvalidShapeError
        If the data set `labels` does not have a class for each point.
    InvalidParameterError
        If the data set `labels` has more than `MAX_GROUPS` classes.

    """
    source = dataset if labels is None else stores.datasets.fetch(labels)
    if labels is not None:
        _require_classes(stores, source, dataset.n)
    elif not dataset.has_labels:
        return None
    values = stores.datasets.load_extras(source)["labels"] if source.has_labels else stores.datasets.values(source.id)
    count = len(np.unique(np.asarray(values)))
    if count <= MAX_GROUPS:
        return source.id
    if labels is None:
        return None
    raise InvalidParameterError(
        f"The labels of {source.id} have {count:,} classes; an audit compares at most {MAX_GROUPS}.",
        remedy="Use labels with fewer classes, or leave `labels` out.",
        details={"classes": count, "most": MAX_GROUPS},
    )


def _neighbors(count: int | str, n: int) -> int:
    """Return the number of neighbors that the scores of n points compare: `count`, or a suitable number for "auto".

    Raises `InvalidParameterError` if `count` is not below half of n.
    """
    max_neighbors = max(1, (n - 1) // 2)
    if isinstance(count, str):
        return min(SCORE_NEIGHBORS, max_neighbors)
    if count > max_neighbors:
        raise InvalidParameterError(
            f"{Way('score_neighbors', count)} is not below half of the {n} points.",
            remedy=f"Give {Way('score_neighbors')} of at most {max_neighbors}.",
            details={"n_points": n, "score_neighbors": count},
        )
    return count


def blocks_for_audit(stores: Stores, dataset: Dataset, blocks: str | None) -> str | None:
    """Return `blocks` after the check that it is a column of the data set, or the id of a data set with the blocks.

    A block is a group of points that depend on each other, such as the samples of one subject.

    Raises
    ------
    InvalidParameterError
        If `blocks` is neither a column of labels, colors or ids, nor the id of a data set.
    InvalidShapeError
        If the data set of blocks does not have a block for each point.

    """
    if blocks is None or block_column(dataset, blocks) is not None:
        return blocks
    if blocks.startswith("ds_"):
        _require_classes(stores, stores.datasets.fetch(blocks), dataset.n, "blocks")
        return blocks
    name, is_feature = blocks[:100], blocks in (dataset.names or ())
    detail = (
        "is a feature of the data" if is_feature else "is neither a column of labels, colors or ids, nor a data set"
    )
    raise InvalidParameterError(
        f"{Way('blocks', name)} {detail}.",
        remedy=f"Upload the data with {Way('id', [name])}, which sets that column apart from the features, or give "
        "the id of a data set with the block of each point.",
    )


def _require_classes(stores: Stores, dataset: Dataset, n: int, name: str = "labels") -> None:
    """Raise `InvalidShapeError` unless a data set of n rows has labels, or consists of one column of integers."""
    require_rows(name, dataset.n, n)
    if dataset.has_labels:
        return
    if dataset.d != 1 or not np.array_equal(values := np.asarray(stores.datasets.values(dataset.id)), np.round(values)):
        raise InvalidShapeError(
            f"The data set {dataset.id} was given as {name}, but it has no labels, and is not a single column of "
            "integers.",
            remedy="Give a data set with labels, or one with a single column of integers.",
            details={"shape": [dataset.n, dataset.d]},
        )
