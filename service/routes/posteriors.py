"""`/v1/posteriors`: fit, list, read, delete."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.base.validation import require_enough_points
from service.encoding.arrays import JSON, NPY, NPZ, Dtype, NpyResponse, Stack, json_response, negotiate, npz_response
from service.responses.conditional import RANGE_RESPONSES, immutable_headers, is_not_modified
from service.schemas.labels import PATCH_BODY, NameFilter, NamingIn, TagFilter
from service.schemas.problems import documented
from service.schemas.resources import JobOut, PosteriorIn, PosteriorOut, PosteriorPage
from service.submission.dependencies import Deadline, Here, accepted, delete_posterior_of, settle, submitted
from service.submission.idempotency import IN_USE, Answers, Key, remembered
from service.submission.pagination import Cursor, Limit, listed, position
from service.submission.validation import (
    require_dataset,
    require_not_all_equal,
    require_posterior,
    require_success,
    require_within,
)
from worker.base.numerics import numbers_for
from worker.base.problems import refuse
from worker.jobs.store import Job
from worker.records.ids import posterior_id
from worker.records.labels import is_called
from worker.records.priority import Priority, Terms, quick_fit
from worker.storage.posteriors import PosteriorRecord
from worker.stores import Stores

router = APIRouter(prefix="/v1/posteriors", tags=["posteriors"])

Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the job to end.")]
ArrayName = Literal["mean", "covariance_factor", "neighbors", "embedding", "eigenvalues", "sigma", "prior_factor"]

ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobOut, "description": "A job works on it: see Location, and Retry-After."}
}
LATE = {"_504": "The job had not ended by its deadline."}


@router.post(
    "",
    summary="Fit a posterior",
    status_code=202,
    response_model=None,
    responses={
        200: {"model": PosteriorOut, "description": "Known already."},
        201: {"model": PosteriorOut, "description": "Fitted within the wait."},
        **ACCEPTED,
        **documented(
            _404="No such data set.",
            _409="The job was cancelled while this request waited. " + IN_USE,
            _413="Body too long.",
            _415="Not JSON.",
            _422="Parameters, k >= n, all points equal; a disconnected graph if it is found within the wait.",
            **LATE,
        ),
    },
)
async def fit(body: PosteriorIn, here: Here, wait: Wait = 0.0, deadline: Deadline = None, key: Key = None) -> Response:
    """Fit a posterior over reconstruction weights on a worker.

    The id is the digest of data, specification and engine version: what is known is answered at once, and
    two requests at the same time share one job.
    """
    found = await run_in_threadpool(_posterior_or_job, here, body, deadline, key)
    if isinstance(found, PosteriorRecord):
        return _posterior(found, 200)
    job = await settle(here, found, wait)
    if job.is_open:
        return accepted(job)
    require_success(job)
    return _posterior(await run_in_threadpool(here.posteriors.fetch, job.subject), 201)


@router.get("", summary="List posteriors", response_model=PosteriorPage, responses=documented(_422="Bad cursor."))
async def list_posteriors(
    request: Request, here: Here, tag: TagFilter, name: NameFilter = None, limit: Limit = 20, cursor: Cursor = None
) -> Response:
    """List the posteriors, the newest first; all, or those of a name and of tags.

    A page looks at 1,000 records at most: with a filter it may be short, or empty, and `next` goes on.
    """
    found = here.posteriors.listed(position(cursor))
    called = ((at, one if one is not None and is_called(one, name, tag) else None) for at, one in found)
    return await listed(
        request, called, limit, lambda items, at: PosteriorPage(items=list(map(PosteriorOut.of, items)), next=at)
    )


@router.get(
    "/{id}",
    summary="Describe a posterior",
    response_model=PosteriorOut,
    responses={
        **ACCEPTED,
        **documented(_404="No such posterior.", _409="Its job was cancelled.", _422="Its fit failed: why."),
    },
)
def get_posterior(id: str, here: Here) -> Response:  # noqa: A002 # the name in the path
    """Tell specification, diagnostics, spectrum, cost and provenance; the problem, if the fit failed."""
    job = here.jobs.holder(id)
    if job is not None and here.posteriors.get(id) is None:
        job = here.queue.look(job)
        if job.is_open:
            return accepted(job)
    return _posterior(require_posterior(here, id), 200)


@router.get(
    "/{id}/arrays",
    summary="Read a posterior's arrays",
    response_class=Response,
    responses={
        200: {"description": "The arrays.", "content": {media: {} for media in (NPZ, NPY, JSON)}},
        **RANGE_RESPONSES,
        **ACCEPTED,
        **documented(
            _404="No such posterior.",
            _406="No offered type.",
            _409="Not fitted.",
            _416="A Range behind the last byte.",
            _422="Bad name.",
        ),
    },
)
def get_arrays(
    id: str,  # noqa: A002 # the name in the path
    request: Request,
    here: Here,
    name: Annotated[ArrayName | None, Query(description="One array, as npy or JSON; all as npz.")] = None,
    dtype: Annotated[Dtype, Query(description="Of the floating-point arrays.")] = "float64",
) -> Response:
    """Return all arrays as npz, or one by name as npy or JSON; evicted ones are fitted again (202).

    The ETag is strong, and npy answers Range.
    """
    record = require_posterior(here, id)
    media = negotiate(request, (NPZ,) if name is None else (NPY, JSON))
    if name is not None and name not in record.arrays:
        remedy = f"Name one of {', '.join(record.arrays)}."
        raise refuse("no-such-array", 422, f"This posterior has no array {name!r}.", remedy)
    sha256 = here.posteriors.entry_sha256(record)
    headers = {} if sha256 is None else immutable_headers(sha256, media, dtype, name or "")
    if headers and is_not_modified(request, headers):
        return Response(status_code=304, headers=headers)
    entry = here.posteriors.arrays(record)
    if entry is None:
        return accepted(_refit(here, record))
    if (sha256 := entry.meta.get("sha256")) is not None:  # the entry may have been written again meanwhile
        headers = immutable_headers(sha256, media, dtype, name or "")
    if name is None:
        return npz_response({key: Stack.of(array, dtype) for key, array in entry.arrays.items()}, headers)
    stack = Stack.of(entry.arrays[name], dtype)
    return NpyResponse(stack, headers) if media == NPY else json_response(stack, headers=headers)


@router.patch(
    "/{id}",
    summary="Name and tag a posterior",
    responses=documented(
        _404="No such posterior.", _413="Body too long.", _415="Not JSON.", _422="Too long, too many, or not known."
    ),
    openapi_extra=PATCH_BODY,
)
def rename_posterior(id: str, body: NamingIn, here: Here) -> PosteriorOut:  # noqa: A002 # the name in the path
    """Give a name and tags by a JSON merge patch: null takes away, what is absent stays, tags are replaced as a whole.

    They are no part of the content: id and ETags stay.
    """
    return PosteriorOut.of(here.posteriors.rename(id, body.changes()))


@router.delete("/{id}", summary="Delete a posterior", status_code=204, responses=documented(_404="None."))
def delete_posterior(id: str, here: Here) -> Response:  # noqa: A002 # the name in the path
    """Delete a posterior, its draws and what was made of them; its data set stays."""
    delete_posterior_of(here, here.posteriors.fetch(id))
    return Response(status_code=204)


def _posterior_or_job(
    here: Stores, body: PosteriorIn, deadline: float | None, key: str | None
) -> PosteriorRecord | Job:
    """Return the known posterior, or the job that fits it; refuse what can be seen without a fit."""
    spec = body.fit_spec()
    dataset = require_dataset(here, body.dataset)
    require_within(here, "n_neighbors", body.n_neighbors)
    require_within(here, "n_components", body.n_components)
    require_enough_points(dataset.n, spec)
    numbers = here.queue.numbers_for_new()
    id_ = posterior_id(dataset.id, spec.to_dict(), numbers)
    terms = Terms.within(deadline, _priority(dataset.n, dataset.d, spec.to_dict()))

    def known_or_fitted() -> PosteriorRecord | Job:
        if (record := here.posteriors.get(id_)) is not None:
            return record
        here.posteriors.require_room()
        require_not_all_equal(here, dataset)
        return _fit(here, id_, dataset.id, spec.to_dict(), numbers, terms)

    def recall(name: str) -> PosteriorRecord | Job | None:
        if name.startswith("post_"):
            return here.posteriors.get(name)
        job = here.jobs.get(name)
        is_gone = job is not None and job.status == "succeeded" and here.posteriors.get(job.subject) is None
        return None if is_gone else job  # a posterior that was deleted is fitted again

    answers = Answers[PosteriorRecord | Job](name=lambda made: made.id, recall=recall)
    return remembered(here, key, ("POST /v1/posteriors", body.model_dump()), known_or_fitted, answers)


def _priority(n: int, d: int, spec: dict[str, Any]) -> Priority:
    """Return ``interactive`` for what takes a moment: someone looks at it, most likely."""
    return "interactive" if quick_fit(n, d, spec) else "batch"


def _fit(here: Stores, id_: str, dataset: str, spec: dict[str, Any], numbers: str, terms: Terms) -> Job:
    asked = {"dataset": dataset, "spec": spec}
    return submitted(here, terms, kind="fit", claim=id_, posterior=id_, spec=asked, total=1, numbers=numbers)[0]


def _refit(here: Stores, record: PosteriorRecord) -> Job:
    terms = Terms(priority=_priority(record.n, record.d, record.spec))
    return _fit(here, record.id, record.dataset, record.spec, numbers_for(record.numbers), terms)


def _posterior(record: PosteriorRecord, status: int) -> Response:
    body = PosteriorOut.of(record).model_dump_json()
    return Response(body, status, {"Location": f"/v1/posteriors/{record.id}"}, "application/json")
