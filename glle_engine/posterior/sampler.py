"""Draws of embeddings, alone or several at once with the same bits."""

from __future__ import annotations

import itertools
import math
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, get_args

from glle_engine.base.errors import InvalidParameterError
from glle_engine.base.parameters import check_choice, check_integer
from glle_engine.base.spec import Align, Source
from glle_engine.eigen.eigenproblem import sign_convention
from glle_engine.linalg import LANES
from glle_engine.linalg.procrustes import aligned_to
from glle_engine.posterior.draw import Draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from glle_engine.eigen.batched.solver import LaneSolver
    from glle_engine.eigen.eigenpairs import Eigenpairs
    from glle_engine.eigen.eigenproblem import Eigenproblem
    from glle_engine.posterior.draw import DrawKey
    from glle_engine.weights.gaussian import WeightLaw

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, eq=False)
class Sampler:
    """Sampler of weights and embeddings.

    Attributes
    ----------
    law : WeightLaw
    problem : Eigenproblem
    solver : LaneSolver or None
        Solver of several draws at once.
    reference : (n, p) float64
        Embedding that draws are aligned to.

    """

    law: WeightLaw
    problem: Eigenproblem
    solver: LaneSolver | None
    reference: NDArray[np.float64]

    def weights(self, key: DrawKey, source: Source) -> NDArray[np.float64]:
        """Return the weights (n, k) of one draw."""
        self._check_source(source)
        return self.law.draw((key.seed, key.index), key.scale, source)

    def draws(self, keys: Iterable[DrawKey], source: Source, align: Align, threads: int = 1) -> Iterator[Draw]:
        """Yield the draws of keys, in their order.

        A draw depends on its key only. The lanes and the thread that compute it do not change its bits.
        """
        self._check_source(source)
        check_choice("align", align, get_args(Align))
        threads = check_integer("threads", threads, 1)
        for group in ordered_map(lambda keys: self._solve(keys, source, align), self._groups(keys), threads):
            yield from group

    def _check_source(self, source: Source) -> None:
        check_choice("source", source, get_args(Source))
        if source == "prior" and self.law.prior_factor is None:
            raise InvalidParameterError(
                "The published direct method has no prior to draw from.",
                remedy="Use source='posterior', or method='em', or variant='constrained'.",
            )

    def _groups(self, keys: Iterable[DrawKey]) -> Iterator[list[DrawKey]]:
        """Yield the keys in groups as large as the lanes."""
        remaining = iter(keys)
        while group := list(itertools.islice(remaining, LANES if self.solver else 1)):
            yield group

    def _solve(self, keys: list[DrawKey], source: Source, align: Align) -> list[Draw]:
        """Return the draws of a group; a key that the lanes reject is solved alone."""
        if self.solver is None:
            return [self._draw(key, source, align, self._alone(key, source)) for key in keys]
        streams = [(key.seed, key.index, math.sqrt(key.scale)) for key in keys]
        results = self.solver.solve(streams, *(self._prior if source == "prior" else self.law.gaussian(source)))
        return [
            self._draw(key, source, align, self._alone(key, source, rejected) if pairs is None else pairs)
            for key, (pairs, rejected) in zip(keys, results, strict=True)
        ]

    @cached_property
    def _prior(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and factor of the prior, as large as the posterior's, made once for all lane groups."""
        return self.law.gaussian("prior")

    def _alone(self, key: DrawKey, source: Source, rejected: Sequence[str] = ()) -> Eigenpairs:
        """Solve for one key without lanes."""
        return self.problem.solve(self.weights(key, source), self.reference.shape[1], rejected=rejected)

    def _draw(self, key: DrawKey, source: Source, align: Align, pairs: Eigenpairs) -> Draw:
        """Scale eigenvectors to an embedding (GLLE Eq. 37-43), and align it."""
        embedding = math.sqrt(len(pairs.vectors)) * pairs.vectors
        aligned, disparity = aligned_to(embedding, self.reference, centred=self.law.constrained)
        embedding = aligned if align == "procrustes" else sign_convention(embedding)
        diagnostics = dict(pairs.diagnostics, disparity=disparity)
        return Draw(key.index, key.seed, key.scale, source, align, embedding, pairs.values, diagnostics)


def ordered_map(function: Callable[[T], R], items: Iterable[T], threads: int) -> Iterator[R]:
    """Yield function(item) in the order of the items, at most 2 * threads + 1 items ahead of the consumer."""
    if threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[R]] = deque()
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * threads:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
