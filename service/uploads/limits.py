"""What the shape of a data set must be, whatever its format."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from worker.base.problems import refuse

if TYPE_CHECKING:
    from worker.base.settings import Settings


MOST_NAME = 1000  # characters
_MOST_TOLD = 20  # names that a problem lists
_NO_TEXT = re.compile("[\0\ud800-\udfff]")


@dataclass(frozen=True)
class Limits:
    """The largest data set that is taken."""

    points: int
    features: int
    inflated: int = 2**30  # bytes, once unpacked

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """Return the limits of the settings."""
        return cls(settings.max_points, settings.max_features, settings.max_inflated)

    def check(self, shape: tuple[int, ...]) -> None:
        """Raise a problem unless `shape` is that of an (n, d) matrix within the limits."""
        if len(shape) != 2:
            raise refuse(
                "invalid-shape",
                422,
                f"The array has {len(shape)} dimensions: shape {shape}.",
                "Send a matrix, one point a row, one feature a column: reshape(len(x), -1) makes one"
                " (a single feature: reshape(-1, 1)).",
                shape=list(shape),
            )
        if 0 in shape:
            remedy = "Send at least one point with at least one feature."
            raise refuse("empty-data", 422, f"The data have shape {shape}.", remedy, shape=list(shape))
        for size, limit, noun, variable in (
            (shape[0], self.points, "points", "GLLE_MAX_POINTS"),
            (shape[1], self.features, "features", "GLLE_MAX_FEATURES"),
        ):
            if size > limit:
                raise refuse(
                    "too-many-" + noun,
                    422,
                    f"The data have {size:,} {noun}; {limit:,} are allowed.",
                    f"Send fewer, or raise {variable}.",
                    shape=list(shape),
                    allowed=limit,
                )


def check_names(names: list[str] | None, features: int) -> None:
    """Raise a problem unless there is one distinct name a feature."""
    if names is None:
        return
    if len(names) != features:
        detail = f"There are {len(names)} names for {features} features."
        raise refuse("invalid-names", 422, detail, "Give one name a feature.")
    for name in names:
        if len(name) > MOST_NAME or not is_text(name):
            detail = f"The name {name[:50]!r} has {len(name):,} characters, or one that is no text."
            raise refuse("invalid-names", 422, detail, f"Use text of at most {MOST_NAME:,} characters.")
    if twice := sorted(name for name, times in Counter(names).items() if times > 1):
        detail = f"The name {twice[0]!r} is given to several features."
        raise refuse("invalid-names", 422, detail, "Give each feature a name of its own.", names=twice[:_MOST_TOLD])


def is_text(text: str) -> bool:
    """Say whether a string can be sent as UTF-8, and be kept in an array, which takes U+0000 for its end."""
    return _NO_TEXT.search(text) is None
