"""Compiler of the engine: numba, with the compiled code cached on disk.

A compiled function rounds as it is written on every processor: no fast-math, no contraction to fused operations except
the explicit ones of `glle_engine.linalg.vectors`, and no call into BLAS, LAPACK or libm. All compiled code is in the
packages `glle_engine.linalg` and `glle_engine.eigen.batched`.
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
_BATCHED = tuple(f"eigen/batched/{name}" for name in ("", "symbolic", "numeric", "krylov"))
_PACKAGES = tuple(_ENGINE / name for name in ("linalg", "weights", *_BATCHED))


def _forget_other_sources() -> None:
    """Drop code that was compiled from other sources: numba checks a function's own file, not its callees.

    A cache folder of the user's choice gets one subfolder for each state of the sources.
    """
    sources = sorted(path for package in _PACKAGES for path in package.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    if numba.config.CACHE_DIR:
        numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR) / digest[:16])
        return
    for package in _PACKAGES:
        stamp = package / "__pycache__" / "compiled.sha256"
        with contextlib.suppress(OSError):  # a read-only installation caches nothing here either
            if stamp.exists() and stamp.read_text() == digest:
                continue
            stamp.parent.mkdir(exist_ok=True)
            for path in stamp.parent.glob("*.nb?"):
                path.unlink(missing_ok=True)
            stamp.write_text(digest)


_forget_other_sources()


def instruction(code: Callable[..., Any]) -> Any:
    """Make a function of compiled code out of a writer of its instructions (numba's `intrinsic`)."""
    return intrinsic(code)


def operation(operator: Callable[..., Any]) -> Callable[[Callable[..., Any]], Any]:
    """Give an operator a meaning for types of ours (numba's `overload`)."""
    return cast("Callable[[Callable[..., Any]], Any]", overload(operator, strict=False))


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function on its first call; it releases the GIL, and does arithmetic in the order written.

    The code is kept in NUMBA_CACHE_DIR if that is set, else beside the source, in the user's cache, or not at all.
    """
    try:
        made = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no place to write to
        made = numba.njit(nogil=True, error_model="numpy")(function)
    return cast("Callable[P, R]", made)
