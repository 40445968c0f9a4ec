"""Embeddings drawn from a posterior, one alone or several at once: the bits are the same."""

from __future__ import annotations

import itertools
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.spec import check_choice, check_integer, check_positive
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.linalg.procrustes import aligned_to
from glle_engine.weights.philox import standard_normal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.base.spec import Align, Source
    from glle_engine.eigen.batched.solver import LaneSolver
    from glle_engine.eigen.eigenpairs import Eigenpairs
    from glle_engine.posterior.posterior import Posterior

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True)
class DrawKey:
    """What a draw is a function of, beside the posterior.

    Attributes
    ----------
    index, seed : int
        Which draw of which stream, in [0, 2^64).
    scale : float
        The factor on the covariance of the weights, >= 0.

    Numbers of numpy become those of Python, so that keys are JSON-able.

    Raises
    ------
    InvalidParameterError
        For a value outside its domain.

    """

    index: int
    seed: int = 0
    scale: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", check_integer("index", self.index, 0, counter=True))
        object.__setattr__(self, "seed", check_integer("seed", self.seed, 0, counter=True))
        object.__setattr__(self, "scale", check_positive("scale", self.scale, zero=True))


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


def check_source(posterior: Posterior, source: Source) -> None:
    """Raise `InvalidParameterError` for a source that is unknown, or that the posterior does not have."""
    check_choice("source", source)
    if source == "prior" and posterior.law.prior_factor is None:
        raise InvalidParameterError(
            "The published direct method has no prior to draw from.",
            remedy="Use source='posterior', or method='em', or variant='constrained'.",
        )


def drawn_weights(posterior: Posterior, key: DrawKey, source: Source) -> NDArray[np.float64]:
    """Sample the weights of one draw: see `Posterior.weights`."""
    z = standard_normal(key.seed, key.index, posterior.neighbors.shape)
    return posterior.law.weights(z, key.scale, source)


def draws(
    posterior: Posterior, keys: Iterable[DrawKey], source: Source, align: Align, threads: int = 1
) -> Iterator[Draw]:
    """Yield the draws of keys, in their order, as many at once as the machine has lanes.

    A draw depends on nothing but its own key: alone or among others, by whichever thread, it is the same bits.
    """
    check_source(posterior, source)
    check_choice("align", align)
    threads = check_integer("threads", threads, 1)
    solver = posterior.lane_solver
    size = solver.lanes if solver else 1

    def groups() -> Iterator[list[DrawKey]]:
        waiting = iter(keys)
        while group := list(itertools.islice(waiting, size)):
            yield group

    def drawn(group: list[DrawKey]) -> list[Draw]:
        found = _by_lanes(posterior, solver, group, source) if solver else [_alone(posterior, group[0], source)]
        return [_finished(posterior, key, source, align, pairs) for key, pairs in zip(group, found, strict=True)]

    for made in ordered_map(drawn, groups(), threads):
        yield from made


def ordered_map(work: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield work(item) in the order of the items, which are taken only a few ahead of what was asked for."""
    if threads == 1:
        yield from map(work, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[R]] = deque()
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def _by_lanes(posterior: Posterior, solver: LaneSolver, keys: list[DrawKey], source: Source) -> list[Eigenpairs]:
    """Solve for a group of keys in the lanes, and those that the lanes cannot solve one by one."""
    mean, factor = posterior.law.gaussian(source)
    streams = [(key.seed, key.index, math.sqrt(key.scale)) for key in keys]
    found = solver.solve(streams, mean, factor)
    return [
        pairs if pairs is not None else _alone(posterior, key, source, rejected)
        for key, (pairs, rejected) in zip(keys, found, strict=True)
    ]


def _alone(posterior: Posterior, key: DrawKey, source: Source, rejected: Sequence[str] = ()) -> Eigenpairs:
    """Solve for one key without lanes."""
    weights = drawn_weights(posterior, key, source)
    return posterior.eigenproblem.solve(weights, posterior.spec.n_components, rejected=rejected)


def _finished(posterior: Posterior, key: DrawKey, source: Source, align: Align, pairs: Eigenpairs) -> Draw:
    """Scale an embedding (GLLE Eq. 37-43) and turn it to the reference."""
    embedding = math.sqrt(len(pairs.vectors)) * pairs.vectors
    turned, disparity = aligned_to(embedding, posterior.embedding, centred=posterior.law.constrained)
    embedding = turned if align == "procrustes" else sign_convention(embedding)
    diagnostics = dict(pairs.diagnostics, disparity=disparity)
    return Draw(key.index, key.seed, key.scale, source, align, embedding, pairs.values, diagnostics)
