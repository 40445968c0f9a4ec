"""Catalog of methods, each with the JSON Schema of its request.

Two methods make posteriors; all methods of the engine's registry make embeddings.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal

from glle_engine import methods as registry
from service.schemas.embeddings import EmbeddingIn
from service.schemas.resources import PosteriorIn

if TYPE_CHECKING:
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
    growth
        Growth of its time with n.
    needs_labels
        Whether it needs the class of each point.
    random
        Whether it has a seed.
    has_map
        Whether its embeddings place new points.
    reproducible
        Whether the same request has the same bits on every processor.
    libraries, extra
        Libraries beside numpy and scipy, and the extra of the package that installs them.
    unused
        Members of the request body that it does not use.

    """

    name: str
    title: str
    description: str
    family: str
    makes: Makes
    growth: str
    citations: tuple[str, ...]
    needs_labels: bool = False
    random: bool = False
    has_map: bool = False
    reproducible: bool = False
    libraries: tuple[str, ...] = ()
    extra: str = ""
    variants: dict[str, str] = field(default_factory=dict)
    unused: frozenset[str] = frozenset()

    @classmethod
    def of(cls, method: Method[Any]) -> MethodEntry:
        """Return the entry of a method of the engine's registry."""
        return cls(
            name=method.name,
            title=method.title,
            description=method.about,
            family=method.family,
            makes="embedding",
            growth=method.growth,
            citations=(method.source,),
            needs_labels=method.labels,
            random=method.random,
            has_map=method.restore is not None,
            reproducible=method.reproducible,
            libraries=method.libraries,
            extra=method.extra,
        )

    @property
    def route(self) -> str:
        """Path of its POST request."""
        return f"/v1/{self.makes}s"

    @property
    def missing(self) -> str | None:
        """The extra that is not installed, or None."""
        return self.extra if any(find_spec(library) is None for library in self.libraries) else None

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of its request, with a constant method."""
        schema = (PosteriorIn if self.makes == "posterior" else EmbeddingIn).model_json_schema()
        properties = {name: value for name, value in schema["properties"].items() if name not in self.unused}
        constant = {k: v for k, v in properties["method"].items() if k not in {"enum", "default", "examples"}}
        properties["method"] = {**constant, "const": self.name}
        required = list(dict.fromkeys([*schema.get("required", []), "method"]))
        if self.makes == "embedding":
            parameters = registry.method(self.name).spec.schema()
            properties["parameters"] = {**parameters, "title": f"Parameters of {self.name}"}
        if self.needs_labels:
            required.append("labels")
            labels = {k: v for k, v in properties["labels"].items() if k not in {"anyOf", "default"}}
            properties["labels"] = {**labels, "type": "string"}
        return {
            **schema,
            "title": self.title,
            "description": self.description,
            "properties": properties,
            "required": required,
        }


def _posterior(name: str, title: str, description: str, *unused: str) -> MethodEntry:
    return MethodEntry(
        name=name,
        title=title,
        description=description,
        family="generative",
        makes="posterior",
        growth="n log n",
        has_map=True,
        reproducible=True,
        citations=(_GLLE, _LLE),
        variants=_VARIANTS,
        unused=frozenset(unused),
    )


_ENTRIES = (
    _posterior(
        "em",
        "GLLE, given the data",
        "GLLE by expectation maximisation (Algorithm 1): the law of the reconstruction weights that the data leave "
        "open. Draws of it are embeddings.",
        "mean",
    ),
    _posterior(
        "direct",
        "GLLE, given the data and LLE",
        "GLLE by direct sampling (Algorithm 2): the law of the reconstruction weights given the data and their LLE "
        "embedding.",
        "covariance",
        "max_iter",
        "tol",
    ),
    *map(MethodEntry.of, registry.METHODS.values()),
)
METHODS: dict[str, MethodEntry] = {entry.name: entry for entry in _ENTRIES}
"""Catalog by name, in display order."""
