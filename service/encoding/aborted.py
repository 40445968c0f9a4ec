"""Answers that have begun and whose rest does not come."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import redis
from fastapi.responses import StreamingResponse

from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from starlette.types import Send

log = logging.getLogger(__name__)


class ResponseAbortedError(RuntimeError):
    """The rest will not come."""


class AbortableResponse(StreamingResponse):
    """A stream whose end may not come: it is broken off then, and its client sees that it is not whole."""

    async def stream_response(self, send: Send) -> None:
        """Send the stream; without its end the server hangs up, because the answer is not complete."""
        try:
            await super().stream_response(send)
        except (ResponseAbortedError, ProblemError, redis.RedisError) as error:
            log.warning("An answer was broken off: %s", error)
