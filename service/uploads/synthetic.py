"""Synthetic data sets. Large ones are sampled by the processes that read uploads.

They have therefore the same limits on memory and time as uploads, and wait in the same queue for a free process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, ClassVar, Self

from glle_engine import GlleError, manifolds
from glle_engine.tables.table import Table
from worker.base.problems import Problem, ProblemError

if TYPE_CHECKING:
    from service.uploads.limits import Limits

# Up to this many points are sampled in the API process, which takes a millisecond, as long as a fork.
MAX_SAFE_POINTS = 2**13


@dataclass(frozen=True)
class Synthetic:
    """A manifold to sample, with the parameters of `glle_engine.manifolds.make`.

    The process that samples it gets it as JSON.
    """

    name: str
    n: int
    noise: float
    seed: int

    source: ClassVar[str] = "synthetic"
    label: ClassVar[str] = "a synthetic data set"

    @classmethod
    def from_dict(cls, fields: dict[str, Any]) -> Self:
        """Return the synthetic data set that its JSON describes."""
        return cls(**fields)

    @property
    def nbytes(self) -> int:
        """Bytes of the points and their true coordinates."""
        return self.n * (3 + 2) * 8

    def check(self, limits: Limits) -> None:
        """Raise `ProblemError` (``too-many-points``) if the points exceed the limits."""
        limits.check((self.n, 3))

    def is_safe(self, file: IO[bytes]) -> bool:
        """Return whether the API process may sample the points, because they are few; `file` is not used."""
        del file
        return self.n <= MAX_SAFE_POINTS

    def read(self, file: IO[bytes], out: IO[bytes]) -> Table:
        """Return a table of points and their true coordinates; raise `ProblemError` for an invalid parameter."""
        del file, out
        try:
            sheet = manifolds.make(self.name, self.n, noise=self.noise, seed=self.seed)
        except GlleError as error:
            raise ProblemError(Problem.from_engine(error)) from None
        return Table(values=sheet.X, coordinates=sheet.coordinates, source={"kind": "synthetic", **vars(self)})
