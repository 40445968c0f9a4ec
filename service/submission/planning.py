"""Plan of an embedding: parameters, scores, feasibility on the data, and the limits on its time and memory."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from glle_engine.audit.audit import MANY, MAX_PAIRS, SAMPLED, WIDER_PAIRS
from glle_engine.audit.chance import BLOCK, NULLS
from glle_engine.base.errors import GlleError, InvalidParameterError, InvalidShapeError
from glle_engine.methods import METHODS, method
from glle_engine.metrics.registry import SCORES
from glle_engine.posterior.cost.estimate import Cost, largest
from glle_engine.reliability import refits as method_refits
from glle_engine.reliability.alignment import FEWEST
from glle_engine.reliability.movement import MAX_CLASSES
from glle_engine.reliability.resamples import HALF
from service.schemas.resources import MAX_COUNTER
from service.submission.validation import require_storage
from worker.analyses.embedding import ScoreSpec
from worker.analyses.resamples import PART
from worker.base.problems import ProblemError, refuse
from worker.records.cache_entry import file_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from glle_engine.methods import Method, MethodSpec
    from service.schemas.analyses import ScoredIn
    from worker.base.settings import Settings
    from worker.storage.datasets import Dataset
    from worker.stores import Stores

COST_MARGIN = 2.0  # safety factor on expected seconds, for machines slower than that of the estimates
ALTERNATIVES = 3  # methods that a refusal names
AUDITED_PARTS = 2 * (MAX_PAIRS + WIDER_PAIRS)  # at most, of an audit
NEIGHBORS = 10
QUICK_SHARE = 1 / 10  # of a score's most points: up to this size it takes about a second, and is a default


@dataclass(frozen=True)
class Allowance:
    """Limits on the expected cost of an embedding: seconds, with the safety factor applied, and bytes of memory."""

    seconds: float
    bytes: int

    @classmethod
    def of(cls, settings: Settings, deadline: float | None = None) -> Self:
        """Return the limits of the settings, within a deadline in seconds."""
        seconds = min(settings.job_timeout, deadline or settings.job_timeout)
        return cls(seconds / COST_MARGIN, settings.method_bytes)

    def covers(self, cost: Cost) -> bool:
        """Return whether a cost is within the limits."""
        return cost.seconds <= self.seconds and cost.bytes <= self.bytes

    def refusal(
        self,
        subject: str,
        cost: Cost,
        remedies: Sequence[str],
        details: Mapping[str, Any] = MappingProxyType({}),
        more: str = "",
        longer: str = "set a longer deadline, or raise GLLE_JOB_TIMEOUT",
    ) -> ProblemError:
        """Return ``too-long`` or ``too-much-memory``: the subject takes so much; `longer` is the remedy for time."""
        if cost.seconds > self.seconds:
            code, last = "too-long", longer
            excess = f"some {three_digits(cost.seconds):,} s; {three_digits(self.seconds):,} are allowed"
        else:
            code, last = "too-much-memory", "raise GLLE_METHOD_BYTES"
            excess = f"some {cost.bytes:,.0f} bytes of memory; {self.bytes:,} are allowed"
        remedy = "; or ".join([*remedies, last])
        return refuse(
            code,
            422,
            f"{subject} takes {excess}.{more}",
            remedy[0].upper() + remedy[1:] + ".",
            **details,
            expected_seconds=three_digits(cost.seconds),
            allowed_seconds=three_digits(self.seconds),
            expected_bytes=three_digits(cost.bytes),
            allowed_bytes=self.bytes,
        )


@dataclass(frozen=True)
class Plan:
    """A method with its specification."""

    method: Method[Any]
    spec: MethodSpec

    @classmethod
    def of(cls, name: str, parameters: Mapping[str, Any] = MappingProxyType({})) -> Self:
        """Return the plan of a method by its name.

        Raises
        ------
        InvalidParameterError
            For an unknown method, and for a parameter outside its domain.

        """
        for parameter, value in parameters.items():
            if isinstance(value, int) and abs(value) > MAX_COUNTER:
                raise InvalidParameterError(
                    f"{parameter[:50]} is beyond 2^64 - 1.", remedy=f"Use a {parameter[:50]} of at most {MAX_COUNTER}."
                )
        chosen = method(name)
        return cls(chosen, chosen.spec.from_dict(dict(parameters)))

    @property
    def parameters(self) -> dict[str, Any]:
        """Every parameter with its value, JSON-able."""
        return self.spec.to_dict()

    def cost(self, n: int, d: int) -> Cost:
        """Return the expected cost for n points with d features, in a process that has not used the method."""
        cost = self.method.cost(n, d, self.spec)
        return replace(cost, seconds=cost.seconds + self.method.first_seconds)

    def require_possible(self, stores: Stores, dataset: Dataset, *, labels: bool) -> None:
        """Raise a problem if the method cannot embed the data set, or the embedding has no room."""
        n, p = dataset.n, self.spec.n_components
        self.method.require_possible(n, dataset.d, self.spec, labels=labels and self.method.labels)
        has_arrays = self.method.restore is not None and self.method.neighbor_map is None
        shapes = [(n, p), *([(max(n, dataset.d), p + 1)] if has_arrays else [])]
        require_storage(stores, file_bytes(*shapes), f"The embedding of {n:,} points")

    def require_affordable(self, n: int, d: int, allowed: Allowance) -> None:
        """Raise ``too-long`` or ``too-much-memory`` if the expected cost exceeds the limits.

        `details` has the expected and the allowed cost, its growth, the most points, and affordable methods.
        """
        cost = self.cost(n, d)
        if allowed.covers(cost):
            return
        most, quicker = self.most_points(n, d, allowed), _affordable_methods(n, d, self.spec, allowed)
        remedies = [f"send at most {most:,} points"] if most else []
        remedies += [f"use {', '.join(quicker)}"] if quicker else []
        subject, growth = f"{self.method.title} of {n:,} points with {d:,} features", self.method.growth
        details = {"growth": growth, "most_points": most, "quicker": quicker}
        raise allowed.refusal(subject, cost, remedies, details, f" It grows as {growth}.")

    def most_points(self, n: int, d: int, allowed: Allowance) -> int | None:
        """Return the largest affordable number of points up to n, or None."""
        most = largest(1, n, lambda m: allowed.covers(self.cost(m, d)))
        try:
            self.method.require_possible(most or 0, d, self.spec, labels=self.method.labels)
        except GlleError:
            return None
        return most


def spread_cost(
    plan: Plan, n: int, d: int, half_samples: int, refits: int, workers: int = 1, share: float = HALF
) -> Cost:
    """Return the expected cost of the refits of a spread, in seconds until the last of some workers ends."""
    cost = method_refits.cost(n, d, plan.method, plan.spec, half_samples, refits, share)
    seconds = cost.seconds
    if workers > 1 and (parts := math.ceil(half_samples / PART) + math.ceil(refits / PART)):
        alone = method_refits.cost(n, d, plan.method, plan.spec, 0, 0).seconds
        seconds = alone + (seconds - alone) / parts * math.ceil(parts / workers)
    return replace(cost, seconds=seconds + plan.method.first_seconds)


def require_affordable_spread(
    plan: Plan,
    n: int,
    d: int,
    allowed: Allowance,
    *,
    half_samples: int,
    refits: int,
    workers: int = 1,
    share: float = HALF,
) -> None:
    """Raise ``too-long`` or ``too-much-memory`` if a spread exceeds the limits; the remedy has a number within.

    `half_samples` and `refits` are the missing ones, which `workers` make.
    """
    cost = spread_cost(plan, n, d, half_samples, refits, workers, share)
    if allowed.covers(cost):
        return
    most = half_samples
    while most >= FEWEST and not allowed.covers(spread_cost(plan, n, d, most, 0, workers, share)):
        most = most * 3 // 4
    remedies = (
        [f"make {most} more half-samples first, with refits=0: a later request makes the rest"]
        if FEWEST <= most < half_samples
        else []
    )
    again = f" and {refits} seeds" if plan.method.random and refits else ""
    by = f" with {workers} workers" if workers > 1 else ""
    samples = "halves" if share == HALF else "samples"
    raise allowed.refusal(
        f"Refitting {plan.method.title} to {half_samples} more {samples} of {n:,} points{again}{by}",
        cost,
        [*remedies, "embed fewer points"],
        {"most_half_samples": most if most >= FEWEST else None, "workers": workers},
        longer="set a longer deadline, start more workers, or raise GLLE_JOB_TIMEOUT",
    )


def audit_cost(plan: Plan, n: int, d: int, *, is_alone: bool = False) -> Cost:
    """Return the expected cost of an audit: of neighbors, and unless coordinates are alone, of parts and permuted data.

    The parts of many points are those of a sample, in whose maps all points are placed.
    """
    if is_alone:
        return plan.cost(n, d)
    nulls = plan.cost(min(n, BLOCK), d)
    embedded = SAMPLED if n > MANY else n
    parts = method_refits.cost(embedded, d, plan.method, plan.spec, AUDITED_PARTS, 0)
    whole = plan.cost(n, d)
    seconds = parts.seconds * (n / embedded) + NULLS * nulls.seconds + whole.seconds
    return Cost(seconds, max(parts.bytes * (n / embedded), nulls.bytes, whole.bytes))


def require_affordable_together(costs: list[Cost], allowed: Allowance, half_samples: int | None = None) -> None:
    """Raise ``too-long`` if one job cannot compute several embeddings, and their spreads, one after the other."""
    seconds = sum(cost.seconds for cost in costs)
    if seconds > allowed.seconds:
        refits = "" if half_samples is None else f", with refits to {half_samples} halves,"
        raise allowed.refusal(
            f"The comparison of all methods together{refits}",
            Cost(seconds, max(cost.bytes for cost in costs)),
            [
                *([] if half_samples is None else ["give a smaller spread, or none"]),
                "compare fewer methods in one request",
                "create the longest embeddings with POST /v1/embeddings first, because an existing one costs nothing",
            ],
        )


def _affordable_methods(n: int, d: int, spec: MethodSpec, allowed: Allowance) -> list[str]:
    """Return the quickest methods that are affordable with their default parameters."""
    affordable = []
    for other in METHODS.values():
        try:
            other_spec = other.spec(n_components=spec.n_components)
            other.require_possible(n, d, other_spec)
        except (GlleError, ProblemError):
            continue
        cost = other.cost(n, d, other_spec)
        if allowed.covers(cost):
            affordable.append((cost.seconds, other.name))
    return [name for _, name in sorted(affordable)[:ALTERNATIVES]]


def three_digits(number: float) -> float:
    """Return three digits of an estimate."""
    return float(f"{number:.3g}")


def judgement(stores: Stores, dataset: Dataset, body: ScoredIn, *, uses: frozenset[str]) -> ScoreSpec:
    """Return the scores of a request, with their labels and truth.

    Parameters
    ----------
    uses
        The inputs, of `labels` and `truth`, that the method itself uses.

    """
    inputs = {name for name in ("labels", "truth") if getattr(body, name) is not None}
    if body.labels is not None:
        _require_classes(stores, stores.datasets.fetch(body.labels), dataset.n)
    if body.truth is not None:
        _require_rows("truth", stores.datasets.fetch(body.truth), dataset.n)
    if body.scores is None:
        names = {
            name
            for name, score in SCORES.items()
            if score.needs in {"nothing", *inputs} and _is_possible(name, dataset.n, QUICK_SHARE)
        }
    else:
        names = set(body.scores)
        for name in body.scores:
            _require_score(name, inputs, dataset.n)
    for unused in sorted(inputs - uses - {SCORES[name].needs for name in names}):
        raise InvalidParameterError(
            f"Neither the method nor a score uses {unused}.",
            remedy=f"Leave {unused} out, or choose a score that needs it: GET /v1/scores.",
        )
    return ScoreSpec(
        scores=tuple(name for name in SCORES if name in names),
        n_neighbors=_neighbors(body.n_neighbors, dataset.n) if names else NEIGHBORS,
        labels=body.labels,
        truth=body.truth,
    )


def classes_for_spread(stores: Stores, dataset: Dataset, labels: str | None) -> str | None:
    """Return the data set of the classes of a spread: the given one, the data set itself if it has some, or None.

    Raises
    ------
    InvalidShapeError
        If the given one has no class for each point.
    InvalidParameterError
        If it has more classes than are compared.

    """
    source = dataset if labels is None else stores.datasets.fetch(labels)
    if labels is None and not dataset.has_labels:
        return None
    if labels is not None:
        _require_classes(stores, source, dataset.n)
    values = stores.datasets.load_extras(source)["labels"] if source.has_labels else stores.datasets.values(source.id)
    count = len(np.unique(np.asarray(values)))
    if count <= MAX_CLASSES:
        return source.id
    if labels is None:
        return None
    raise InvalidParameterError(
        f"labels={source.id} has {count:,} classes; at most {MAX_CLASSES} are compared.",
        remedy="Use labels of fewer classes, or leave labels out.",
        details={"classes": count, "most": MAX_CLASSES},
    )


def _require_score(name: str, inputs: set[str], n: int) -> None:
    if name not in SCORES:
        raise InvalidParameterError(f"scores: {name[:50]!r} is unknown.", remedy=f"Choose from {', '.join(SCORES)}.")
    needs, most = SCORES[name].needs, SCORES[name].most_points
    if needs != "nothing" and needs not in inputs:
        raise InvalidParameterError(
            f"scores: {name} needs {needs}.", remedy=f"Set {needs} to the id of a data set, or leave {name} out."
        )
    if not _is_possible(name, n):
        raise InvalidParameterError(
            f"scores: {name} takes at most {most:,} points; the data set has {n:,}.",
            remedy=f"Leave {name} out, or use at most {most:,} points.",
            details={"n_points": n, "most": most},
        )


def _is_possible(name: str, n: int, share: float = 1) -> bool:
    most = SCORES[name].most_points
    return most is None or n <= share * most


def _neighbors(n_neighbors: int | None, n: int) -> int:
    """Return the number of neighbors for the scores, fewer than half of the points."""
    most = max(1, (n - 1) // 2)
    if n_neighbors is None:
        return min(NEIGHBORS, most)
    if n_neighbors > most:
        raise InvalidParameterError(
            f"n_neighbors={n_neighbors} of the scores is not below half of {n} points.",
            remedy=f"Use n_neighbors <= {most}.",
            details={"n_points": n, "n_neighbors": n_neighbors},
        )
    return n_neighbors


def _require_rows(name: str, dataset: Dataset, n: int) -> None:
    if dataset.n != n:
        raise InvalidShapeError(
            f"{name} has {dataset.n:,} rows; the data set has {n:,}.",
            remedy=f"Use a data set of {n:,} rows as {name}, in the order of the points.",
            details={"rows": dataset.n, "n_points": n},
        )


def _require_classes(stores: Stores, dataset: Dataset, n: int) -> None:
    """Raise a problem unless a data set has a class for each of n points."""
    _require_rows("labels", dataset, n)
    if dataset.has_labels:
        return
    if dataset.d != 1 or not np.array_equal(values := np.asarray(stores.datasets.values(dataset.id)), np.round(values)):
        raise InvalidShapeError(
            f"labels={dataset.id} has no labels, and is not one column of integers.",
            remedy="Use a data set of one column of integers, or one that was uploaded with ?label=.",
            details={"shape": [dataset.n, dataset.d]},
        )
