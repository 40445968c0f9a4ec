"""Actions that repeat in threads beside a test."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def repeated(*actions: Callable[[], object], seconds: float = 0.0) -> Iterator[None]:
    """Repeat each action in a thread, at least once, until the context exits; then raise the first error.

    Parameters
    ----------
    seconds
        Pause between two calls.

    """
    is_over, errors = threading.Event(), list[Exception]()

    def repeat(action: Callable[[], object]) -> None:
        try:
            action()
            while not is_over.wait(seconds):
                action()
        except Exception as error:  # noqa: BLE001 # raised by the thread that waits
            errors.append(error)

    threads = [threading.Thread(target=repeat, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
    if errors:
        raise errors[0]
