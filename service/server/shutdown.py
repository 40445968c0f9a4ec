"""Graceful shutdown: keep serving, but report not ready and close connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.responses.streaming import StreamLimiter
    from worker.stores import Stores


class Shutdown:
    """Shutdown state of one API process.

    Once it drains, /readyz is 503 and every response closes its connection, so clients reconnect to another process.
    """

    def __init__(self, stores: Stores, stream_limiter: StreamLimiter) -> None:
        self._stores = stores
        self._stream_limiter = stream_limiter
        self._is_draining = False

    def is_draining(self) -> bool:
        """Return whether the process is shutting down."""
        return self._is_draining

    def begin(self) -> None:
        """Start to drain."""
        self._is_draining = True

    def end_waits(self) -> None:
        """Answer all requests that wait for a job with the job's current state, and end every stream."""
        self._stores.endings.end()
        self._stream_limiter.stop(self._stores.changes)

    def require_not_draining(self) -> None:
        """Raise ``draining`` if the process is shutting down."""
        if self._is_draining:
            raise refuse(
                "draining",
                503,
                "This process is shutting down; it still answers requests.",
                "Send the next requests to another process, or to this address again in some seconds.",
            )
