"""Spool request bodies to disk under a size limit."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from worker.base.files import make_folder
from worker.base.problems import ProblemError, refuse
from worker.storage.free_space import require_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fastapi import Request

_BUFFER = 2**20
_REMEDY = "Send npy instead of CSV or JSON, fewer rows or float32; or raise GLLE_MAX_BODY."


@asynccontextmanager
async def receive_body(request: Request, folder: Path, cap: int, remedy: str = _REMEDY) -> AsyncIterator[IO[bytes]]:
    """Yield the body as a temporary file in `folder`, rewound; keep the reserve of the disk free.

    `remedy` is that of a body of more than `cap` bytes.

    Raises
    ------
    ProblemError
        ``body-too-large`` and ``storage-full``, from the Content-Length or while reading; ``empty-body``.

    """
    length = request.headers.get("content-length")
    check_size(int(length or 0), cap, remedy)
    await run_in_threadpool(require_room, folder, int(length or 0))
    await run_in_threadpool(make_folder, folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        size = 0
        buffer = bytearray()
        async for chunk in request.stream():
            size += len(chunk)
            if size > cap:
                raise _too_large(f"The body has more than {cap:,} bytes", cap, remedy)
            buffer += chunk
            if len(buffer) >= _BUFFER:
                require_room(folder, len(buffer))
                await run_in_threadpool(file.write, bytes(buffer))
                buffer.clear()
        await run_in_threadpool(file.write, bytes(buffer))
        if size == 0:
            remedy = "Send the data as the body, for example with curl --data-binary @data.npy."
            raise refuse("empty-body", 422, "The request has no body.", remedy)
        await run_in_threadpool(file.seek, 0)
        yield file


def check_size(size: int, cap: int, remedy: str = _REMEDY) -> None:
    """Raise ``body-too-large`` for a body of more than `cap` bytes."""
    if size > cap:
        raise _too_large(f"The body has {size:,} bytes", cap, remedy)


def _too_large(detail: str, cap: int, remedy: str) -> ProblemError:
    return refuse("body-too-large", 413, f"{detail}; {cap:,} are allowed.", remedy, allowed=cap)
