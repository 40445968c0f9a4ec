"""Parameters and documented responses that several routes share, and the check of the query of every request."""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, Literal, get_args, get_origin

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import Query as QueryInfo
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError, create_model

from glle_engine.base.spec import Align
from service.encoding.arrays import JSON, NPY, Dtype
from service.encoding.result import NOTES_HEADER, SCALE_HEADER, changed_response, require_match
from service.middleware.requests import TENANT
from service.schemas.problems import failures, snake_case
from service.schemas.resources import (
    MAX_COUNTER,
    First,
    JobOut,
    NameFilter,
    NamingIn,
    Page,
    Seed,
    SourceQuery,
    TagFilter,
)
from service.submission.pagination import Cursor, Limit, page_response, position
from worker.analyses.posterior_analyses import MAX_SUMMARIZED
from worker.base.problems import ProblemError, refuse
from worker.observability.logging import redact_keys
from worker.stores import Stores

STRICT = "/v1/"  # only below this path unknown parameters are refused: browsers and load balancers add some elsewhere
_MIN_NAME_SIMILARITY = 0.6  # a name is suggested only if it is at least this similar
_PARAMETERS: dict[Callable[..., Any], dict[str, bool]] = {}  # results of `_query_parameters` by endpoint, as a cache
CONTENT_STAYS = "\n\nName and tags are not part of the content: its id and the ETags of its arrays stay."


async def _stores(request: Request) -> Stores:
    """Return the stores of the request's tenant; async, because FastAPI calls a plain function in a thread."""
    stores: Stores = request.app.state.stores_of(request.scope[TENANT])
    return stores


class DirectRoute(APIRoute):
    """Route without a body whose parameters one pydantic model checks, ten times as fast as FastAPI's dependencies."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return a function that checks the parameters and calls the endpoint; FastAPI documents the route as usual."""
        parameters = [*self.dependant.path_params, *self.dependant.query_params]
        where = {field.alias: field.field_info.in_.value for field in parameters}  # type: ignore[attr-defined] # of fastapi.params
        fields: dict[str, Any] = {field.name: (field.field_info.annotation, field.field_info) for field in parameters}
        model = create_model("Parameters", **fields)

        async def handle(request: Request) -> Response:
            query = request.query_params
            if not where.keys() >= query.keys() or len(query) < len(query.multi_items()):
                await require_known_query(request)
            try:
                values = model.model_validate({**query, **request.path_params})
            except ValidationError as error:
                errors = [{**each, "loc": (where[str(each["loc"][0])], *each["loc"])} for each in error.errors()]
                raise RequestValidationError(errors) from None
            response: Response = await self.endpoint(request, **values.__dict__)
            return response

        return handle


async def require_known_query(request: Request) -> None:
    """Raise `ProblemError` if the query has a parameter that the route does not know, or wrongly repeats a parameter.

    A result may be cached for a year, so a misspelled parameter must not be ignored. Every route depends on this
    function, which is async because FastAPI would call a plain function in a thread.
    """
    query = request.query_params
    route = request.scope["route"]
    if not query or not isinstance(route, APIRoute) or not request.scope["path"].startswith(STRICT):
        return
    is_list = _query_parameters(route)
    if unknown := [redact_keys(name)[:50] for name in query if name not in is_list]:
        raise _unknown_parameter(request.method, route, unknown, sorted(is_list))
    counts = Counter(name for name, _ in query.multi_items())
    if repeated := next((name for name, count in counts.items() if count > 1 and not is_list[name]), ""):
        lists = ", ".join(sorted(name for name, several in is_list.items() if several))
        raise refuse(
            "repeated-parameter",
            422,
            f"The query has the parameter {repeated!r} several times; one value is allowed.",
            f"Send it once. Only {lists} may be repeated." if lists else "Send it once.",
            parameter=repeated,
        )


def _query_parameters(route: APIRoute) -> dict[str, bool]:
    """Return the query parameters of a route by name, each with whether it may be repeated."""
    if (known := _PARAMETERS.get(route.endpoint)) is None:
        fields = [field for field in get_flat_params(route.dependant) if isinstance(field.field_info, QueryInfo)]
        hints = [(field.alias, field.field_info.annotation) for field in fields]
        known = {name: list in {get_origin(member) for member in (hint, *get_args(hint))} for name, hint in hints}
        _PARAMETERS[route.endpoint] = known
    return known


def _unknown_parameter(method: str, route: APIRoute, unknown: list[str], accepted: list[str]) -> ProblemError:
    """Return the error for unknown query parameters, which suggests the parameter that was probably meant."""
    name = unknown[0]
    body = None if route.body_field is None else route.body_field.field_info.annotation
    near = _nearest(name, accepted)
    member = _nearest(name, sorted(getattr(body, "model_fields", ())))
    hint = f"Did you mean {near}? " if near else ""
    if member and (not near or member == name):
        hint = f"Did you mean {member} of the JSON body? "
    takes = f"This route takes {', '.join(accepted)}." if accepted else "This route takes no query parameters."
    return refuse(
        "unknown-parameter",
        422,
        f"{method} {route.path} has no query parameter {name!r}.",
        hint + takes,
        parameter=name,
        unknown=unknown,
        suggestion=near or None,
        accepted=accepted,
    )


def _nearest(name: str, names: list[str]) -> str:
    """Return the one of `names` that is most similar to a misspelled name; an empty text if none is similar."""
    return next(iter(get_close_matches(snake_case(name), names, 1, _MIN_NAME_SIMILARITY)), "")


TenantStores = Annotated[Stores, Depends(_stores)]
Id = Annotated[str, Path(alias="id")]

# Every POST has this parameter, and every GET that may answer with a job. The default is 0, or ANSWER_SECONDS if the
# response is a result that is computed on demand.
Wait = Annotated[
    float,
    Query(
        ge=0,
        allow_inf_nan=False,
        description="Seconds to wait for the job to end, at most 60; then 202. A request without a job "
        "answers at once.",
    ),
]
ANSWER_SECONDS = 10.0


async def _at_once(wait: Wait = 0.0) -> None:
    """Accept `wait` on a POST that makes no job, so that a client can send `wait` with every POST."""


AT_ONCE: Any = {"dependencies": [Depends(_at_once)]}

IndexPath = Annotated[int, Path(ge=0, le=MAX_COUNTER, description="Index of the draw among those with its seed.")]
ScaleQuery = Annotated[
    Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"],
    Query(description="Factor on the covariance; auto: draws then spread as random halves of the data do."),
]


@dataclass(frozen=True)
class SummaryQuery:
    """Query parameters of a summary: which draws it summarizes."""

    n_draws: Annotated[
        int, Query(ge=2, le=MAX_SUMMARIZED, description="Draws; a hundred or more rank points by their spread.")
    ] = 100
    first: First = 0
    seed: Seed = 0
    scale: Annotated[
        Annotated[float, Query(ge=0, allow_inf_nan=False)] | Literal["auto"] | None,
        Query(
            description="Factor on the covariance of the draws. auto: the scale at which draws spread as halves of the "
            "data do, the default where halves can measure the posterior; for others it is 1."
        ),
    ] = None
    source: SourceQuery = "posterior"


Summary = Annotated[SummaryQuery, Depends()]

AlignQuery = Annotated[Align, Query(description="Whether to rotate the draw to the reference embedding.")]
DtypeQuery = Annotated[Dtype, Query(description="float32 halves the bytes.")]

ACCEPTED: dict[int | str, dict[str, Any]] = {
    202: {"model": JobOut, "description": "The job is in progress: see Location and Retry-After."}
}
NOT_MODIFIED: dict[int | str, dict[str, Any]] = {304: {"description": "The client's copy is current."}}
SCALE_DOCUMENTED = {
    SCALE_HEADER: {"description": "The scale, a number.", "schema": {"type": "string"}},
    NOTES_HEADER: {
        "description": "Codes of the doubts about the scale, if it is auto and has any: scale-saturated,"
        " scale-not-matched, scale-poorly-correlated.",
        "schema": {"type": "string"},
    },
}

COMMAND = {"_413": "Body too long.", "_415": "Not JSON."}
CANCELLED = {"_409": "The job was cancelled while this request waited."}
NOT_FITTED: dict[str, Any] = {
    "_404": "No such posterior.",
    "_409": "The fit is not complete, or its job was cancelled.",
}
ON_POSTERIOR = {**NOT_FITTED, **COMMAND}
ON_DATASET = {"_404": "No such data set.", **CANCELLED, **COMMAND}


def creates_job(**problems: str) -> dict[str, Any]:
    """Return the arguments for the decorator of a route that creates a job.

    `problems` are texts about error statuses, such as ``_404="No such job."`` (see `failures`).
    """
    done = {200: {"model": JobOut, "description": "The job has succeeded: see links.result."}}
    return {"status_code": 202, "response_model": JobOut, "responses": {**done, **ACCEPTED, **failures(**problems)}}


def body_content(media: Iterable[str]) -> dict[str, Any]:
    """Return OpenAPI's `content` of a body that may have any of these media types.

    JSON is left out, because the caller describes it by a model or a schema.
    """
    texts = {name for name in media if name.startswith("text/")}
    binary = {"type": "string", "format": "binary"}
    return {name: {"schema": {"type": "string"} if name in texts else dict(binary)} for name in media if name != JSON}


def returns_arrays(
    description: str,
    media: tuple[str, ...],
    model: type[BaseModel] | None = None,
    *,
    has_scale: bool = False,
    may_be_job: bool = True,
    **problems: str,
) -> dict[str, Any]:
    """Return the arguments for the decorator of a route whose immutable result is available in several media types.

    `model` describes the JSON. `has_scale` documents the headers with the scale of draws, and `may_be_job` the status
    202. `problems` are texts about error statuses, such as ``_404="No such job."`` (see `failures`).
    """
    done: dict[str, Any] = {"description": description, "content": body_content(media)}
    done |= {"model": model} if model else {}
    done |= {"headers": SCALE_DOCUMENTED} if has_scale else {}
    responses: dict[int | str, dict[str, Any]] = {200: done, **NOT_MODIFIED}
    if may_be_job:
        responses |= ACCEPTED
    if NPY in media:
        responses[206] = {"description": "The requested Range of npy.", "content": body_content((NPY,))}
        problems["_416"] = "A Range beyond the last byte."
    problems["_406"] = "No offered type is accepted."
    return {"response_class": Response, "responses": responses | failures(**problems)}


def add_list(
    router: APIRouter, kind: Literal["datasets", "posteriors", "embeddings"], summary: str, which: str, page: type[Page]
) -> None:
    """Add to the router a GET that lists the records of the store `kind`, in pages of the model `page`.

    `which` names the records in the description of the route.
    """
    item = page.model_fields["items"].annotation.__args__[0]  # type: ignore[union-attr] # a list

    async def list_records(
        stores: TenantStores, tag: TagFilter, name: NameFilter = None, limit: Limit = 20, cursor: Cursor = None
    ) -> Response:
        records = getattr(stores, kind).newest(position(cursor), name=name, tags=tag)
        return await page_response(records, limit, item.from_record)

    description = (
        f"List the {which}, the newest first; all, or those with a name and tags.\n\n"
        "A page reads at most 1,000 records. With a filter it may be short or empty, and `next` continues."
    )
    documented = {"name": f"list_{kind}", "summary": summary, "description": description, "response_model": page}
    router.add_api_route("", list_records, **documented, responses=failures(_422="Bad cursor."))  # type: ignore[arg-type] # of each


def add_rename(
    router: APIRouter, kind: Literal["datasets", "posteriors", "embeddings"], summary: str, out: Any, ending: str = ""
) -> None:
    """Add to the router a PATCH of ``/{id}``, which sets name and tags of a record of the store `kind`.

    The route answers with the record as the model `out`. `ending` is added to the description of the route.
    """

    def body_of(record: Any) -> str:
        text: str = out.from_record(record).model_dump_json()
        return text

    def rename(id_: Id, body: NamingIn, request: Request, stores: TenantStores) -> Response:
        store = getattr(stores, kind)
        record = store.rename(id_, body.changes(), lambda record: require_match(request, body_of(record)))
        return changed_response(body_of(record))

    description = (
        "Set name and tags by a JSON merge patch: null removes, an absent member stays, tags are replaced as a whole. "
        "The media type application/merge-patch+json is accepted, too. With `If-Match`, the ETag of an earlier answer, "
        "nothing changes if the resource was changed meanwhile."
    )
    router.add_api_route(
        "/{id}",
        rename,
        methods=["PATCH"],
        name=f"rename_{kind.removesuffix('s')}",
        summary=summary,
        description=description + ending,
        response_model=out,
        responses=failures(
            _404="No such id.",
            _412="Changed meanwhile: If-Match names another ETag.",
            _413="Body too long.",
            _415="Not JSON.",
            _422="Invalid name or tags.",
        ),
    )
