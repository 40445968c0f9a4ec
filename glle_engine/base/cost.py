"""Expected cost of a computation, and the largest size that is affordable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Cost:
    """Expected cost on one processor core.

    Attributes
    ----------
    seconds : float
    bytes : float
        Peak working memory, without the data.

    """

    seconds: float
    bytes: float


def largest(least: int, most: int, is_affordable: Callable[[int], bool]) -> int | None:
    """Return the largest affordable size from `least` to `most`, or None; smaller sizes cost no more."""
    if is_affordable(most):
        return most
    if not is_affordable(least):
        return None
    while most - least > 1:
        middle = (least + most) // 2
        least, most = (middle, most) if is_affordable(middle) else (least, middle)
    return least
