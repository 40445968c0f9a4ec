"""`/v1/methods` with the JSON Schemas of their requests, and `/v1/scores`.

Two methods make posteriors; all methods of the engine's registry make embeddings.
"""

from functools import cache
from importlib.util import find_spec
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from glle_engine import methods as registry
from glle_engine.methods.registry import canonical, suggestion
from glle_engine.metrics.registry import SCORES
from service.schemas.addresses import address
from service.schemas.analyses import EmbeddingIn, ScoreList, ScoreOut
from service.schemas.problems import failures
from service.schemas.resources import PosteriorIn
from worker.base.problems import refuse

router = APIRouter(tags=["methods"])

_GLLE = "B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, Generative Locally Linear Embedding, arXiv:2104.01525 (2021)."
_LLE = (
    "S. T. Roweis, L. K. Saul, Nonlinear Dimensionality Reduction by Locally Linear Embedding, Science 290, 2323-2326"
    " (2000), doi:10.1126/science.290.5500.2323."
)
_VARIANTS = {
    "constrained": "The weights of a point keep their sum of one, and reconstruction noise is modeled: draws do not "
    "change when the data are shifted, turned or rescaled, and scale 0 is LLE.",
    "published": "The equations as published; the fit's diagnostics describe their effect on the data.",
}
# By the name of a method: title, description, and the members of the request that the method does not use.
_POSTERIORS = {
    "em": (
        "GLLE, given the data",
        (
            "GLLE by expectation maximization (Algorithm 1): the distribution of the reconstruction weights that the "
            "data leave open. Draws of it are embeddings."
        ),
        {"mean"},
    ),
    "direct": (
        "GLLE, given the data and LLE",
        (
            "GLLE by direct sampling (Algorithm 2): the distribution of the reconstruction weights given the data and "
            "their LLE embedding."
        ),
        {"covariance", "max_iter", "tol"},
    ),
}

Makes = Literal["posterior", "embedding"]


class VariantOut(BaseModel):
    """A variant of a method, which a request chooses by name."""

    name: str
    description: str


class MethodOut(BaseModel):
    """A method that makes posteriors or embeddings."""

    name: str = Field(description="Name in requests.", examples=["em"])
    title: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of its request.")
    makes: Makes = Field(description="Result of its request: a posterior to draw from, or one embedding.")
    family: str = Field(examples=["spectral"])
    growth: str = Field(description="Growth of its time with n.", examples=["n log n"])
    needs_labels: bool = Field(description="Whether it needs the class of each point.")
    random: bool = Field(description="Whether it has a seed that changes the embedding.")
    has_map: bool = Field(description="Whether its results place new points: POST .../transform.")
    reproducible: bool = Field(
        description="Whether the same request has the same bits on every processor; else the last digits depend on "
        "BLAS kernels and the mathematical library."
    )
    available: bool = Field(description="Whether its libraries are installed.")
    missing_extra: str | None = Field(
        description="The extra of the package that installs them, if they are missing; else null."
    )
    variants: list[VariantOut] = Field(description="Variants of a posterior's distribution; empty for embeddings.")
    citations: list[str] = Field(description="Publications.")
    links: dict[str, str] = Field(description="`self`, and `create`: the path to POST the request to.")


class MethodList(BaseModel):
    """All methods of posteriors and embeddings, in display order."""

    items: list[MethodOut]


@router.get("/v1/methods", summary="List methods", responses=failures())
def list_methods(
    makes: Annotated[Makes | None, Query(description="Only methods with this result.")] = None,
) -> MethodList:
    """List the methods: for each the JSON Schema of its requests, how its time grows with n, and its publications."""
    return MethodList(items=[_linked(method) for method in catalog().values() if makes in {None, method.makes}])


@router.get("/v1/methods/{name}", summary="Describe a method", responses=failures(_404="No such method."))
def get_method(name: Annotated[str, Path(description="Such as em.")]) -> MethodOut:
    """Return one method, as in GET /v1/methods; other usual spellings of its name, such as tsne, are accepted."""
    methods = catalog()
    if (method := methods.get(canonical(name))) is None:
        remedy = f"{suggestion(name)}Use one of {', '.join(methods)}."
        raise refuse("method-not-found", 404, f"There is no method {name[:50]!r}.", remedy, methods=list(methods))
    return _linked(method)


def _linked(method: MethodOut) -> MethodOut:
    """Return a copy of a method's description, with the path prefix of the current request in its links."""
    return method.model_copy(update={"links": {name: address(path) for name, path in method.links.items()}})


@router.get("/v1/scores", summary="List scores", responses=failures())
def list_scores() -> ScoreList:
    """List the scores of embeddings: their inputs, whether high or low is better, and their limits on points."""
    members = ScoreOut.model_fields
    return ScoreList(items=[ScoreOut(**{name: getattr(score, name) for name in members}) for score in SCORES.values()])


@cache
def catalog() -> dict[str, MethodOut]:
    """Return the descriptions of all methods by name, in display order; links have no path prefix (see `_linked`)."""
    methods = [*map(_posterior, _POSTERIORS), *map(embedding_method, registry.METHODS.values())]
    return {method.name: method for method in methods}


def _posterior(name: str) -> MethodOut:
    title, description, unused = _POSTERIORS[name]
    return MethodOut(
        name=name,
        title=title,
        description=description,
        parameters=_request_schema(PosteriorIn, name, title, description, unused),
        makes="posterior",
        family="generative",
        growth="n log n",
        needs_labels=False,
        random=False,
        has_map=True,
        reproducible=True,
        available=True,
        missing_extra=None,
        variants=[VariantOut(name=variant, description=text) for variant, text in _VARIANTS.items()],
        citations=[_GLLE, _LLE],
        links={"self": f"/v1/methods/{name}", "create": "/v1/posteriors"},
    )


def embedding_method(method: registry.Method[Any]) -> MethodOut:
    """Return the description of a method that makes embeddings, from the engine's registry."""
    schema = _request_schema(EmbeddingIn, method.name, method.title, method.about)
    properties = schema["properties"]
    properties["parameters"] = {**method.spec.schema(), "title": f"Parameters of {method.name}"}
    if method.labels:
        schema["required"].append("labels")
        labels = {k: v for k, v in properties["labels"].items() if k not in {"anyOf", "default"}}
        properties["labels"] = {**labels, "type": "string"}
    available = all(find_spec(library) is not None for library in method.libraries)
    return MethodOut(
        **{name: getattr(method, name) for name in ("name", "title", "family", "growth", "random", "reproducible")},
        description=method.about,
        parameters=schema,
        makes="embedding",
        needs_labels=method.labels,
        has_map=method.restore is not None,
        available=available,
        missing_extra=None if available else method.extra,
        variants=[],
        citations=[method.source],
        links={"self": f"/v1/methods/{method.name}", "create": "/v1/embeddings"},
    )


def _request_schema(
    model: type[BaseModel], name: str, title: str, description: str, unused: set[str] | frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the JSON Schema of requests for the method `name`, without the members `unused`."""
    schema = model.model_json_schema()
    properties = {member: value for member, value in schema["properties"].items() if member not in unused}
    constant = {k: v for k, v in properties["method"].items() if k not in {"enum", "default", "examples"}}
    properties["method"] = {**constant, "const": name}
    required = list(dict.fromkeys([*schema.get("required", []), "method"]))
    return {**schema, "title": title, "description": description, "properties": properties, "required": required}
