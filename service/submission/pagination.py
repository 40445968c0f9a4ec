"""Lists by cursor: a page begins after the last item of the one before, whatever was added meanwhile.

A page looks at `MOST_LOOKED_AT` records at most. A filter that fits fewer of them gives a shorter page, perhaps an
empty one, whose cursor goes on behind them; the list ends where there is no cursor.
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

MOST_LOOKED_AT = 1000  # records of a page: tens of milliseconds
STEP = 100  # records between two looks for the client

Limit = Annotated[int, Query(ge=1, le=100, description="Most items of a page.")]
Cursor = Annotated[str | None, Query(description="`next` of the page before.")]


async def listed(
    request: Request,
    found: Iterator[tuple[str, T | None]],
    limit: int,
    made: Callable[[list[T], str | None], BaseModel],
) -> Response:
    """Return the answer of a list; its JSON is made in a thread, because a hundred items would hold the event loop.

    Parameters
    ----------
    found
        See `page`.
    made
        Makes the body of a page and the cursor of the next.

    """
    items, following = await page(request, found, limit)
    body = await run_in_threadpool(lambda: made(items, following).model_dump_json())
    return Response(body, media_type="application/json")


async def page(request: Request, found: Iterator[tuple[str, T | None]], limit: int) -> tuple[list[T], str | None]:
    """Return the next `limit` items and the cursor of the page after them.

    Parameters
    ----------
    request
        The search ends early if its client is gone.
    found
        Positions and items; None in place of a record that the list leaves out.

    """
    items: list[tuple[str, T]] = []
    at: str | None = None
    for _ in range(MOST_LOOKED_AT // STEP):
        looked_at: list[tuple[str, T | None]] = await run_in_threadpool(_step, found, limit + 1 - len(items))
        items += [(where, item) for where, item in looked_at if item is not None]
        if len(items) > limit:
            return [item for _, item in items[:limit]], _cursor(items[limit - 1][0])
        if len(looked_at) < STEP:
            return [item for _, item in items], None
        at = looked_at[-1][0]
        if await request.is_disconnected():
            break
    return [item for _, item in items], None if at is None else _cursor(at)


def _step(found: Iterator[tuple[str, Any]], wanted: int) -> list[tuple[str, Any]]:
    """Return the next records, up to the last that is wanted, at most `STEP`."""
    looked_at = []
    for where, item in islice(found, STEP):
        looked_at.append((where, item))
        wanted -= item is not None
        if not wanted:
            break
    return looked_at


def _cursor(position: str) -> str:
    return base64.urlsafe_b64encode(position.encode()).decode()


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
