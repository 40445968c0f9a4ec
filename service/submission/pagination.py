"""Cursor pagination: a page begins after the last item of the previous page, so that new items do not shift it.

A page reads at most `MOST_LOOKED_AT` records, and has at most `MAX_PAGE` bytes or one item. With a filter it may be
short or empty; the list ends at a page without a cursor. A record that has no JSON is skipped, and its id reported.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from fastapi import Query, Request, Response
from starlette.concurrency import run_in_threadpool

from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel


class Listed(Protocol):
    """Record of a list."""

    @property
    def id(self) -> str:
        """Id of the resource."""


T = TypeVar("T")
R = TypeVar("R", bound=Listed)

log = logging.getLogger(__name__)

MAX_PAGE = 2**22  # bytes of JSON, unless one item has more; a data set may have 10,000 names of features
MOST_LOOKED_AT = 1000  # records, some tens of milliseconds
STEP = 100  # records between two checks that the client is connected

Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
Cursor = Annotated[str | None, Query(description="`next` of the previous page.")]


async def listed(
    request: Request, records: Iterator[tuple[str, R | None]], limit: int, to_item: Callable[[R], BaseModel]
) -> Response:
    """Return the response of a list; a thread encodes it, because a hundred items would block the event loop.

    Parameters
    ----------
    records
        See `page`.
    to_item
        Returns the model of a record.

    """
    items, following = await page(request, records, limit)
    body = await run_in_threadpool(_encode_page, items, following, to_item)
    return Response(body, media_type="application/json")


def _encode_page(items: list[tuple[str, R]], following: str | None, to_item: Callable[[R], BaseModel]) -> str:
    """Return a page as JSON: the members of `service.schemas.resources.Page`, and `items`."""
    texts: list[str] = []
    unreadable: list[str] = []
    size, last = 0, ""
    for where, item in items:
        try:
            text = to_item(item).model_dump_json()
        except ValueError as error:  # such as a text that is no UTF-8, in a record of an earlier version
            log.warning("The record %s has no JSON and is left out of a list: %s", item.id, error)
            unreadable.append(item.id)
        else:
            size += len(text.encode())
            if texts and size > MAX_PAGE:
                following = _cursor(last)
                break
            texts.append(text)
        last = where
    return f'{{"next":{json.dumps(following)},"unreadable":{json.dumps(unreadable)},"items":[{",".join(texts)}]}}'


async def page(
    request: Request, records: Iterator[tuple[str, T | None]], limit: int
) -> tuple[list[tuple[str, T]], str | None]:
    """Return the next `limit` items with their positions, and the cursor of the page after them.

    It stops early if the client is gone.

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
            return items[:limit], _cursor(items[limit - 1][0])
        if len(batch) < STEP:
            return items, None
        at = batch[-1][0]
        if await request.is_disconnected():
            break
    return items, None if at is None else _cursor(at)


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
