r"""Hessian LLE: coordinates whose second derivatives along the manifold vanish.

:math:`\min_Y tr(Y^T H Y)`, H the sum over points of the squared Hessian, estimated in p tangent coordinates by least
squares on a point and its k neighbours. A quadratic has 1 + p + p(p + 1)/2 coefficients, so k > p(p + 3)/2 (Donoho
and Grimes 2003). On a sheet that is isometric to an open connected set, convex or not, the null space is spanned by
the constant and the coordinates.

Not by scikit-learn, whose estimate keeps, beside the Hessian, all residuals of the quadratic fit, and so is LTSA.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from glle_engine.base.errors import InvalidParameterError
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.neighborhood import NeighborSpec
from glle_engine.methods.spectral import patches

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class HessianLleSpec(NeighborSpec):
    """The parameters of Hessian LLE: more than p(p + 3)/2 neighbours."""


def squared_hessian(tangent: NDArray[np.float64]) -> NDArray[np.float64]:
    r"""Return :math:`C_i^T C_i`, the rows of :math:`C_i` the part of each second derivative's estimate.

    The rows are the products of two tangent coordinates, orthogonalised against the constant, the coordinates and
    each other, as by Donoho and Grimes.

    Parameters
    ----------
    tangent : (b, m, p) float64
        Orthonormal, each column summing to zero.

    Returns
    -------
    (b, m, m) float64

    """
    b, m, p = tangent.shape
    first, second = np.triu_indices(p)
    products = tangent[:, :, first] * tangent[:, :, second]
    Q = np.linalg.qr(np.concatenate([np.ones((b, m, 1)), tangent, products], axis=2))[0]
    quadratic = Q[:, :, p + 1 :]
    return np.asarray(quadratic @ quadratic.transpose(0, 2, 1))


def run(
    X: NDArray[np.float64], spec: HessianLleSpec, on_progress: OnProgress, labels: NDArray[np.int64] | None = None
) -> Embedding:
    """Embed by the squared Hessians of all patches."""
    return patches.aligned(X, spec, squared_hessian, on_progress)


def refuse(n: int, d: int, spec: HessianLleSpec) -> None:
    """Refuse neighbourhoods too small for a quadratic."""
    patches.refuse(n, d, spec)
    k, p = spec.n_neighbors, spec.n_components
    least = p * (p + 3) // 2 + 1
    if k < least:
        raise InvalidParameterError(
            f"Hessian LLE in {p} dimensions needs more than p(p + 3)/2 = {least - 1} neighbours, not {k}.",
            remedy=f"Give n_neighbors of at least {least}, or fewer components.",
            details={"n_neighbors": k, "least": least},
        )


METHOD = Method(
    name="hessian-lle",
    title="Hessian LLE",
    family="spectral",
    about="Coordinates whose second derivatives along the manifold vanish, estimated on k > p(p + 3)/2 neighbours.",
    source="Donoho and Grimes 2003, PNAS 100",
    spec=HessianLleSpec,
    run=run,
    refuse=refuse,
    cost=patches.cost,
    growth="n^1.3 for few features; n^2 to n^3 among many, by how many dimensions the data have",
)
