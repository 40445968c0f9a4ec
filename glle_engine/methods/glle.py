r"""Generative locally linear embedding: one draw of the posterior over LLE's weights.

:math:`w_i = m_i + \sqrt{a} F_i z_i`, z_i standard normal, and the bottom eigenvectors of :math:`(I - W)^T (I - W)` at
these weights, turned to the reference embedding (GLLE Eq. 31, 36 and 37-43). At scale a = 0 it is the reference, LLE.
What `glle_engine.posterior.fit` and `Posterior.draw` do, as a method beside the others.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, get_args

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import (
    Adaptation,
    Covariance,
    Disconnected,
    FitSpec,
    Mean,
    Noise,
    Search,
    Source,
    Variance,
    Variant,
)
from glle_engine.base.spec import Method as Sampling
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.hnsw import required_faiss
from glle_engine.methods.base import Cost, Embedding, Method
from glle_engine.methods.neighborhood import NeighborSpec
from glle_engine.methods.parameters import choice, integer, number
from glle_engine.posterior.fit import fit_spec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_MOST = 2**64 - 1


def _one_of(literal: Any, default: str, doc: str) -> Any:
    """Declare the choice of a literal type."""
    return choice(default, doc, *get_args(literal))


@dataclass(frozen=True, kw_only=True)
class GlleSpec(NeighborSpec):
    """The parameters of a posterior (`glle_engine.base.spec.FitSpec`, under their names there) and of one draw."""

    method: str = _one_of(
        Sampling, "em", "The posterior given the data (em), or given the data and LLE's embedding (direct)."
    )
    variant: str = _one_of(
        Variant, "constrained", "Weights that sum to one, with reconstruction noise; or the equations as printed."
    )
    reg: float = number(1e-3, "Ratio of the noise to the prior variance, LLE's ridge.", above=0)
    variance: str = _one_of(
        Variance,
        "auto",
        "The noise variance of the constrained variant: that of flat Dirichlet weights, or of the residuals (ml). Auto "
        "is dirichlet if the residuals lie in fewer than n_neighbors - 1 directions or the noise is tangent, else ml.",
    )
    mean: str = _one_of(Mean, "lle", "The mean of the direct posterior: LLE's weights, or those derived.")
    covariance: str = _one_of(
        Covariance,
        "spherical",
        "The M-step of the published em: one variance a point, a full covariance as printed, or its true maximum.",
    )
    max_iter: int = integer(50, "The most iterations of the published em.", least=1)
    tol: float = number(
        1e-6, "Relative change of the variances that ends the published em; 0 runs max_iter iterations.", least=0
    )
    disconnected: str = _one_of(
        Disconnected, "refuse", "What to do with a graph of several components: refuse, or bridge by shortest edges."
    )
    noise: str = _one_of(
        Noise, "isotropic", "The reconstruction noise: alike in all directions, or known along the sheet from off it."
    )
    neighborhoods: str = _one_of(
        Adaptation, "fixed", "All k candidates, or those of them near the point's tangent plane (adaptive)."
    )
    search: str = _one_of(Search, "exact", "The neighbours; approximate needs the extra ann.")
    seed: int = integer(0, "Of the draws.", least=0, most=_MOST)
    index: int = integer(0, "Which draw of the seed.", least=0, most=_MOST)
    scale: float = number(1.0, "Factor on the covariance of the weights; 0 gives the mean, LLE.", least=0)
    source: str = _one_of(Source, "posterior", "Draw from the posterior, or from the prior.")

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for an option without meaning beside the others; reset those without effect."""
        for name, value in self.fit_spec().to_dict().items():
            object.__setattr__(self, name, value)
        if self.source == "prior" and (self.method, self.variant) == ("direct", "published"):
            raise InvalidParameterError(
                "The published direct method has no prior to draw from.",
                remedy="Use source='posterior', or method='em', or variant='constrained'.",
            )

    def fit_spec(self) -> FitSpec:
        """Return the specification of the posterior."""
        return FitSpec(**{one.name: getattr(self, one.name) for one in fields(FitSpec)})


def run(
    X: NDArray[np.float64], spec: GlleSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by one draw."""
    posterior = fit_spec(X, spec.fit_spec(), on_progress=on_progress)
    on_progress(0, 1, "draw")
    draw = posterior.draw(
        spec.index,
        seed=spec.seed,
        scale=spec.scale,
        source="prior" if spec.source == "prior" else "posterior",
    )
    on_progress(1, 1, "draw")
    figures = {**posterior.diagnostics.figures, "draw": draw.diagnostics}
    return Embedding(draw.embedding, draw.eigenvalues, figures, posterior.diagnostics.notes)


def refuse(n: int, d: int, spec: GlleSpec) -> None:
    """Refuse too few points, and an approximate search without its library."""
    require_enough_points(n, spec.fit_spec())
    if spec.search == "approximate":
        required_faiss()


def cost(n: int, d: int, spec: GlleSpec) -> Cost:
    """Return the cost of a fit and a draw; the published variant's draws take a solver that needs no row sums."""
    k, p = spec.n_neighbors, spec.n_components
    search = 2e-6 * n * k if d <= 15 or spec.search == "approximate" else 2e-10 * n * n * d
    published = 1.5e-4 * n if spec.variant == "published" else 0.0
    frames = 5e-6 * n * d if spec.noise == "tangent" else 0.0
    moments = 2e-10 * n * d * min(n, d) if spec.variant == "constrained" else 0.0
    return Cost(
        seconds=0.02 + search + 2e-9 * n * k * (d + k * k) + 3e-6 * n * (k + p) + published + frames + moments,
        bytes=8.0 * n * (80 * k + 5 * k * k + 20 * p + 3 * d),
    )


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
