"""Responses that may end early."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import redis
from fastapi.responses import StreamingResponse

from worker.base.problems import ProblemError

if TYPE_CHECKING:
    from starlette.types import Send

log = logging.getLogger(__name__)


class ResponseAbortedError(RuntimeError):
    """The rest of a started response cannot be produced."""


class AbortableResponse(StreamingResponse):
    """Streaming response that aborts if its rest cannot be produced, so that the client sees it is incomplete."""

    def __init__(self, content: Any, *arguments: Any, **options: Any) -> None:
        self.content = content
        super().__init__(content, *arguments, **options)

    async def stream_response(self, send: Send) -> None:
        """Send the stream; without the last message the server closes the connection."""
        try:
            await super().stream_response(send)
        except (ResponseAbortedError, ProblemError, redis.RedisError) as error:
            log.warning("A response was aborted: %s", error)
