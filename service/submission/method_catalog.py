"""Catalog of methods, each with the JSON Schema of its request.

Two methods make posteriors; all methods of the engine's registry make embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from glle_engine import methods as registry
from service.schemas.embeddings import EmbeddingIn
from service.schemas.resources import PosteriorIn

if TYPE_CHECKING:
    from pydantic import BaseModel

    from glle_engine.methods import Method

_GLLE = "B. Ghojogh, A. Ghodsi, F. Karray, M. Crowley, Generative Locally Linear Embedding, arXiv:2104.01525 (2021)."
_LLE = (
    "S. T. Roweis, L. K. Saul, Nonlinear Dimensionality Reduction by Locally Linear Embedding, Science 290, 2323-2326"
    " (2000), doi:10.1126/science.290.5500.2323."
)
_VARIANTS = {
    "constrained": "The weights of a point keep their sum of one, and reconstruction noise is modelled: draws do not "
    "change when the data are shifted, turned or rescaled, and scale 0 is LLE.",
    "published": "The equations as published; the fit's diagnostics describe their effect on the data.",
}

Makes = Literal["posterior", "embedding"]


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """Entry of one method.

    Parameters
    ----------
    route
        Path of its POST request.
    growth
        Growth of its time with n.
    needs_labels
        Whether it needs the class of each point.
    random
        Whether it has a seed.
    reproducible
        Whether the same request has the same bits on every processor.
    libraries, extra
        Libraries beside numpy and scipy, and the extra of the package that installs them.

    """

    name: str
    title: str
    description: str
    family: str
    makes: Makes
    route: str
    growth: str
    citations: tuple[str, ...]
    needs_labels: bool = False
    random: bool = False
    reproducible: bool = False
    libraries: tuple[str, ...] = ()
    extra: str = ""

    @property
    def variants(self) -> dict[str, str]:
        """Name and description of each variant."""
        return {}

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its request."""
        raise NotImplementedError

    @property
    def missing(self) -> str | None:
        """The extra that is not installed, or None."""
        return self.extra if any(find_spec(library) is None for library in self.libraries) else None


@dataclass(frozen=True, kw_only=True)
class PosteriorMethod(MethodEntry):
    """Method of `POST /v1/posteriors`; `without` lists the members of the body that it does not use."""

    without: frozenset[str] = frozenset()

    @property
    def variants(self) -> dict[str, str]:
        """Name and description of each variant."""
        return _VARIANTS

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its request."""
        return _schema(self, PosteriorIn, self.without)


@dataclass(frozen=True, kw_only=True)
class EmbeddingMethod(MethodEntry):
    """Method of `POST /v1/embeddings`."""

    @classmethod
    def of(cls, method: Method[Any]) -> EmbeddingMethod:
        """Return the entry of a method of the registry."""
        return cls(
            name=method.name,
            title=method.title,
            description=method.about,
            family=method.family,
            makes="embedding",
            route="/v1/embeddings",
            growth=method.growth,
            citations=(method.source,),
            needs_labels=method.labels,
            random=method.random,
            reproducible=method.reproducible,
            libraries=method.libraries,
            extra=method.extra,
        )

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its request, with the schema of the method in `parameters`."""
        schema = _schema(self, EmbeddingIn, frozenset())
        own = registry.method(self.name).spec.schema()
        schema["properties"] = {**schema["properties"], "parameters": {**own, "title": f"Parameters of {self.name}"}}
        if self.needs_labels:
            schema["required"] = [*schema["required"], "labels"]
            schema["properties"]["labels"] = {**schema["properties"]["labels"], "type": "string"}
            schema["properties"]["labels"].pop("anyOf", None)
            schema["properties"]["labels"].pop("default", None)
        return schema


def _schema(entry: MethodEntry, request: type[BaseModel], without: frozenset[str]) -> dict[str, Any]:
    """Return the schema of a request with a constant method."""
    schema = request.model_json_schema()
    kept = {name: value for name, value in schema["properties"].items() if name not in without}
    field = {name: value for name, value in kept["method"].items() if name not in {"enum", "default", "examples"}}
    kept["method"] = {**field, "const": entry.name}
    required = list(dict.fromkeys([*schema.get("required", []), "method"]))
    return {
        **schema,
        "title": entry.title,
        "description": entry.description,
        "properties": kept,
        "required": required,
    }


_POSTERIORS = (
    PosteriorMethod(
        name="em",
        title="GLLE, given the data",
        description="GLLE by expectation maximisation (Algorithm 1): the law of the reconstruction weights that "
        "the data leave open. Draws of it are embeddings.",
        family="generative",
        makes="posterior",
        route="/v1/posteriors",
        growth="n log n",
        reproducible=True,
        citations=(_GLLE, _LLE),
        without=frozenset({"mean"}),
    ),
    PosteriorMethod(
        name="direct",
        title="GLLE, given the data and LLE",
        description="GLLE by direct sampling (Algorithm 2): the law of the reconstruction weights given the data "
        "and their LLE embedding, too.",
        family="generative",
        makes="posterior",
        route="/v1/posteriors",
        growth="n log n",
        reproducible=True,
        citations=(_GLLE, _LLE),
        without=frozenset({"covariance", "max_iter", "tol"}),
    ),
)

METHODS: dict[str, MethodEntry] = {
    entry.name: entry for entry in (*_POSTERIORS, *map(EmbeddingMethod.of, registry.METHODS.values()))
}
"""Catalog by name, in display order."""
