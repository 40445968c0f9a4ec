"""Bounded, ordered background writer: one thread, a few pending calls."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

MAX_PENDING = 4  # calls; the next `submit` waits


class BackgroundWriter:
    """Calls in the order of their submission, in a thread beside the caller.

    The next `submit` or `flush` raises the error of a failed call; later calls are dropped. The thread mostly waits for
    a server's answer, while compiled code of the caller runs.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="background-writer")
        self._pending: deque[Future[object]] = deque()
        self._has_failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.flush()
        finally:
            # After an error of either thread, pending calls may depend on what failed.
            self._pool.shutdown(cancel_futures=True)

    def submit(self, call: Callable[[], object]) -> None:
        """Submit a call; raises the error of an earlier one."""
        while self._pending and (self._pending[0].done() or len(self._pending) >= MAX_PENDING):
            self._pending.popleft().result()
        self._pending.append(self._pool.submit(self._call, call))

    def flush(self) -> None:
        """Wait until every call has ended; raises the error of a failed one."""
        while self._pending:
            self._pending.popleft().result()

    def _call(self, call: Callable[[], object]) -> None:
        if self._has_failed:
            return
        try:
            call()
        except BaseException:
            self._has_failed = True
            raise
