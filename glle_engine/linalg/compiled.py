"""Compiler of the engine: numba, with the compiled code cached on disk.

A compiled function rounds in the order of its source on every processor: no fast-math, no contraction to fused
operations except the explicit ones of `glle_engine.linalg.vectors`, and no call into BLAS, LAPACK or libm. The sums of
`glle_engine.linalg.nearest.products` are an exception, because they only bound results. All compiled code is in the
packages `linalg`, `linalg.nearest`, `weights` and `eigen`.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

import numba
from numba.extending import intrinsic, overload

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")
_ENGINE = Path(__file__).parents[1]
_EIGEN = ("ordering", *(f"batched/{name}" for name in ("", "symbolic", "numeric", "krylov")))
_LINALG = ("linalg", "linalg/nearest")
_PACKAGES = tuple(_ENGINE / name for name in (*_LINALG, "weights", *(f"eigen/{name}" for name in _EIGEN)))

if numba.config.DISABLE_JIT:
    raise ImportError("NUMBA_DISABLE_JIT is set, and the engine runs only compiled. Unset NUMBA_DISABLE_JIT.")


def _forget_other_sources() -> None:
    """Delete code compiled from other sources, because numba checks a function's file, but not its callees.

    A cache folder chosen by the user gets one subfolder for each state of the sources.
    """
    sources = sorted(path for package in _PACKAGES for path in package.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if numba.config.CACHE_DIR:
        numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR) / digest[:16])
        return
    for package in _PACKAGES:
        stamp = package / "__pycache__" / "compiled.sha256"
        with contextlib.suppress(OSError):  # a read-only installation has no cache
            if stamp.exists() and stamp.read_text() == digest:
                continue
            stamp.parent.mkdir(exist_ok=True)
            for path in stamp.parent.glob("*.nb?"):
                path.unlink(missing_ok=True)
            stamp.write_text(digest)


_forget_other_sources()


def instruction(code: Callable[..., Any]) -> Any:
    """Make a compiled function from a writer of its instructions (numba's `intrinsic`)."""
    return intrinsic(code)


def operation(operator: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Define an operator for the types of the engine (numba's `overload`)."""
    return cast("Callable[[Callable[..., Any]], Any]", overload(operator, strict=False))


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; it releases the GIL, and computes in the order of its source.

    The code is kept in NUMBA_CACHE_DIR, if set, else beside the source, in the user's cache, or not at all.
    """
    try:
        dispatcher = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no place to write to
        dispatcher = numba.njit(nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", dispatcher)
