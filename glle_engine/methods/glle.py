r"""Generative locally linear embedding: one draw of the posterior over LLE's weights.

The weights are :math:`w_i = m_i + \sqrt{a} F_i z_i`, with z_i standard normal. The embedding is the bottom eigenvectors
of :math:`(I - W)^T (I - W)` for these weights, aligned to the reference embedding (GLLE Eq. 31, 36 and 37-43). At scale
a = 0 the result is the reference embedding, which is the embedding by LLE.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, cast, get_args

from glle_engine.base.spec import FitSpec, Source
from glle_engine.base.validation import require_enough_points
from glle_engine.graph.neighbors import required_faiss
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.parameters import NeighborSpec, choice, integer, number
from glle_engine.posterior.fit import fit
from glle_engine.posterior.sampler import no_prior

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress

_MAX_SEED = 2**64 - 1


@dataclass(frozen=True, kw_only=True)
class GlleSpec(FitSpec, NeighborSpec):
    """Parameters of the method glle: the parameters of a posterior (`FitSpec`), and of the draw that is embedded."""

    seed: int = integer(0, "Seed of the draw.", minimum=0, maximum=_MAX_SEED)
    index: int = integer(
        0, "Number of the draw among the draws of this seed, counted from 0.", minimum=0, maximum=_MAX_SEED
    )
    scale: float = number(1.0, "Factor on the covariance of the weights; 0 gives the mean, LLE.", minimum=0)
    source: str = choice("posterior", "Draw from the posterior, or from the prior.", *get_args(Source))

    def check_together(self) -> None:
        """Raise `InvalidParameterError` for parameters that contradict each other.

        Parameters that have no effect beside the others are set to their defaults.
        """
        super().check_together()
        if self.source == "prior" and (self.method, self.variant) == ("direct", "published"):
            raise no_prior()

    def fit_spec(self) -> FitSpec:
        """Return the parameters of the posterior, without the parameters of the draw."""
        return FitSpec(**{item.name: getattr(self, item.name) for item in fields(FitSpec)})

    def require_possible(self, n: int, d: int) -> None:
        """Raise a `GlleError` for too few points, or for an approximate search if faiss is not installed."""
        fit = self.fit_spec().of_points(n)
        require_enough_points(n, fit)
        if fit.search == "approximate":
            required_faiss()


def _covariance_entries(spec: GlleSpec, n: int) -> int:
    """Return n k^2, the number of entries of the covariance factors (n, k, k), for `Method.doubles`."""
    return n * int(spec.fit_spec().of_points(n).n_neighbors) ** 2


@Method(
    spec=GlleSpec,
    title="Generative locally linear embedding",
    about="LLE with weights drawn from their posterior given the data; each seed and index gives another embedding.",
    source="GLLE Eq. 7-9, 21-36, Algorithms 1 and 2",
    any_space=True,
    sparse=True,
    doubles=_covariance_entries,
    growth="n^1.2 for few features; n^2 d to find neighbors among many",
    reproducible=True,
)
def glle(X: NDArray[np.float64], spec: GlleSpec, on_progress: OnProgress) -> Embedding:
    """Fit the posterior of LLE's weights, and return the embedding of one draw."""
    posterior = fit(X, spec.fit_spec(), on_progress=on_progress)
    on_progress(0, 1, "draw")
    draw = posterior.draw(spec.index, seed=spec.seed, scale=spec.scale, source=cast("Source", spec.source))
    figures = {**posterior.diagnostics.figures, "draw": draw.diagnostics}
    return Embedding(draw.embedding, draw.eigenvalues, figures, posterior.notes)
