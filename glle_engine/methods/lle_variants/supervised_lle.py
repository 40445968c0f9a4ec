r"""Supervised LLE: distances to other classes are enlarged.

.. math:: \Delta' = \Delta + \alpha \max(\Delta)\, \Lambda

with :math:`\Delta` the Euclidean distances and :math:`\Lambda_{ij} = 1` if the classes of i and j differ, 0
otherwise (de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003). :math:`\Delta'` chooses the neighbors; weights and
embedding are LLE's. At :math:`\alpha = 0` the result is LLE's. At :math:`\alpha = 1` (1-SLLE) a point has neighbors of
its own class only, and the graph falls into the c classes. The c - 1 bottom eigenvectors other than the constant are
constant on each class, so that every class collapses to one point of c - 1 dimensions, as the paper states.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scipy.spatial.distance import cdist

from glle_engine.base.diagnostics import Note
from glle_engine.base.progress import blocks
from glle_engine.graph.connectivity import components
from glle_engine.methods.base import Embedding, Method
from glle_engine.methods.lle_variants.rewired import BLOCK_ENTRIES, nearest_by, require_whole
from glle_engine.methods.parameters import choice, number
from glle_engine.methods.spectral.lle import LleSpec, lle_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.progress import OnProgress


@dataclass(frozen=True, kw_only=True)
class SupervisedLleSpec(LleSpec):
    """Parameters of supervised LLE."""

    alpha: float = number(
        0.01,
        "How much further away another class is, in units of the diameter of the data: 0 is LLE, 1 gives each point "
        "neighbors of its own class only.",
        least=0,
        most=1,
    )
    disconnected: str = choice(
        "refuse",
        "What to do where the classes no longer hang together: refuse, or collapse each component onto a point.",
        "refuse",
        "collapse",
    )


def supervised_neighbors(
    X: NDArray[np.float64], labels: NDArray[np.int64], k: int, alpha: float, on_progress: OnProgress
) -> tuple[NDArray[np.int32], float]:
    """Return the k nearest by the supervised distance (n, k), nearest first, and the diameter of the data."""
    diameter = 0.0
    for rows in blocks(len(X), max(1, BLOCK_ENTRIES // len(X)), "diameter", on_progress):
        diameter = max(diameter, float(cdist(X[rows], X).max()))

    def adjust(rows: slice, distances: NDArray[np.float64]) -> None:
        distances += alpha * diameter * (labels[rows, None] != labels)

    return nearest_by(X, k, adjust, "supervised neighbors", on_progress), diameter


@Method(
    spec=SupervisedLleSpec,
    title="Supervised LLE",
    about="LLE whose neighbors are nearest by Delta + alpha max(Delta) where the classes differ, Delta elsewhere.",
    source="de Ridder, Kouropteva, Okun, Pietikainen and Duin 2003, ICANN; survey arXiv 2011.10925",
    growth="n^2 d",
    reproducible=True,
    labels=True,
)
def supervised_lle(
    X: NDArray[np.float64], spec: SupervisedLleSpec, on_progress: OnProgress, labels: NDArray[np.int64]
) -> Embedding:
    """Embed by the neighbors of least supervised distance."""
    nearest, diameter = supervised_neighbors(X, labels, spec.n_neighbors, spec.alpha, on_progress)
    if spec.disconnected == "refuse":
        require_whole(
            nearest,
            f"With alpha={spec.alpha:g}",
            "Lower alpha, raise n_neighbors, or let every component fall onto a point: disconnected='collapse'.",
        )
    count = int(components(nearest).max()) + 1
    embedding = lle_of(X, nearest, spec, on_progress)
    figures = {
        **embedding.figures,
        "components": count,
        "own_class": float((labels[nearest] == labels[:, None]).mean()),
        "diameter": diameter,
    }
    return Embedding(embedding.Y, embedding.eigenvalues, figures, _notes(count, spec.n_components))


def _notes(count: int, p: int) -> tuple[Note, ...]:
    """Return a note on the collapse of several components."""
    if count == 1:
        return ()
    flat = min(p, count - 1)
    message = (
        f"The graph falls into {count} components. Each collapses to a point in the first {flat} of {p} dimensions, "
        "where distances inside it mean nothing. A smaller alpha keeps the shape of the classes."
    )
    return (Note("components-collapsed", message),)
