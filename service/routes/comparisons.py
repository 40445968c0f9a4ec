"""`/v1/comparisons`: several methods on one data set, side by side."""

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from glle_engine.base.errors import GlleError, InvalidParameterError
from service.routes.params import ON_DATASET, TenantStores, Wait, creates_job
from service.schemas.analyses import ComparisonIn
from service.submission.jobs import analysis_job, job_response
from service.submission.planning import (
    Plan,
    judgement,
)
from service.submission.validation import require_not_all_equal, require_storage
from worker.analyses.comparison import ComparisonSpec
from worker.analyses.embedding import ScoreSpec
from worker.base.problems import ProblemError, problem_of
from worker.jobs.store import Job
from worker.records.cache_entry import file_bytes
from worker.storage.datasets import Dataset
from worker.stores import Stores

router = APIRouter(prefix="/v1/comparisons", tags=["embeddings"])


@router.post(
    "",
    summary="Compare methods",
    **creates_job(**ON_DATASET, _422="An unknown method or parameter, or labels."),
)
async def compare(body: ComparisonIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Embed a data set by several methods, and judge each embedding by the same scores.

    The result has `rows`, one for each method in their order: `label`, `method`, `parameters`, `embedding` (its id)
    and `links`, `seconds`, `figures`, `eigenvalues`, `notes`, `scores`, and `problem`: the reason if the method cannot
    embed the data, has no room, or failed. The other methods continue. An existing embedding is not computed
    again. With `align` also the embeddings, by their labels, rotated and scaled for display.
    """
    return await job_response(stores, partial(_compare, stores, body), wait)


def _compare(stores: Stores, body: ComparisonIn) -> Job:
    dataset = stores.datasets.fetch(body.dataset)
    plans = [_plan(number, row) for number, row in enumerate(body.methods)]
    uses = {"labels"} if any(plan.method.labels for plan in plans) else set()
    uses |= {"truth"} if body.align == "truth" else set()
    judged = judgement(stores, dataset, body, uses=frozenset(uses), parameter="n_neighbors")
    _require_alignable(stores, body, plans, judged.truth)
    if body.align is not None:
        shapes = [(dataset.n, plan.spec.n_components) for plan in plans]
        require_storage(stores, file_bytes(*shapes), f"The embeddings of {dataset.n:,} points")

    require_not_all_equal(stores, dataset)
    spec = _comparison(stores, dataset, body, plans, judged)
    return analysis_job(stores, spec, posterior=None)


def _plan(number: int, row: Any) -> Plan:
    """Return the plan of a row; if it is refused, the problem has the number of the row."""
    try:
        return Plan.from_method(row.method, row.parameters)
    except InvalidParameterError as error:
        raise InvalidParameterError(
            f"methods.{number}: {error.message}", remedy=error.remedy, details={**error.details, "row": number}
        ) from None


def _require_alignable(stores: Stores, body: ComparisonIn, plans: list[Plan], truth: str | None) -> None:
    """Raise a problem if the embeddings, or the truth to which they are aligned, have different dimensions."""
    if body.align is None:
        return
    dimensions = {plan.spec.n_components for plan in plans}
    if body.align == "truth" and truth is not None:
        dataset = stores.datasets.fetch(truth)
        dimensions.add(2 if dataset.has_coordinates else dataset.d)
    if len(dimensions) > 1:
        raise InvalidParameterError(
            f"align={body.align!r} needs one dimension; these are {', '.join(map(str, sorted(dimensions)))}.",
            remedy="Use the same n_components in every row, for align='truth' the truth's; or leave align out.",
        )


def _comparison(
    stores: Stores,
    dataset: Dataset,
    body: ComparisonIn,
    plans: list[Plan],
    judged: ScoreSpec,
) -> ComparisonSpec:
    """Return the comparison; rows that cannot be computed have their problem."""
    rows = [
        {"label": label, "method": plan.method.name, "parameters": plan.parameters, "problem": None}
        for label, plan in zip(body.row_labels(), plans, strict=True)
    ]
    spec = ComparisonSpec(
        dataset=dataset.id,
        methods=tuple(rows),
        align=body.align,
        **asdict(judged),
    )
    for row, plan in zip(rows, plans, strict=True):
        try:
            plan.require_possible(stores, dataset, labels=judged.labels is not None)
            if not stores.has_embedding(spec.embedding(row).recipe.id):
                plan.require_memory(dataset.n, stores.settings)
        except (GlleError, ProblemError) as error:
            row["problem"] = problem_of(error).to_dict()
    return spec
