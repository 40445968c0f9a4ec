"""Bounded, ordered background writer: one thread, a few pending calls."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

T = TypeVar("T")

MAX_PENDING = 4  # calls; the next `submit` waits


class BackgroundWriter:
    """Calls in the order of their submission, in a thread beside the caller.

    Calls run in the context of their submission. The next `submit` or `flush` raises the error of a failed call; later
    calls are dropped, and their futures have the same error. The thread mostly waits for
    a server's answer, while compiled code of the caller runs.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="background-writer")
        self._pending: deque[Future[Any]] = deque()
        self._error: BaseException | None = None

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

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Submit a call and return its future; raises the error of an earlier one."""
        while self._pending and (self._pending[0].done() or len(self._pending) >= MAX_PENDING):
            self._pending.popleft().result()
        future = self._pool.submit(copy_context().run, self._call, call)
        self._pending.append(future)
        return future

    def flush(self) -> None:
        """Wait until every call has ended; raises the error of a failed one."""
        while self._pending:
            self._pending.popleft().result()

    def _call(self, call: Callable[[], T]) -> T:
        if self._error is not None:
            raise self._error
        try:
            return call()
        except BaseException as error:
            self._error = error
            raise
