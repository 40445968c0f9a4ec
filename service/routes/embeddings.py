"""`/v1/embeddings`: an embedding of a data set by any method."""

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from glle_engine.methods import method as method_of
from glle_engine.methods.registry import no_map
from service.encoding.arrays import CSV, JSON, NPY, NPZ
from service.encoding.media_types import ARROW
from service.encoding.result import Points, mutable_response, named_arrays_response
from service.responses.analyses import ResultQuery, ids_of, result_response
from service.routes import params
from service.routes.params import ANSWER_SECONDS, Id, TenantStores, Wait, creates_job
from service.schemas.analyses import (
    EmbeddingIn,
    EmbeddingOut,
    EmbeddingPage,
    ListedEmbeddingOut,
    PointsIn,
)
from service.schemas.derived import ArrayOut
from service.schemas.problems import failures
from service.schemas.results import CoordinatesOut
from service.submission.jobs import analysis_job, delete_embedding_of, job_response, load_or_compute
from service.submission.planning import Plan, scores_to_compute
from service.submission.validation import new_points, require_not_all_equal, require_storage
from worker.analyses.embedding import EmbeddingSpec, PlacementSpec, map_arrays
from worker.analyses.embedding_records import EmbeddingRecord
from worker.jobs.store import Job
from worker.records.cache_entry import Entry, file_bytes
from worker.stores import Stores

router = APIRouter(prefix="/v1/embeddings", tags=["embeddings"])

COORDINATES_MEDIA = (JSON, NPZ, NPY, ARROW, CSV)
_NO_EMBEDDING: dict[str, Any] = {"_404": "No such embedding (any more).", "_409": "Its job was cancelled."}


@router.post(
    "",
    summary="Embed by any method",
    **creates_job(**params.ON_DATASET, _422="Parameters, sizes, labels; or too much memory."),
)
async def embed(body: EmbeddingIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Embed a data set by any method of GET /v1/methods that makes embeddings.

    The result has `embedding` (n, p), `eigenvalues` of spectral methods, the method's `figures` and `notes`, `seconds`
    by stage, and `scores`. The embedding itself is a resource, `links.embedding`; its id is the digest of data set,
    method, all parameters, labels and engine version. A request whose arrays exceed the memory of a task is refused at
    once, with the largest number of points that fits.
    """
    return await job_response(stores, partial(_embed, stores, body), wait)


params.add_list(router, "embeddings", "List embeddings", "embeddings that were requested", EmbeddingPage)


params.add_rename(router, "embeddings", "Name and tag an embedding", ListedEmbeddingOut)


@router.get(
    "/{id}",
    summary="Describe an embedding",
    response_model=EmbeddingOut,
    responses={**params.NOT_MODIFIED, **params.ACCEPTED, **failures(**_NO_EMBEDDING)},
)
async def get_embedding(id_: Id, request: Request, stores: TenantStores, wait: Wait = ANSWER_SECONDS) -> Response:
    """Return method, parameters, figures, notes and times of an embedding, or 202 while it is computed.

    The embedding stays until someone deletes the embedding or its data set.
    """
    _, entry = await _record_and_entry(stores, id_, wait)
    return mutable_response(request, EmbeddingOut.from_entry(entry).model_dump_json())


@router.delete("/{id}", summary="Delete an embedding", status_code=204, responses=failures(_404="No such embedding."))
def delete_embedding(id_: Id, stores: TenantStores) -> Response:
    """Delete an embedding and its scores, and cancel its job; the data set and comparisons stay.

    POST /v1/embeddings computes the embedding again, with the same id.
    """
    delete_embedding_of(stores, stores.embeddings.fetch(id_))
    return Response(status_code=204)


@router.get(
    "/{id}/coordinates",
    summary="Read an embedding's coordinates",
    **params.returns_arrays(
        "The coordinates.",
        COORDINATES_MEDIA,
        CoordinatesOut,
        **_NO_EMBEDDING,
        _422="A slice that is out of range; or the reason why it could not be computed.",
    ),
)
async def get_coordinates(
    id_: Id,
    request: Request,
    stores: TenantStores,
    dtype: params.DtypeQuery = "float64",
    points: Points = None,
    wait: Wait = ANSWER_SECONDS,
) -> Response:
    """Return the coordinates of the points, (n, p): immutable, with a strong ETag.

    JSON has the description of the embedding, and `embedding` among its `arrays`; npz and npy have the array
    `embedding`; CSV and Arrow have one row for each point, with its `id` if it has one.
    """
    record, entry = await _record_and_entry(stores, id_, wait)
    query = ResultQuery(request, dtype, points, ids=ids_of(stores, record.recipe.dataset, record.spec))
    return await run_in_threadpool(result_response, record.spec, entry, query)


@router.get(
    "/{id}/arrays",
    summary="Read an embedding's arrays",
    **params.returns_arrays(
        "The arrays.",
        (NPZ, NPY, JSON),
        ArrayOut,
        **_NO_EMBEDDING,
        _422="No such array; or the reason why it could not be computed.",
    ),
)
async def get_embedding_arrays(
    id_: Id,
    request: Request,
    stores: TenantStores,
    name: Annotated[
        str | None, Query(max_length=60, description="One array, as npy or JSON; without a name all, as npz.")
    ] = None,
    dtype: params.DtypeQuery = "float64",
    wait: Wait = ANSWER_SECONDS,
) -> Response:
    """Return the arrays of an embedding: all as npz, or one by name as npy or JSON.

    `embedding` (n, p) has the coordinates; the other arrays place new points. PCA, PPCA and NPE have `mean` (d,) and
    `components` (p, d): the position of a point x is `components @ (x - mean)`. Kernel PCA has `kernel_means` (n,), the
    means of the columns of the kernel matrix.
    """
    _, entry = await _record_and_entry(stores, id_, wait)
    arrays = {"embedding": entry.arrays["embedding"], **map_arrays(entry)}
    sha256 = entry.meta["sha256"]
    return await run_in_threadpool(named_arrays_response, request, "embedding", sha256, arrays, name, dtype)


@router.post(
    "/{id}/transform",
    summary="Place new points in an embedding",
    **creates_job(
        _404="No such embedding, or data set.",
        **params.CANCELLED,
        **params.COMMAND,
        _422="The method has no map; other features than the training data; or a bad cell.",
    ),
)
async def transform_embedding(id_: Id, body: PointsIn, stores: TenantStores, wait: Wait = 0.0) -> Response:
    """Place each new point in an embedding by the embedding's map; a training point gets its coordinates.

    PCA, PPCA, kernel PCA, NPE, LLE, Isomap, t-SNE, UMAP and PaCMAP have a map (`has_map` in GET /v1/methods). The
    result has `embedding` (m, p).
    """
    return await job_response(stores, partial(_place, stores, id_, body), wait)


async def _record_and_entry(stores: Stores, id_: str, wait: float) -> tuple[EmbeddingRecord, Entry]:
    """Return the record and the result of an embedding, which is computed if it is missing.

    Raises `UnfinishedJobError` after `wait` seconds, and `ProblemError` if the job failed or was cancelled.
    """
    record = await run_in_threadpool(stores.embeddings.fetch, id_)
    submit = partial(_embedding_job, stores, record)
    return record, await load_or_compute(stores, record.spec, record.recipe.dataset, submit, wait)


def _embedding_job(stores: Stores, record: EmbeddingRecord) -> Job:
    """Return the job that computes an embedding whose result is not stored.

    This is the last job that was created for the embedding; it may have failed. A new job is created if there was none,
    or if the last one succeeded, because then its result has been deleted.
    """
    job = stores.jobs.claim_holder(record.claim)
    if job is not None and job.status != "succeeded":
        return job
    return analysis_job(stores, record.spec, posterior=None)


def _place(stores: Stores, id_: str, body: PointsIn) -> Job:
    """Return the job that places new points in an embedding; raise `InvalidParameterError` if the method cannot."""
    recipe = stores.embeddings.fetch(id_).recipe
    embedder = method_of(recipe.method)
    if embedder.restore is None:
        raise no_map(embedder.title)
    training = stores.datasets.fetch(recipe.dataset)
    dataset, (m, _), points = new_points(stores, body, training)
    parameters = embedder.spec.from_dict(recipe.parameters)
    metric = parameters.space[1]
    if metric == "precomputed" or (metric != "euclidean" and embedder.neighbor_map is None):
        raise no_map(f"{embedder.title} with metric={metric!r}")
    require_storage(stores, file_bytes((m, parameters.n_components)), f"The positions of {m:,} points")
    spec = PlacementSpec(dataset=dataset, embedding=recipe.id, recipe=asdict(recipe), engine=recipe.engine)
    return analysis_job(stores, spec, posterior=None, short=True, points=points)


def _embed(stores: Stores, body: EmbeddingIn) -> Job:
    dataset = stores.datasets.fetch(body.dataset)
    plan = Plan.from_method(body.method, body.parameters)
    uses = frozenset({"labels"} if plan.needs_labels else ())
    judged = scores_to_compute(stores, dataset, body, uses=uses)
    plan.require_possible(stores, dataset, labels=judged.labels is not None)
    method: dict[str, Any] = {"method": plan.method.name, "parameters": plan.parameters}
    spec = EmbeddingSpec(dataset=dataset.id, **method, **asdict(judged))
    if not (stores.has_embedding(spec.recipe.id) or stores.has_result(spec, dataset.id)):
        plan.require_memory(dataset.n, stores.settings)
        require_not_all_equal(stores, dataset)
    return analysis_job(stores, spec, posterior=None, short=plan.is_short(dataset.n))
