"""Synchronous functions on an event loop: their Redis calls suspend the request and never block the loop.

    request's coroutine -> on_loop(function) -> greenlet of the function -> suspend(awaitable) -> the coroutine awaits

The stores are synchronous, because workers and commands use them, too. `on_loop` runs one of their functions in a
greenlet of the loop's thread. A call that must wait switches back to the coroutine, which awaits in its place and
resumes the greenlet with the result. SQLAlchemy's asyncio extension works in the same way.
"""

from __future__ import annotations

import time
from asyncio import sleep, timeout
from functools import partial
from types import CoroutineType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from anyio import to_thread
from greenlet import getcurrent, greenlet

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

P = ParamSpec("P")
T = TypeVar("T")


class LoopGreenlet(greenlet):  # type: ignore[misc] # greenlet is untyped
    """Greenlet of a function that runs by `on_loop`.

    Attributes
    ----------
    connections : int
        Number of connections that it holds (`worker.connections.loop_pool`).

    """

    connections = 0


async def on_loop(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Run a synchronous function on the event loop, in the context of the calling task; return its result.

    It may call Redis through the clients of `Stores.connect`, and other blocking functions through `in_thread`. It must
    not block otherwise, and must compute for less than about a millisecond. A cancellation of the task is raised
    within the function, where it waits.
    """
    runner = LoopGreenlet(partial(function, *arguments, **options))
    runner.gr_context = getcurrent().gr_context
    result = runner.switch()
    while not runner.dead:
        try:
            value = await result
        except BaseException as error:  # noqa: BLE001 # raised within the function, a cancellation too
            result = runner.throw(error)
        else:
            result = runner.switch(value)
    return result  # type: ignore[no-any-return] # the function's, at its end


def is_on_loop() -> bool:
    """Return whether the caller runs by `on_loop`."""
    return isinstance(getcurrent(), LoopGreenlet)


def suspend(awaitable: Awaitable[T], seconds: float | None = None) -> T:
    """Return the result of an awaitable; other tasks run until then. The caller must run by `on_loop`.

    A coroutine that need not wait, such as a write to a socket, ends within the greenlet.

    Parameters
    ----------
    seconds
        Maximum time to wait, after which `TimeoutError` is raised.

    """
    if isinstance(awaitable, CoroutineType):
        try:
            awaitable = _Begun(awaitable, awaitable.send(None))
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return] # the coroutine's
    if seconds is not None:
        awaitable = _wait_at_most(awaitable, seconds)
    parent = getcurrent().parent
    assert parent is not None
    return parent.switch(awaitable)  # type: ignore[no-any-return] # greenlets are untyped


async def _wait_at_most(awaitable: Awaitable[T], seconds: float) -> T:
    async with timeout(seconds):
        return await awaitable


class _Begun:
    """The rest of a coroutine, which has run until it waits for `step`."""

    def __init__(self, coroutine: CoroutineType[Any, Any, Any], step: Any) -> None:
        self._coroutine = coroutine
        self._step = step

    def __await__(self) -> Generator[Any, Any, Any]:
        while True:
            try:
                value = yield self._step
            except BaseException as error:  # noqa: BLE001 # raised within the coroutine
                resume = partial(self._coroutine.throw, error)
            else:
                resume = partial(self._coroutine.send, value)
            try:
                self._step = resume()
            except StopIteration as end:
                return end.value


def in_thread(function: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Return the result of a function that reads disks, waits for other servers or computes for long.

    A caller that runs by `on_loop` is suspended while a thread runs the function. Elsewhere it is a plain call.
    """
    if not is_on_loop():
        return function(*arguments, **options)
    return suspend(to_thread.run_sync(partial(function, *arguments, **options)))


def pause(seconds: float) -> None:
    """Sleep without blocking an event loop."""
    if is_on_loop():
        suspend(sleep(seconds))
    else:
        time.sleep(seconds)
