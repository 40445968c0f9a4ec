"""`/v1/methods`: what can be asked for, with JSON Schemas."""

from typing import Annotated, Any

from fastapi import APIRouter, Path
from pydantic import BaseModel, Field

from service.methods import METHODS, MethodEntry
from service.problems import documented
from worker.problems import refuse

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
    variants: list[VariantOut]
    citations: list[str] = Field(description="Where it comes from.")
    links: dict[str, str] = Field(description="`self`, and `create`: where to POST the request.")

    @classmethod
    def of(cls, entry: MethodEntry) -> "MethodOut":
        """Return what is told of a method."""
        return cls(
            name=entry.name,
            title=entry.title,
            description=entry.description,
            parameters=entry.parameters(),
            variants=[VariantOut(name=name, description=told) for name, told in entry.variants.items()],
            citations=list(entry.citations),
            links={"self": f"/v1/methods/{entry.name}", "create": entry.route},
        )


class MethodList(BaseModel):
    """All methods."""

    items: list[MethodOut]


@router.get("", summary="List methods", responses=documented())
def list_methods() -> MethodList:
    """List the methods with the JSON Schemas of their parameters, their variants and where they come from."""
    return MethodList(items=[MethodOut.of(entry) for entry in METHODS.values()])


@router.get("/{name}", summary="Describe a method", responses=documented(_404="No such method."))
def get_method(name: Annotated[str, Path(description="Such as em.")]) -> MethodOut:
    """Tell one method as the list does."""
    if (entry := METHODS.get(name)) is None:
        remedy = f"Name one of {', '.join(METHODS)}."
        raise refuse("method-not-found", 404, f"There is no method {name[:50]!r}.", remedy, methods=list(METHODS))
    return MethodOut.of(entry)
