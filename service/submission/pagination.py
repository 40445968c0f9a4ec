"""Cursor pagination: a page begins after the last item of the previous page, so that new items do not shift it.

To make a page, at most `MAX_READ_RECORDS` records are read. A page has at most `MAX_PAGE_BYTES` bytes, unless a single
item has more. With a filter, a page may be short or empty; the list ends only at a page without a cursor. A record that
cannot be written as JSON is skipped, and its id is reported.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Response
from starlette.concurrency import run_in_threadpool

from worker.base.problems import refuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pydantic import BaseModel


log = logging.getLogger(__name__)

# A page has at most this many bytes of JSON, unless a single item has more, such as 10,000 names of features.
MAX_PAGE_BYTES = 2**22
MAX_READ_RECORDS = 1000  # a page reads at most this many records, which takes some tens of milliseconds

Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
Cursor = Annotated[str | None, Query(description="`next` of the previous page.")]


async def page_response(
    records: Iterator[tuple[str, Any]], limit: int, to_item: Callable[[Any], BaseModel]
) -> Response:
    """Return the response with one page of a list, made in a thread, because that takes too long for the event loop.

    Parameters
    ----------
    records
        Pairs of a position in the list and a record; the record is None if the filter excludes it.
    to_item
        Returns the response model of a record.

    """
    return Response(await run_in_threadpool(_page, records, limit, to_item), media_type="application/json")


def _page(records: Iterator[tuple[str, Any]], limit: int, to_item: Callable[[Any], BaseModel]) -> str:
    """Return a page as JSON: the members of `service.schemas.resources.Page`, and `items`."""
    texts: list[str] = []
    unreadable: list[str] = []
    size, last = 0, ""
    following: str | None = None
    for looked_at, (where, record) in enumerate(records, 1):
        if record is not None:
            if len(texts) + len(unreadable) == limit:
                following = last
                break
            try:
                text = to_item(record).model_dump_json()
            except ValueError as error:  # such as text that is not valid UTF-8, in a record of an earlier version
                log.warning("The record %s has no JSON and is left out of a list: %s", record.id, error)
                unreadable.append(record.id)
            else:
                size += len(text.encode())
                if texts and size > MAX_PAGE_BYTES:
                    following = last
                    break
                texts.append(text)
            last = where
        if looked_at == MAX_READ_RECORDS:
            following = where
            break
    cursor = json.dumps(None if following is None else base64.urlsafe_b64encode(following.encode()).decode())
    return f'{{"next":{cursor},"unreadable":{json.dumps(unreadable)},"items":[{",".join(texts)}]}}'


def position(cursor: str | None) -> str | None:
    """Return the position in the list after which a page begins, decoded from ?cursor=; None for the first page.

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
        remedy = "Leave ?cursor= out for the first page, then follow the link `next` of each page unchanged."
        detail = f"?cursor={cursor[:100]!r} is not a cursor that a page of a list has returned."
        raise refuse("invalid-cursor", 422, detail, remedy) from None
