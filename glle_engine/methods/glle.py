r"""Generative locally linear embedding: one draw of the posterior over LLE's weights.

:math:`w_i = m_i + \sqrt{a} F_i z_i`, z_i standard normal, and the bottom eigenvectors of :math:`(I - W)^T (I - W)` at
these weights, aligned to the reference embedding (GLLE Eq. 31, 36 and 37-43). At scale a = 0 it is the reference, LLE.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, make_dataclass
from typing import TYPE_CHECKING, Any, cast, get_args, get_type_hints

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import FitSpec, Source
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.hnsw import required_faiss
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.costs import Cost, estimate
from glle_engine.methods.parameters import NeighborSpec, choice, integer, number
from glle_engine.posterior.fit import fit_spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_MOST = 2**64 - 1
# Declarations of the fields of FitSpec that have none in their metadata.
_DESCRIPTIONS = {
    "method": "The posterior given the data (em), or given the data and LLE's embedding (direct).",
    "variant": "Weights that sum to one, with reconstruction noise; or the equations as printed.",
    "reg": "Ratio of the noise to the prior variance, LLE's ridge.",
    "variance": "The noise variance of the constrained variant: that of flat Dirichlet weights, or of the residuals "
    "(ml). Auto is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions or the noise is tangent, "
    "else ml.",
    "mean": "The mean of the direct posterior: LLE's weights, or those derived.",
    "covariance": "The M-step of the published em: one variance a point, a full covariance as printed, or its true "
    "maximum.",
    "max_iter": "The most iterations of the published em.",
    "tol": "Relative change of the variances that ends the published em; 0 runs max_iter iterations.",
    "disconnected": "What to do with a graph of several components: refuse, or bridge by shortest edges.",
    "noise": "The reconstruction noise: alike in all directions, or known along the sheet from off it.",
    "neighborhoods": "All k candidates, or those of them near the point's tangent plane (adaptive).",
    "search": "The neighbours; approximate needs the extra ann.",
}
_BOUNDS: dict[str, dict[str, Any]] = {"reg": {"above": 0}, "tol": {"least": 0}}


def _fit_parameters() -> list[tuple[str, Any, Any]]:
    """Return (name, type, declaration) of the fields of `FitSpec` that `NeighborSpec` lacks."""
    types = get_type_hints(FitSpec)
    parameters = []
    for item in fields(FitSpec):
        if item.name in NeighborSpec.parameters():
            continue
        kind: Any = types[item.name]
        default: Any = item.default
        if item.metadata:
            declaration = field(default=default, metadata=item.metadata)
        elif kind is int:
            declaration = integer(default, _DESCRIPTIONS[item.name], least=1)
        elif kind is float:
            declaration = number(default, _DESCRIPTIONS[item.name], **_BOUNDS[item.name])
        else:
            declaration = choice(default, _DESCRIPTIONS[item.name], *get_args(kind))
        parameters.append((item.name, kind, declaration))
    return parameters


if TYPE_CHECKING:
    _FitParameters = NeighborSpec
else:
    _FitParameters = make_dataclass(
        "_FitParameters",
        _fit_parameters(),
        bases=(NeighborSpec,),
        namespace={"__module__": __name__},
        frozen=True,
        kw_only=True,
    )


@dataclass(frozen=True, kw_only=True)
class GlleSpec(_FitParameters):
    """Parameters of a posterior, those of `FitSpec`, and of one draw."""

    seed: int = integer(0, "Of the draws.", least=0, most=_MOST)
    index: int = integer(0, "Which draw of the seed.", least=0, most=_MOST)
    scale: float = number(1.0, "Factor on the covariance of the weights; 0 gives the mean, LLE.", least=0)
    source: str = choice("posterior", "Draw from the posterior, or from the prior.", *get_args(Source))

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for a meaningless combination; reset options without effect."""
        spec = self.fit_spec()
        for name, value in spec.to_dict().items():
            object.__setattr__(self, name, value)
        if self.source == "prior" and (spec.method, spec.variant) == ("direct", "published"):
            raise InvalidParameterError(
                "The published direct method has no prior to draw from.",
                remedy="Use source='posterior', or method='em', or variant='constrained'.",
            )

    def fit_spec(self) -> FitSpec:
        """Return the specification of the posterior."""
        return FitSpec(**{item.name: getattr(self, item.name) for item in fields(FitSpec)})


def run(X: NDArray[np.float64], spec: GlleSpec, on_progress: OnProgress) -> Embedding:
    """Embed by one draw."""
    posterior = fit_spec(X, spec.fit_spec(), on_progress=on_progress)
    on_progress(0, 1, "draw")
    draw = posterior.draw(spec.index, seed=spec.seed, scale=spec.scale, source=cast("Source", spec.source))
    on_progress(1, 1, "draw")
    figures = {**posterior.diagnostics.figures, "draw": draw.diagnostics}
    return Embedding(draw.embedding, draw.eigenvalues, figures, posterior.diagnostics.notes)


def refuse(n: int, d: int, spec: GlleSpec) -> None:
    """Refuse too few points, and an approximate search without its library."""
    fit = spec.fit_spec()
    require_enough_points(n, fit)
    if fit.search == "approximate":
        required_faiss()


def cost(n: int, d: int, spec: GlleSpec) -> Cost:
    """Return the expected cost of a fit and a draw."""
    fit = spec.fit_spec()
    route = "published" if fit.variant == "published" else "tangent" if fit.noise == "tangent" else ""
    by_tree = True if fit.search == "approximate" else None
    row = f"glle, {route}" if route else "glle"
    return estimate(row, n, d, k=spec.n_neighbors, p=spec.n_components, by_tree=by_tree)


METHOD = Method(
    name="glle",
    title="Generative locally linear embedding",
    family="generative",
    about="LLE at weights drawn from their posterior given the data: one of as many embeddings as seeds and indices.",
    source="GLLE Eq. 7-9, 21-36, Algorithms 1 and 2",
    spec=GlleSpec,
    run=run,
    refuse=refuse,
    cost=cost,
    any_unit=True,
    growth="n^1.2 for few features; n^2 d to find neighbours among many",
    reproducible=True,
)
