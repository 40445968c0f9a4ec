"""What a method of embedding is: a name, a specification, a function from data to an embedding, and its cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

import numpy as np

from glle_engine.base.errors import DegenerateDataError, InvalidParameterError, InvalidShapeError
from glle_engine.base.progress import OnProgress, StageClock, silent
from glle_engine.base.validation import checked_matrix, finite_matrix
from glle_engine.methods.parameters import MethodSpec
from glle_engine.methods.refusals import require_libraries
from glle_engine.metrics.concentration import concentration_notes

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import ArrayLike, NDArray

    from glle_engine.base.diagnostics import Note

Family = Literal[
    "linear and kernel", "spectral", "maximum entropy", "neighbor embedding", "extension of LLE", "generative"
]

S_contra = TypeVar("S_contra", bound=MethodSpec, contravariant=True)
S = TypeVar("S", bound=MethodSpec)


@dataclass(frozen=True, eq=False)
class Embedding:
    """Where a method puts the points.

    Attributes
    ----------
    Y : (n, p) float64
        One row a point of the data, in their order; every point has one.
    eigenvalues : (p,) float64, optional
        Of the spectral methods, in the order of the columns of Y.
    figures : dict
        What the method found out, JSON-able: log_likelihood, iterations, stress, n_neighbors chosen and so on.
    notes : tuple of Note
        What the user should know; empty when nothing is remarkable.
    seconds : dict
        Time by stage, filled by `Method.embed`.

    """

    Y: NDArray[np.float64]
    eigenvalues: NDArray[np.float64] | None = None
    figures: dict[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cost:
    """What an embedding is expected to take on one core of a usual machine.

    Attributes
    ----------
    seconds : float
    bytes : float
        Working memory at its peak, the data not counted.

    """

    seconds: float
    bytes: float


class Run(Protocol[S_contra]):
    """The function of a method."""

    def __call__(
        self, X: NDArray[np.float64], spec: S_contra, on_progress: OnProgress, labels: NDArray[np.int64] | None
    ) -> Embedding:
        """Embed X (n, d), checked; labels (n,) where the method takes them."""


@dataclass(frozen=True, kw_only=True)
class Method(Generic[S]):
    """A method of embedding.

    Attributes
    ----------
    name : str
        Stable kebab-case name.
    title : str
    family
    about : str
        What it minimises or assumes, in a sentence or two, with its key equation in words or plain symbols.
    source : str
        Paper and equation.
    spec : type
        A `MethodSpec` dataclass of its parameters.
    run : callable
    refuse : callable
        (n, d, spec): raises a `GlleError` with the remedy for what the method cannot do, before anything is computed.
    cost : callable
        (n, d, spec) to `Cost`.
    growth : str
        How time grows with n, such as "n log n" or "n^3".
    random : bool
        Whether the spec has a seed.
    reproducible : bool
        Whether the same request has the same bits on every processor (with the extra `fast`). Dense eigenproblems, and
        other work of BLAS, LAPACK and the mathematical library, round as the processor's kernels do.
    labels : bool
        Whether it needs labels.
    libraries : tuple of str
        Modules that it needs beside numpy and scipy.
    extra : str
        The extra that brings them.
    any_unit : bool
        Whether `run` takes data whose squared distances leave the range of floating-point numbers, or refuses them.

    """

    name: str
    title: str
    family: Family
    about: str
    source: str
    spec: type[S]
    run: Run[S]
    refuse: Callable[[int, int, S], None]
    cost: Callable[[int, int, S], Cost]
    growth: str
    reproducible: bool = False
    labels: bool = False
    libraries: tuple[str, ...] = ()
    extra: str = ""
    any_unit: bool = False

    @property
    def random(self) -> bool:
        """Whether another seed gives another embedding."""
        return "seed" in self.spec.parameters()

    def require_available(self) -> None:
        """Raise `MissingLibraryError` unless the libraries are installed."""
        require_libraries(self.title, self.libraries, self.extra)

    def require_possible(self, n: int, d: int, spec: S, *, labels: bool = False) -> None:
        """Raise the `GlleError` of a request that cannot be answered; sizes tell, nothing is computed."""
        self.require_available()
        if self.labels and not labels:
            raise InvalidParameterError(
                f"{self.title} needs the class of each point.", remedy="Give labels, an integer for each point."
            )
        if labels and not self.labels:
            raise InvalidParameterError(
                f"{self.title} takes no labels: they would change nothing.",
                remedy="Leave labels away, or choose a supervised method.",
            )
        self.refuse(n, d, spec)

    def embed(
        self,
        X: ArrayLike,
        spec: S | None = None,
        on_progress: OnProgress | None = None,
        *,
        labels: ArrayLike | None = None,
    ) -> Embedding:
        """Embed data.

        Parameters
        ----------
        X : (n, d) array-like
            Finite numbers; computed in float64.
        spec
            The parameters; the defaults, if None.
        on_progress : callable, optional
            Called with (done, total, stage) between blocks of work; what it raises leaves the computation.
        labels : (n,) array-like of integers, optional
            The class of each point, where `Method.labels`.

        Returns
        -------
        Embedding

        Raises
        ------
        GlleError
            Which names the remedy.

        """
        spec = self.spec() if spec is None else spec
        data = finite_matrix(X) if self.any_unit else checked_matrix(X)
        known = None if labels is None else _checked_labels(labels, len(data))
        n, d = data.shape
        self.require_possible(n, d, spec, labels=known is not None)
        if np.all(data == data[0]):
            raise DegenerateDataError(
                f"All {len(data)} points are equal.", remedy="Check that the data were read as intended."
            )
        clock = StageClock(on_progress or silent)
        found = self.run(data, spec, clock, known)
        notes = (*found.notes, *concentration_notes(found.Y))
        return Embedding(found.Y, found.eigenvalues, found.figures, notes, clock.stop())


def _checked_labels(labels: ArrayLike, n: int) -> NDArray[np.int64]:
    raw = np.asarray(labels)
    if raw.shape == (n, 1):
        raw = raw[:, 0]
    if raw.shape != (n,) or raw.dtype.kind not in "iubf" or not np.array_equal(raw, np.round(raw)):
        raise InvalidShapeError(
            f"The labels have shape {raw.shape} and type {raw.dtype}.",
            remedy=f"Give {n} integers, the class of each point.",
        )
    return raw.astype(np.int64)
