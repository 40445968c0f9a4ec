"""`/v1/methods` with the JSON Schemas of their requests, and `/v1/scores`."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from glle_engine.methods.registry import canonical, suggestion
from glle_engine.metrics.registry import SCORES
from service.schemas.embeddings import ScoreList, ScoreOut
from service.schemas.problems import documented
from service.submission.method_catalog import METHODS, Makes, MethodEntry
from worker.base.problems import refuse

router = APIRouter(tags=["methods"])


class VariantOut(BaseModel):
    """Variant of a method."""

    name: str
    description: str


class MethodOut(BaseModel):
    """Method."""

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
    variants: list[VariantOut] = Field(description="Variants of a posterior's law; empty for embeddings.")
    citations: list[str] = Field(description="Publications.")
    links: dict[str, str] = Field(description="`self`, and `create`: the path to POST the request to.")

    @classmethod
    def of(cls, entry: MethodEntry) -> "MethodOut":
        """Return the description of a catalog entry."""
        same = cls.model_fields.keys() - {"available", "missing_extra", "variants", "citations", "links"}
        return cls(
            **{name: getattr(entry, name) for name in same},
            available=entry.missing is None,
            missing_extra=entry.missing,
            variants=[VariantOut(name=name, description=text) for name, text in entry.variants.items()],
            citations=list(entry.citations),
            links={"self": f"/v1/methods/{entry.name}", "create": entry.route},
        )


class MethodList(BaseModel):
    """All methods."""

    items: list[MethodOut]


@router.get("/v1/methods", summary="List methods", responses=documented())
def list_methods(
    makes: Annotated[Makes | None, Query(description="Only methods with this result.")] = None,
) -> MethodList:
    """List the methods with the JSON Schemas of their requests, their growth and their publications."""
    return MethodList(items=[MethodOut.of(entry) for entry in METHODS.values() if makes in {None, entry.makes}])


@router.get("/v1/methods/{name}", summary="Describe a method", responses=documented(_404="No such method."))
def get_method(name: Annotated[str, Path(description="Such as em.")]) -> MethodOut:
    """Return one method, as in the list; other usual spellings of its name, such as tsne, are accepted."""
    if (entry := METHODS.get(canonical(name))) is None:
        remedy = f"{suggestion(name)}Use one of {', '.join(METHODS)}."
        raise refuse("method-not-found", 404, f"There is no method {name[:50]!r}.", remedy, methods=list(METHODS))
    return MethodOut.of(entry)


@router.get("/v1/scores", summary="List scores", responses=documented())
def list_scores() -> ScoreList:
    """List the scores of embeddings: their inputs, their direction, and their most points."""
    members = ScoreOut.model_fields
    return ScoreList(items=[ScoreOut(**{name: getattr(score, name) for name in members}) for score in SCORES.values()])
