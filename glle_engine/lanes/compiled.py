"""The compiler of the lanes: numba, with compiled code kept on disk."""

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
_HERE = Path(__file__).parent


def _forget_other_sources() -> None:
    """Have no code that was compiled from other sources: numba looks at a function's own file, not at what it calls.

    Beside the sources it is dropped; in a folder of the user's choice each state of the sources has one of its own.
    """
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(_HERE.glob("*.py")))).hexdigest()
    if numba.config.CACHE_DIR:
        numba.config.CACHE_DIR = str(Path(numba.config.CACHE_DIR) / digest[:16])
        return
    kept = _HERE / "__pycache__" / "lanes.sha256"
    with contextlib.suppress(OSError):  # not ours to write: then nothing is kept here either
        if kept.exists() and kept.read_text() == digest:
            return
        kept.parent.mkdir(exist_ok=True)
        for path in kept.parent.glob("*.nb?"):
            path.unlink(missing_ok=True)
        kept.write_text(digest)


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
