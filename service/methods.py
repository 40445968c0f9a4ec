"""The methods that can be asked for, each with the schema of its parameters: a table to which others can be added."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from service.models import PosteriorIn

if TYPE_CHECKING:
    from pydantic import BaseModel

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


@dataclass(frozen=True, kw_only=True)
class MethodEntry:
    """One method.

    Parameters
    ----------
    route
        Where it is asked for, with POST.
    request
        The model of that request's body.
    choice
        The member of the body that names the method; in the schema it is constant.
    without
        Members of the body that have no meaning with this method.
    variants
        Name and description of each.

    """

    name: str
    title: str
    description: str
    route: str
    request: type[BaseModel]
    choice: str
    without: frozenset[str] = frozenset()
    variants: dict[str, str]
    citations: tuple[str, ...]

    def parameters(self) -> dict[str, Any]:
        """Return the JSON Schema of the request that asks for it."""
        schema = self.request.model_json_schema()
        kept = {name: value for name, value in schema["properties"].items() if name not in self.without}
        told = {name: value for name, value in kept[self.choice].items() if name not in {"enum", "default"}}
        kept[self.choice] = {**told, "const": self.name}
        required = list(dict.fromkeys([*schema.get("required", []), self.choice]))
        return {
            **schema,
            "title": self.title,
            "description": self.description,
            "properties": kept,
            "required": required,
        }


METHODS = {
    entry.name: entry
    for entry in (
        MethodEntry(
            name="em",
            title="Posterior of the weights given the data",
            description="GLLE by expectation maximisation (Algorithm 1): the law of the reconstruction weights that "
            "the data leave open. Draws of it are embeddings.",
            route="/v1/posteriors",
            request=PosteriorIn,
            choice="method",
            without=frozenset({"mean"}),
            variants=_VARIANTS,
            citations=(_GLLE, _LLE),
        ),
        MethodEntry(
            name="direct",
            title="Posterior of the weights given data and embedding",
            description="GLLE by direct sampling (Algorithm 2): the law of the reconstruction weights given the data "
            "and their LLE embedding, too.",
            route="/v1/posteriors",
            request=PosteriorIn,
            choice="method",
            without=frozenset({"covariance", "max_iter", "tol"}),
            variants=_VARIANTS,
            citations=(_GLLE, _LLE),
        ),
    )
}
