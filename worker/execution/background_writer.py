"""Work done behind other work: in order, by one thread, and never far behind."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

FAR = 4  # calls that may wait; then whoever asks for more waits himself


class Behind:
    """Calls made in the order in which they were asked for, while the asker goes on.

    What a call raises is raised to the asker, with one of its next words; the calls after it are not made. The thread
    waits for its turn most of the time (for a server's answer), while compiled code of the asker runs.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="behind")
        self._waiting: deque[Future[object]] = deque()
        self._failed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.catch_up()
        finally:
            # After an error, of either side, what has not begun is left: it may rest on what failed.
            self._pool.shutdown(cancel_futures=True)

    def do(self, call: Callable[[], object]) -> None:
        """Have a call made after those before it.

        Raises
        ------
        Exception
            What an earlier call raised.

        """
        while self._waiting and (self._waiting[0].done() or len(self._waiting) >= FAR):
            self._waiting.popleft().result()
        self._waiting.append(self._pool.submit(self._call, call))

    def catch_up(self) -> None:
        """Wait until every call is made; raises what one of them raised."""
        while self._waiting:
            self._waiting.popleft().result()

    def _call(self, call: Callable[[], object]) -> None:
        if self._failed:
            return
        try:
            call()
        except BaseException:
            self._failed = True
            raise
