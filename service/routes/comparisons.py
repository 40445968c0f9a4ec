"""`/v1/comparisons`: embed a data set by several methods, and say which map to show."""

from dataclasses import asdict
from functools import partial
from typing import Any

from fastapi import APIRouter, Response

from glle_engine.audit.candidates import Candidate, candidates_of, default_candidates
from glle_engine.audit.options import AUDIT_NEIGHBORS
from glle_engine.base.errors import GlleError, InvalidParameterError
from glle_engine.base.texts import Way
from service.routes.params import ON_DATASET, TenantStores, Wait, creates_job
from service.schemas.analyses import ComparisonIn
from service.submission.jobs import analysis_job, job_response, shards_of
from service.submission.planning import (
    Plan,
    blocks_for_audit,
    classes_for_audit,
    map_of_plan,
    plan_to_audit,
    scores_to_compute,
)
from service.submission.validation import require_not_all_equal, require_storage
from worker.analyses.audit import AuditSpec
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
    **creates_job(**ON_DATASET, _422="An unknown method or parameter, or unsuitable labels."),
)
async def compare(body: ComparisonIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Compare maps of a data set, and say which to show: for neighbors, for distances across the map, for groups.

    Each method is audited on the same random halves of the data; methods that are clearly behind in all questions stop
    after two pairs of halves. All live workers share the work. While the job runs,
    GET /v1/jobs/{id}/result?partial=true has the rows so far. The result has

    - `sentences`: the answers in words, at most one sentence for each question, after what to do first, if anything;
    - `best`: for each question the label of the map to show, or null;
    - `as_good`: for each question the labels of the maps that are as good as the best one;
    - `asks`: what the audits of all maps ask for before a map is shown, or null;
    - `rows`: one for each method, in the order of the request.

    A row has

    - `label`, `title`, `method`, `parameters` and `notes`;
    - of the embedding: `embedding` (its id), `links`, `seconds`, `figures`, `eigenvalues` and `scores`;
    - of the audit: `level`, `verdict`, `lines`, `remains`, `facts`, and `is_preliminary`, whether the audit stopped
      early or still runs;
    - `problem`: why the method has no embedding: it cannot embed the data, there is not enough memory or storage for
      its result, or it failed. The other methods continue.

    The maps of the halves and the audits are stored, so that POST /v1/audits of a row that is not preliminary is done
    at once. With `align` the result also has the embeddings, by label, rotated and scaled for display. With `audit`
    false the rows have scores alone, and no map is chosen.
    """
    return await job_response(stores, partial(_compare, stores, body), wait)


def _compare(stores: Stores, body: ComparisonIn) -> Job:
    dataset = stores.datasets.fetch(body.dataset)
    candidates = (
        default_candidates(dataset.n, dataset.d)
        if body.methods is None
        else candidates_of([row.model_dump() for row in body.methods])
    )
    planned = [_plan(number, each, body) for number, each in enumerate(candidates)]
    plans = [plan for plan, _ in planned]
    uses = {"labels"} if any(plan.needs_labels for plan in plans) else set()
    uses |= {"truth"} if body.align == "truth" else set()
    judged = scores_to_compute(stores, dataset, body, uses=frozenset(uses))
    _require_alignable(stores, body, plans, judged.truth)
    if body.align is not None:
        shapes = [(dataset.n, plan.spec.n_components) for plan in plans]
        require_storage(stores, file_bytes(*shapes), f"The embeddings of {dataset.n:,} points")

    require_not_all_equal(stores, dataset)
    spec = _comparison(stores, dataset, body, candidates, planned, judged)
    return analysis_job(stores, spec, posterior=None, parts=shards_of(spec, "candidates"))


def _plan(number: int, candidate: Candidate, body: ComparisonIn) -> tuple[Plan, dict[str, Any]]:
    """Return the plan of one method (the method with the values of its parameters), and settings of its audit.

    The settings are the request's `standardize` and `metric`. They are {} if the plan has them as parameters of the
    method, or if the request wants no audits. Raises `InvalidParameterError`, which names the method by its `number` in
    the request.
    """
    space = {name: value for name in ("standardize", "metric") if (value := getattr(body, name)) is not None}
    try:
        if body.audit:
            return plan_to_audit(candidate.method, candidate.parameters, space)
        return Plan.from_method(candidate.method, candidate.parameters), {}
    except InvalidParameterError as error:
        raise InvalidParameterError(
            f"methods.{number}: " + error.message, remedy=error.remedy, details={**error.details, "row": number}
        ) from None


def _require_alignable(stores: Stores, body: ComparisonIn, plans: list[Plan], truth: str | None) -> None:
    """Raise `InvalidParameterError` if the embeddings, or the truth to align them to, have different dimensions."""
    if body.align is None:
        return
    dimensions = {plan.spec.n_components for plan in plans}
    if body.align == "truth" and truth is not None:
        dataset = stores.datasets.fetch(truth)
        dimensions.add(2 if dataset.has_coordinates else dataset.d)
    if len(dimensions) > 1:
        raise InvalidParameterError(
            f"{Way('align', body.align)} needs embeddings of equal dimensions, but they have "
            f"{', '.join(map(str, sorted(dimensions)))} dimensions.",
            remedy=f"Use the same {Way('n_components')} in every row, and with {Way('align', 'truth')} as many as "
            f"the truth has; or leave {Way('align')} out.",
        )


def _comparison(
    stores: Stores,
    dataset: Dataset,
    body: ComparisonIn,
    candidates: list[Candidate],
    planned: list[tuple[Plan, dict[str, Any]]],
    judged: ScoreSpec,
) -> ComparisonSpec:
    """Return the specification of a comparison, whose `methods` have an entry (a row) for each method.

    The row of a method that cannot run has the reason as its `problem`. `planned` is what `_plan` returned for each
    method, and `judged` says which scores to compute.
    """
    audited: dict[str, Any] = {}
    if body.audit:
        audited = {
            "labels": classes_for_audit(stores, dataset, body.labels),
            "blocks": blocks_for_audit(stores, dataset, body.blocks),
            "score_neighbors": min(AUDIT_NEIGHBORS, dataset.n - 1),
            "seed": body.seed,
        }
    rows: list[dict[str, Any]] = [
        {"label": each.label, "title": each.title, "method": plan.method.name, "parameters": plan.parameters,
         "problem": None, "audit": None}
        for each, (plan, _) in zip(candidates, planned, strict=True)
    ]  # fmt: skip
    spec = ComparisonSpec(
        dataset=dataset.id,
        methods=tuple(rows),
        audits=body.audit,
        standardize=body.standardize,
        metric=body.metric,
        align=body.align,
        **asdict(judged),
    )
    for row, (plan, space) in zip(rows, planned, strict=True):
        try:
            plan.require_possible(stores, dataset, labels=judged.labels is not None)
            if body.audit:
                plan.require_resamplable(dataset)
                row["audit"] = AuditSpec(
                    dataset=dataset.id, **map_of_plan(dataset.id, plan, space), **audited
                ).to_dict()
            recipe = spec.recipe_of(row)
            if recipe is None or not stores.has_embedding(recipe.id):
                plan.require_memory(dataset.n, stores.settings)
        except (GlleError, ProblemError) as error:
            row["problem"] = problem_of(error).to_dict()
    return spec
