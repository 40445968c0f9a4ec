"""`/v1/comparisons`: several methods on one data set, side by side."""

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.methods import Cost
from service.routes.embeddings import COMMAND, DONE
from service.routes.posteriors import Wait
from service.schemas.embeddings import ComparisonIn
from service.schemas.problems import documented
from service.schemas.resources import JobOut
from service.submission.cost_limits import Allowance, require_affordable, require_affordable_together
from service.submission.dependencies import Deadline, TenantStores, analysis_job, answered
from service.submission.idempotency import Key, once
from service.submission.planning import Plan, planned
from service.submission.scoring import judgement
from service.submission.validation import require_dataset, require_not_all_equal
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import Judgement
from worker.base.problems import Problem, ProblemError
from worker.jobs.store import Job
from worker.records.priority import Terms
from worker.storage.array_cache import entry_bytes
from worker.storage.datasets import Dataset
from worker.stores import Stores

router = APIRouter(prefix="/v1/comparisons", tags=["embeddings"])


@router.post(
    "",
    summary="Compare methods",
    status_code=202,
    response_model=JobOut,
    responses={
        **DONE,
        **documented(**COMMAND, _422="A method or parameter that is not known, labels; or too long together."),
    },
)
async def compare(
    body: ComparisonIn, stores: TenantStores, wait: Wait = 0.0, deadline: Deadline = None, key: Key = None
) -> Response:
    """Embed a data set by several methods, and judge each embedding by the same scores.

    The result has `rows`, one a method in their order: `label`, `method`, `parameters`, `embedding` (its id) and
    `links`, `seconds`, `figures`, `eigenvalues`, `notes`, `scores`, and `problem`: why there is none, where the method
    cannot do the data, would not finish, or failed. The others go on. What is there already is not computed again.
    With `align` also the embeddings, by their labels, turned and scaled for display.
    """
    return await answered(stores, await run_in_threadpool(_compare, stores, body, deadline, key), wait)


def _compare(stores: Stores, body: ComparisonIn, deadline: float | None, key: str | None) -> Job:
    dataset = require_dataset(stores, body.dataset)
    plans = [_planned(number, row) for number, row in enumerate(body.methods)]
    uses = {"labels"} if any(plan.method.labels for plan in plans) else set()
    uses |= {"truth"} if body.align == "truth" else set()
    judged = judgement(stores, dataset, body, uses=frozenset(uses))
    _require_alignable(stores, body, plans, judged.truth)
    if body.align is not None:
        shapes = [(dataset.n, plan.spec.n_components) for plan in plans]
        stores.cache.check_size(entry_bytes(*shapes), f"The embeddings of {dataset.n:,} points")

    def made() -> Job:
        require_not_all_equal(stores, dataset)
        spec, costs = _tried(stores, dataset, body, plans, judged, Allowance.of(stores.settings, deadline))
        if not all(stores.cache.present([spec.cache_key(dataset.id)])):
            require_affordable_together(costs, Allowance.of(stores.settings, deadline))
        job = analysis_job(stores, spec, posterior=None, terms=Terms.within(deadline))
        for row in spec.methods:
            if row["problem"] is None:
                stores.embeddings.note(spec.embedding(row).recipe, job.id)
        return job

    return once(stores, key, ("POST /v1/comparisons", body.model_dump()), made)


def _planned(number: int, row: Any) -> Plan:
    """Return the plan of a row, or raise its refusal with the number of the row."""
    try:
        return planned(row)
    except InvalidParameterError as error:
        raise InvalidParameterError(
            f"methods.{number}: {error.message}", remedy=error.remedy, details={**error.details, "row": number}
        ) from None


def _require_alignable(stores: Stores, body: ComparisonIn, plans: list[Plan], truth: str | None) -> None:
    """Refuse to align embeddings of different dimensions, or to a truth of another."""
    if body.align is None:
        return
    found = {plan.spec.n_components for plan in plans}
    if body.align == "truth" and truth is not None:
        told = require_dataset(stores, truth)
        found.add(2 if told.has_coordinates else told.d)
    if len(found) > 1:
        raise InvalidParameterError(
            f"align={body.align!r} needs one dimension; there are {', '.join(map(str, sorted(found)))}.",
            remedy="Give the same n_components everywhere, that of the truth where it is aligned to; or no align.",
        )


def _tried(
    stores: Stores, dataset: Dataset, body: ComparisonIn, plans: list[Plan], judged: Judgement, allowed: Allowance
) -> tuple[ComparisonSpec, list[Cost]]:
    """Return the comparison, with why rows are not even tried, and what the others are expected to take."""
    rows = [
        {"label": label, "method": plan.method.name, "parameters": plan.parameters, "problem": None}
        for label, plan in zip(body.labelled(), plans, strict=True)
    ]
    engine = stores.queue.numbers_for_new()
    spec = ComparisonSpec(dataset=dataset.id, methods=tuple(rows), align=body.align, engine=engine, **asdict(judged))
    there = stores.cache.present([spec.embedding(row).recipe.cache_key for row in rows])
    costs = []
    for row, plan, known in zip(rows, plans, there, strict=True):
        try:
            plan.require_possible(stores, dataset, labels=judged.labels is not None)
            if not known:
                require_affordable(plan.method, dataset.n, dataset.d, plan.spec, allowed)
                costs.append(plan.method.cost(dataset.n, dataset.d, plan.spec))
        except GlleError as error:
            row["problem"] = Problem.from_engine(error).to_dict()
        except ProblemError as error:
            row["problem"] = error.problem.to_dict()
    return spec, costs
