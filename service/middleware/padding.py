"""Time of refusals: a 404 takes as long for an unknown id as for another tenant's.

An id that is another's is read before it is refused, which takes some 100 us more. So a 404 to a key is sent at a whole
multiple of `STEP_SECONDS` after its request came, where both are the same unless the service is slow for other reasons.
"""

from __future__ import annotations

import asyncio
import math
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import Message, Send

STEP_SECONDS = 0.02


def padded(
    send: Send,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> Send:
    """Return a `send` that holds a 404 back until the next multiple of the step from now on."""
    started = clock()

    async def send_in_step(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == HTTPStatus.NOT_FOUND:
            took = clock() - started
            await sleep(math.ceil(took / STEP_SECONDS) * STEP_SECONDS - took)
        await send(message)

    return send_in_step
