"""Lists by cursor: a page begins after the last item of the one before, whatever was added meanwhile."""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Query

from worker.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

Limit = Annotated[int, Query(ge=1, le=100, description="Most items of a page.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]


def page(found: Iterator[tuple[str, T]], limit: int) -> tuple[list[T], str | None]:
    """Return the first `limit` items and the next page's cursor."""
    items = list(islice(found, limit + 1))
    if len(items) <= limit:
        return [item for _, item in items], None
    position = items[limit - 1][0]
    return [item for _, item in items[:limit]], base64.urlsafe_b64encode(position.encode()).decode()


def position(cursor: str | None) -> str | None:
    """Return the position that a cursor stands for.

    Raises
    ------
    ProblemError
        ``invalid-cursor``.

    """
    if cursor is None:
        return None
    try:
        return base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        remedy = "Leave ?cursor= out for the first page, then give `next` as it came."
        raise refuse("invalid-cursor", 422, f"{cursor!r} is no cursor.", remedy) from None
