"""Cursor pagination: a page begins after the last item of the previous page, so that new items do not shift it.

A page reads at most `MOST_LOOKED_AT` records. With a filter it may be short or empty; the list ends at a page without
a cursor.
"""

from __future__ import annotations

import base64
import binascii
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel

T = TypeVar("T")

MOST_LOOKED_AT = 1000  # records, some tens of milliseconds
STEP = 100  # records between two checks that the client is connected

Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
Cursor = Annotated[str | None, Query(description="`next` of the previous page.")]


async def listed(
    request: Request,
    records: Iterator[tuple[str, T | None]],
    limit: int,
    page_type: type[BaseModel],
    to_item: Callable[[T], BaseModel],
) -> Response:
    """Return the response of a list; a thread encodes it, because a hundred items would block the event loop.

    Parameters
    ----------
    records
        See `page`.
    page_type
        Model with the members `items` and `next`.
    to_item
        Returns the model of a record.

    """
    items, following = await page(request, records, limit)

    def encode() -> str:
        return page_type(items=list(map(to_item, items)), next=following).model_dump_json()

    body = await run_in_threadpool(encode)
    return Response(body, media_type="application/json")


async def page(request: Request, records: Iterator[tuple[str, T | None]], limit: int) -> tuple[list[T], str | None]:
    """Return the next `limit` items and the cursor of the page after them; stop early if the client is gone.

    Parameters
    ----------
    records
        Positions and items; None in place of a record that the filter excludes.

    """
    items: list[tuple[str, T]] = []
    at: str | None = None
    for _ in range(MOST_LOOKED_AT // STEP):
        batch: list[tuple[str, T | None]] = await run_in_threadpool(_step, records, limit + 1 - len(items))
        items += [(where, item) for where, item in batch if item is not None]
        if len(items) > limit:
            return [item for _, item in items[:limit]], _cursor(items[limit - 1][0])
        if len(batch) < STEP:
            return [item for _, item in items], None
        at = batch[-1][0]
        if await request.is_disconnected():
            break
    return [item for _, item in items], None if at is None else _cursor(at)


def _step(records: Iterator[tuple[str, Any]], missing: int) -> list[tuple[str, Any]]:
    """Return the next records until they have the missing number of items, at most `STEP`."""
    batch = []
    for where, item in islice(records, STEP):
        batch.append((where, item))
        missing -= item is not None
        if not missing:
            break
    return batch


def _cursor(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode()


def position(cursor: str | None) -> str | None:
    """Return the position of a cursor.

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
        remedy = "Leave ?cursor= out for the first page, then use `next` unchanged."
        raise refuse("invalid-cursor", 422, f"{cursor!r} is not a cursor.", remedy) from None
