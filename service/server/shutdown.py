"""An API process that is about to stop: it answers still, and asks to be asked no more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.base.problems import refuse

if TYPE_CHECKING:
    from service.responses.streaming import StreamLimiter
    from worker.stores import Stores


class Shutdown:
    """Whether this process is about to stop, and what it tells its clients then.

    Parameters
    ----------
    streams
        The answers that stay open; they are ended last.

    Attributes
    ----------
    begun : bool
        From then on /readyz is 503, and every answer closes its connection: the next request comes to another process.

    """

    def __init__(self, stores: Stores, streams: StreamLimiter) -> None:
        self._stores = stores
        self._streams = streams
        self.begun = False

    def begin(self) -> None:
        """Tell everyone, from now on."""
        self.begun = True

    def end_waits(self) -> None:
        """Answer at once whoever waits for a job, with the job as it is; end every stream."""
        self._stores.endings.end()
        self._streams.stop(self._stores.changes)

    def require_not_draining(self) -> None:
        """Raise the problem of a process that is about to stop.

        Raises
        ------
        ProblemError
            ``draining``.

        """
        if self.begun:
            raise refuse(
                "draining",
                503,
                "This process is about to stop; it still answers what it is asked.",
                "Send the next requests to another process, or to this address again in some seconds.",
            )
