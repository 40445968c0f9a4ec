"""The methods that can be asked for, each with the schema of the request that asks for it.

Two make posteriors; all others are those of the engine's registry, and make embeddings.
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
    "published": "The equations as printed; the fit's diagnostics say what they do on the data.",
}


Makes = Literal["posterior", "embedding"]


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One method.

    Parameters
    ----------
    makes
        What is asked for with it.
    route
        Where it is asked for, with POST.
    growth
        How its time grows with n.
    needs_labels
        Whether it needs the class of each point.
    random
        Whether it has a seed.
    reproducible
        Whether the same request has the same bits on every processor.
    libraries, extra
        What it needs beside numpy and scipy, and the extra that brings it.

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
        """The JSON Schema of the request that asks for it."""
        raise NotImplementedError

    @property
    def missing(self) -> str | None:
        """The extra that is not installed here; None when nothing is missing."""
        return self.extra if any(find_spec(library) is None for library in self.libraries) else None


@dataclass(frozen=True, kw_only=True)
class PosteriorMethod(MethodEntry):
    """A method of `POST /v1/posteriors`; `without` are members of the body that have no meaning with it."""

    without: frozenset[str] = frozenset()

    @property
    def variants(self) -> dict[str, str]:
        """Name and description of each variant."""
        return _VARIANTS

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the request that asks for it."""
        return _schema(self, PosteriorIn, self.without)


@dataclass(frozen=True, kw_only=True)
class EmbeddingMethod(MethodEntry):
    """A method of `POST /v1/embeddings`."""

    @classmethod
    def of(cls, one: Method[Any]) -> EmbeddingMethod:
        """Return the entry of a method of the registry."""
        return cls(
            name=one.name,
            title=one.title,
            description=one.about,
            family=one.family,
            makes="embedding",
            route="/v1/embeddings",
            growth=one.growth,
            citations=(one.source,),
            needs_labels=one.labels,
            random=one.random,
            reproducible=one.reproducible,
            libraries=one.libraries,
            extra=one.extra,
        )

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON Schema of the request that asks for it; `parameters` has its own."""
        whole = _schema(self, EmbeddingIn, frozenset())
        own = registry.method(self.name).spec.schema()
        whole["properties"] = {**whole["properties"], "parameters": {**own, "title": f"Parameters of {self.name}"}}
        if self.needs_labels:
            whole["required"] = [*whole["required"], "labels"]
            whole["properties"]["labels"] = {**whole["properties"]["labels"], "type": "string"}
            whole["properties"]["labels"].pop("anyOf", None)
            whole["properties"]["labels"].pop("default", None)
        return whole


def _schema(entry: MethodEntry, request: type[BaseModel], without: frozenset[str]) -> dict[str, Any]:
    """Return the schema of a request whose method is constant."""
    schema = request.model_json_schema()
    kept = {name: value for name, value in schema["properties"].items() if name not in without}
    told = {name: value for name, value in kept["method"].items() if name not in {"enum", "default", "examples"}}
    kept["method"] = {**told, "const": entry.name}
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
"""By name, in the order in which they are told."""
