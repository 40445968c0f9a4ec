"""One embedding drawn from a posterior."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.alignment import disparity, procrustes_rotation
from glle_engine.embedding import scaled
from glle_engine.errors import InvalidParameterError
from glle_engine.spec import check_choice, check_integer, check_positive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from glle_engine.posterior import Posterior
    from glle_engine.spec import Align, Source


@dataclass(frozen=True, eq=False)
class Draw:
    """An embedding drawn from a posterior: a pure function of the posterior and the fields below.

    Attributes
    ----------
    index, seed : int
        Which draw of which stream.
    scale : float
        The factor on the covariance of the weights.
    source : {"posterior", "prior"}
    align : {"procrustes", "none"}
    embedding : (n, p) float64
        (1/n) Y^T Y = I; columns sum to zero for constrained posteriors.
    eigenvalues : (p,) float64, ascending
        Of M = (I - W)^T (I - W), the constant's left out.
    diagnostics : dict
        JSON-able: the solver that passed, its steps, the acceptance test's deviation, |y| at the pin,
        the solvers that were rejected before, and the disparity to the reference embedding.

    """

    index: int
    seed: int
    scale: float
    source: Source
    align: Align
    embedding: NDArray[np.float64]
    eigenvalues: NDArray[np.float64]
    diagnostics: dict[str, Any]


def standard_normal(seed: int, index: int, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return the standard normals of draw `index` of stream `seed`: Philox keyed by the two."""
    bits = np.random.Philox(key=np.array([seed, index], np.uint64))
    return np.random.Generator(bits).standard_normal(shape)


def check_draw(posterior: Posterior, index: int, seed: int, scale: float, source: Source) -> None:
    """Raise `InvalidParameterError` for what no draw can be made of."""
    for name, value in (("index", index), ("seed", seed)):
        check_integer(name, value, 0)
        if value >= 2**64:
            raise InvalidParameterError(f"{name}={value} is too large.", remedy=f"Give a {name} below 2^64.")
    check_positive("scale", scale, zero=True)
    check_choice("source", source)
    if source == "prior" and posterior.law.prior_factor is None:
        raise InvalidParameterError(
            "The published direct method has no prior to draw from.",
            remedy="Use source='posterior', or method='em', or variant='constrained'.",
        )


def draw(posterior: Posterior, index: int, seed: int, scale: float, source: Source, align: Align) -> Draw:
    """Sample the weights, solve the eigenproblem, align to the reference: see `Posterior.draw`."""
    check_choice("align", align)
    weights = posterior.weights(index, seed=seed, scale=scale, source=source)
    pairs = posterior.eigenproblem.solve(weights, posterior.spec.n_components)
    embedding = scaled(pairs.vectors)
    if align == "procrustes":
        embedding = embedding @ procrustes_rotation(embedding, posterior.embedding)
    diagnostics = dict(pairs.diagnostics, disparity=disparity(embedding, posterior.embedding))
    return Draw(index, seed, float(scale), source, align, embedding, pairs.values, diagnostics)
