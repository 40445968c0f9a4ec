"""`/v1/methods`: what can be asked for, with JSON Schemas."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field

from service.schemas.problems import documented
from service.submission.method_catalog import METHODS, Makes, MethodEntry
from worker.base.problems import refuse

router = APIRouter(prefix="/v1/methods", tags=["methods"])


class VariantOut(BaseModel):
    """A variant of a method."""

    name: str
    description: str


class MethodOut(BaseModel):
    """A method."""

    name: str = Field(description="What a request calls it.", examples=["em"])
    title: str
    description: str
    parameters: dict[str, Any] = Field(description="JSON Schema of the request that asks for it.")
    makes: Makes = Field(description="What is asked for with it: a posterior, of which to draw, or one embedding.")
    family: str = Field(examples=["spectral"])
    growth: str = Field(description="How its time grows with n.", examples=["n log n"])
    needs_labels: bool = Field(description="Whether it needs the class of each point.")
    random: bool = Field(description="Whether it has a seed: another one gives another embedding.")
    reproducible: bool = Field(
        description="Whether the same request has the same bits on every processor; else BLAS kernels and the "
        "mathematical library decide about the last digits."
    )
    available: bool = Field(description="Whether what it needs is installed here.")
    missing_extra: str | None = Field(description="The extra of the package that would bring it; else null.")
    variants: list[VariantOut] = Field(description="Of a posterior's law; none of embeddings.")
    citations: list[str] = Field(description="Where it comes from.")
    links: dict[str, str] = Field(description="`self`, and `create`: where to POST the request.")

    @classmethod
    def of(cls, entry: MethodEntry) -> "MethodOut":
        """Return what is told of a method."""
        return cls(
            name=entry.name,
            title=entry.title,
            description=entry.description,
            parameters=entry.parameters,
            makes=entry.makes,
            family=entry.family,
            growth=entry.growth,
            needs_labels=entry.needs_labels,
            random=entry.random,
            reproducible=entry.reproducible,
            available=entry.missing is None,
            missing_extra=entry.missing,
            variants=[VariantOut(name=name, description=told) for name, told in entry.variants.items()],
            citations=list(entry.citations),
            links={"self": f"/v1/methods/{entry.name}", "create": entry.route},
        )


class MethodList(BaseModel):
    """All methods."""

    items: list[MethodOut]


@router.get("", summary="List methods", responses=documented())
def list_methods(
    makes: Annotated[Makes | None, Query(description="Only methods that make this.")] = None,
) -> MethodList:
    """List the methods with the JSON Schemas of their requests, how they grow, and where they come from."""
    return MethodList(items=[MethodOut.of(entry) for entry in METHODS.values() if makes in {None, entry.makes}])


@router.get("/{name}", summary="Describe a method", responses=documented(_404="No such method."))
def get_method(name: Annotated[str, Path(description="Such as em.")]) -> MethodOut:
    """Tell one method as the list does."""
    if (entry := METHODS.get(name)) is None:
        remedy = f"Name one of {', '.join(METHODS)}."
        raise refuse("method-not-found", 404, f"There is no method {name[:50]!r}.", remedy, methods=list(METHODS))
    return MethodOut.of(entry)
