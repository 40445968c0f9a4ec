"""Limits on the size of a data set, which hold for every format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from worker.base.problems import refuse

if TYPE_CHECKING:
    from worker.base.settings import Settings


MAX_FEATURES = 10_000
MAX_INFLATION_FACTOR = 2  # an unpacked body may have this many times `max_body` bytes
BAD_ALLOC = "std::bad_alloc"  # message of a C++ library that is out of memory


@dataclass(frozen=True)
class Limits:
    """Largest allowed numbers of points, features, bytes of an unpacked body (`inflated`), bytes of a body as sent."""

    points: int
    features: int
    inflated: int = 2**30
    body: int = 2**30

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Return the limits that the settings define."""
        return cls(settings.max_points, MAX_FEATURES, MAX_INFLATION_FACTOR * settings.max_body, settings.max_body)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise `ProblemError` unless `shape` is the shape (n, d) of a matrix, not empty and within the limits."""
        if len(shape) != 2:
            remedy = (
                "Send a matrix with one point in each row and one feature in each column: reshape(len(x), -1), or"
                " reshape(-1, 1) for a single feature."
            )
            detail = f"The array has {len(shape)} dimensions (shape {shape}), but a table has two."
            raise refuse("invalid-shape", 422, detail, remedy, shape=list(shape))
        if 0 in shape:
            remedy = "Send at least one point with at least one feature."
            detail = f"The data are empty: they have {shape[0]} rows and {shape[1]} columns."
            raise refuse("empty-data", 422, detail, remedy, shape=list(shape))
        for size, limit, noun, alternative in (
            (shape[0], self.points, "points", ", or ask the administrator to raise GLLE_MAX_POINTS"),
            (shape[1], self.features, "features", ""),
        ):
            if size > limit:
                detail = f"The data have {size:,} {noun}; {limit:,} are allowed."
                remedy = f"Send at most {limit:,} {noun}{alternative}."
                raise refuse("too-many-" + noun, 422, detail, remedy, shape=list(shape), allowed=limit)

    def check_bytes(self, nbytes: int) -> None:
        """Raise `ProblemError` (``inflated-too-large``) if a table of `nbytes` bytes is larger than allowed."""
        check_inflated("The table", nbytes, self.inflated)


def check_inflated(noun: str, size: int, allowed: int) -> None:
    """Raise `ProblemError` (``inflated-too-large``) if the `size` of unpacked content is above `allowed` bytes.

    `noun` names the content in the message, such as "The table".
    """
    if size > allowed:
        detail = f"{noun} takes at least {size:,} bytes unpacked; {allowed:,} are allowed."
        remedy = "Send fewer rows or columns, or ask the administrator to raise GLLE_MAX_BODY."
        raise refuse("inflated-too-large", 413, detail, remedy, bytes=size, allowed=allowed)
