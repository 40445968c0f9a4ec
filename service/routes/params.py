"""Parameters and documented responses that several routes share."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import Depends, Path, Query, Request

from glle_engine.base.spec import Align, Source
from service.encoding.arrays import Dtype
from service.middleware.authentication import tenant_of
from service.schemas.labels import PATCH_BODY
from service.schemas.problems import documented
from service.schemas.resources import MAX_COUNTER, JobOut
from service.submission.idempotency import IN_USE, Key
from worker.stores import Stores


async def _stores(request: Request) -> Stores:
    """Return the stores, restricted to the request's tenant; async, because FastAPI calls a function in a thread."""
    stores = request.app.state.stores_of(tenant_of(request.scope))
    assert isinstance(stores, Stores)
    return stores


TenantStores = Annotated[Stores, Depends(_stores)]
Id = Annotated[str, Path(alias="id")]

Wait = Annotated[float, Query(ge=0, allow_inf_nan=False, description="Seconds to wait for the job to end.")]
# A query parameter like `wait`, because it concerns this request and not the identity of its result.
Deadline = Annotated[
    float | None,
    Query(
        gt=0,
        le=366 * 86400,
        allow_inf_nan=False,
        description="Seconds after which an unfinished job fails; of requests that share a job the latest counts.",
    ),
]


@dataclass(frozen=True)
class CommandOptions:
    """Options of a request that creates a job."""

    wait: float
    deadline: float | None
    key: str | None


async def _command(wait: Wait = 0.0, deadline: Deadline = None, key: Key = None) -> CommandOptions:
    return CommandOptions(wait, deadline, key)  # async, because FastAPI calls a class in a thread


Command = Annotated[CommandOptions, Depends(_command)]

IndexPath = Annotated[int, Path(ge=0, le=MAX_COUNTER, description="Index of the draw in the stream.")]
FirstQuery = Annotated[int, Query(ge=0, le=MAX_COUNTER, description="Index of the first draw.")]
SeedQuery = Annotated[int, Query(ge=0, le=MAX_COUNTER, description="Stream of draws.")]
ScaleQuery = Annotated[
    Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"],
    Query(description="Factor on the covariance; auto: the scale that half-sampling suggests."),
]
SourceQuery = Annotated[Source, Query(description="Law of the weights.")]
AlignQuery = Annotated[Align, Query(description="Whether to rotate the draw to the reference embedding.")]
DtypeQuery = Annotated[Dtype, Query(description="float32 halves the bytes.")]

ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobOut, "description": "The job is in progress: see Location and Retry-After."}
}
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "The client's copy is current."}}

LATE = {"_504": "The job did not end by its deadline."}
COMMAND = {"_413": "Body too long.", "_415": "Not JSON.", **LATE}
CANCELLED = {"_409": "The job was cancelled while this request waited. " + IN_USE}
NOT_FITTED = {"_404": "No such posterior.", "_409": "The fit is not complete, or its job was cancelled."}
ON_POSTERIOR = {**NOT_FITTED, "_409": f"{NOT_FITTED['_409']} {IN_USE}", **COMMAND}
ON_DATASET = {"_404": "No such data set.", **CANCELLED, **COMMAND}


def creates_job(**problems: str) -> dict[str, Any]:
    """Return the decorator arguments of a route that creates a job."""
    done = {200: {"model": JobOut, "description": "The job has succeeded: see links.result."}}
    return {"status_code": 202, "response_model": JobOut, "responses": {**done, **ACCEPTED, **documented(**problems)}}


def content(description: str, media: tuple[str, ...], **members: Any) -> dict[int | str, dict[str, Any]]:
    """Return the documentation of a 200 response in several media types."""
    return {200: {"description": description, "content": {name: {} for name in media}, **members}}


RENAME: dict[str, Any] = {
    "responses": documented(_404="No such id.", _413="Body too long.", _415="Not JSON.", _422="Invalid name or tags."),
    "openapi_extra": PATCH_BODY,
}
