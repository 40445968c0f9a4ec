"""Check that this machine computes the same bits as all others: a digest of some fits and draws, and its known value.

Fits and draws are meant to have the same bits on every processor. A process that computes other bits (on another
architecture, or with another numpy) has another digest, and its results must not be mixed with results of other
machines. `python -m glle_engine.posterior.fingerprint` prints the digest of this machine and the expected digest,
`PINNED_FINGERPRINT`. It also compiles the code of fits and draws in two processes, so that later fits and draws start
at once.
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import sys
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from glle_engine.eigen.eigenproblem import warm
from glle_engine.posterior.draw_cost import draw_cost
from glle_engine.posterior.fit import fit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from glle_engine.base.spec import Align
    from glle_engine.posterior.posterior import Posterior

PINNED_FINGERPRINT = "5327895c35fd8ce2"  # belongs to `glle_engine.base.version.NUMBERS`: change both together
FINGERPRINT_DIGITS = 16  # a fingerprint has this many hexadecimal digits: 64 bits

_SPARSE_POINTS = 120  # enough for the sparse solver, which solves several draws at once
_SOLID_POINTS, _DIMENSIONS = 600, 5  # enough that the factorization also runs its code for wide dense blocks
_DENSE_POINTS = 40  # few enough for the dense solver (`glle_engine.eigen.eigenproblem.DENSE_BELOW`)
_ALIGNMENTS: tuple[Align, ...] = ("procrustes", "none")
_REFERENCE_DRAWS = 3  # fewer than the 4 that are solved together; a draw does not depend on the others
_FEATURES = 18  # more than 16, the number of principal axes that the neighbor search uses


@cache
def fingerprint() -> str:
    """Return the first 16 hexadecimal digits of the SHA-256 digest of some fits and draws; computed once in a process.

    The digits equal `PINNED_FINGERPRINT` on a machine that computes the same bits as other machines.
    """
    digest = hashlib.sha256()
    for name, array in _arrays():
        little = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
        digest.update(f"{name} {little.dtype.str} {little.shape}".encode())
        digest.update(little.tobytes())
    return digest.hexdigest()[:FINGERPRINT_DIGITS]


def sheet(n: int) -> NDArray[np.float64]:
    """Return n random points (n, 18) on a bent two-dimensional sheet, with the same bits on every machine.

    The two random numbers of a point have 12 binary digits, so that float64 holds their products exactly.
    """
    words = np.random.Philox(key=17).random_raw(2 * n).reshape(n, 2)
    u, v = (words >> np.uint64(52)).T.astype(np.float64) / 2**12
    columns = [u, v, u * u, u * v, (1 - v) * v, (1 - u) * v]
    repeated = [column / 2**power for power in range(_FEATURES // len(columns)) for column in columns]
    return np.ascontiguousarray(np.stack(repeated, axis=1))


def solid(n: int) -> NDArray[np.float64]:
    """Return n random points (n, 20) of a five-dimensional solid, with the same bits on every machine.

    The features are five random numbers of 12 binary digits and the products of each two, which float64 holds exactly.
    """
    words = np.random.Philox(key=19).random_raw(_DIMENSIONS * n).reshape(n, _DIMENSIONS)
    places = (words >> np.uint64(52)).astype(np.float64) / 2**12
    one, other = np.triu_indices(_DIMENSIONS)
    return np.concatenate([places, places[:, one] * places[:, other]], axis=1)


def fits() -> Iterator[Posterior]:
    """Yield the posteriors whose bits are checked; together they run every kernel of constrained and published fits."""
    flat = sheet(_SPARSE_POINTS)
    few = np.ascontiguousarray(flat[:, :3])
    yield fit(flat, n_neighbors=8, method="em")
    yield fit(few, n_neighbors=8, method="direct", n_components=3)
    yield fit(few, n_neighbors=8, noise="tangent")
    yield fit(few, n_neighbors=8, method="em", variant="published", max_iter=3)
    yield fit(sheet(_DENSE_POINTS)[:, :3], n_neighbors=8, method="em")
    yield fit(solid(_SOLID_POINTS), n_neighbors=12)


def _arrays() -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield the name and the values of each array from which the fingerprint of this machine is computed.

    The arrays are all arrays of the posteriors of `fits`, and the embedding and the eigenvalues of three draws from
    each posterior, with each of two alignments.
    """
    for number, posterior in enumerate(fits()):
        for name, array in posterior.arrays().items():
            yield f"{number} {name}", array
        for align in _ALIGNMENTS:
            for draw in posterior.draws(_REFERENCE_DRAWS, seed=1, align=align):
                yield f"{number} {align} {draw.index} embedding", draw.embedding
                yield f"{number} {align} {draw.index} eigenvalues", draw.eigenvalues


def _compile_draws() -> None:
    """Compile the code of draws, in a process of its own.

    Logging is disabled in this process, because the main process already logs that the engine is being compiled.
    """
    logging.disable()
    warm()


if __name__ == "__main__":
    draws = multiprocessing.get_context("spawn").Process(target=_compile_draws)
    draws.start()
    computed = fingerprint()
    # Landmarks are not part of the fingerprint; this fit and draw only compile their code.
    next(fit(sheet(_SPARSE_POINTS), n_neighbors=8, landmarks=80).draws(1))
    draw_cost(fit(sheet(_SPARSE_POINTS), n_neighbors=8))
    draws.join()
    warm()
    state = "the pinned bits" if computed == PINNED_FINGERPRINT else "other bits than the pinned ones"
    sys.stdout.write(f"fingerprint {computed}\npinned      {PINNED_FINGERPRINT}\nThis machine computes {state}.\n")
