"""Bodies on the way in: streamed to disk under a cap, then read by a thread, never on the event loop."""

from __future__ import annotations

import tempfile
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING

from starlette.concurrency import run_in_threadpool

from worker.base.files import restrict_folder
from worker.base.problems import ProblemError, refuse
from worker.storage.free_space import require_room

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fastapi import Request

_BUFFER = 2**20


@asynccontextmanager
async def received(request: Request, folder: Path, cap: int, reserve: int) -> AsyncIterator[IO[bytes]]:
    """Yield the body as a file in `folder`, rewound, gone afterwards; it leaves `reserve` bytes of the disk free.

    Raises
    ------
    ProblemError
        ``body-too-large`` before anything is read when the announced length is over the cap, and while
        reading when it is not announced; ``storage-full`` in the same way; ``empty-body``.

    """
    announced = request.headers.get("content-length")
    if announced is not None and int(announced) > cap:
        raise _too_large(f"A body of {int(announced):,} bytes was announced", cap)
    await run_in_threadpool(require_room, folder, int(announced or 0), reserve)
    await run_in_threadpool(restrict_folder, folder)
    with tempfile.TemporaryFile(dir=folder) as file:
        size = 0
        waiting = bytearray()
        async for chunk in request.stream():
            size += len(chunk)
            if size > cap:
                raise _too_large("The body goes on after the last byte that is allowed", cap)
            waiting += chunk
            if len(waiting) >= _BUFFER:
                require_room(folder, len(waiting), reserve)
                await run_in_threadpool(file.write, bytes(waiting))
                waiting.clear()
        await run_in_threadpool(file.write, bytes(waiting))
        if size == 0:
            raise refuse(
                "empty-body",
                422,
                "The request has no body.",
                "Send the data as the body, such as with curl's --data-binary @data.npy.",
            )
        await run_in_threadpool(file.seek, 0)
        yield file


def _too_large(what: str, cap: int) -> ProblemError:
    return refuse(
        "body-too-large",
        413,
        f"{what}; {cap:,} are allowed.",
        "Send npy instead of CSV or JSON, fewer rows or float32; or raise GLLE_MAX_BODY or GLLE_MAX_JSON.",
        allowed=cap,
    )
