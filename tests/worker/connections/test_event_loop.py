"""Synchronous functions on an event loop: waits, threads, contexts, errors and cancellations."""

from __future__ import annotations

import asyncio
import threading
from contextvars import ContextVar

import pytest

from tests.worker.connections.leaks import greenlets
from worker.connections.event_loop import in_thread, is_on_loop, on_loop, pause, suspend

NAME: ContextVar[str] = ContextVar("name", default="")


def test_a_function_waits_while_others_run() -> None:
    """Two functions on one loop take turns wherever they wait."""
    steps: list[str] = []

    async def run() -> list[str]:
        turn = asyncio.Event()

        def first() -> str:
            steps.append("first waits")
            suspend(turn.wait())
            steps.append("first goes on")
            return "first"

        def second() -> str:
            steps.append("second")
            turn.set()
            return "second"

        return list(await asyncio.gather(on_loop(first), on_loop(second)))

    assert asyncio.run(run()) == ["first", "second"]
    assert steps == ["first waits", "second", "first goes on"]


def test_arguments_results_and_errors_pass() -> None:
    """A function gets its arguments; its error, and that of an awaitable, reach the caller."""

    async def fails() -> None:
        await asyncio.sleep(0)
        raise KeyError("awaited")

    def work(number: int, *, is_failing: bool) -> int:
        if is_failing:
            with pytest.raises(KeyError, match="awaited"):
                suspend(fails())
            raise ValueError(number)
        return number + 1

    assert asyncio.run(on_loop(work, 1, is_failing=False)) == 2
    with pytest.raises(ValueError, match="7"):
        asyncio.run(on_loop(work, 7, is_failing=True))
    assert not is_on_loop()
    assert greenlets() == 0


def test_the_context_is_that_of_the_request() -> None:
    """Concurrent functions see the context variables of their tasks, and the task sees what its function sets."""

    def work(name: str) -> tuple[str, str]:
        before = NAME.get()
        pause(0.001)
        in_thread(str, name)
        seen = in_thread(NAME.get)
        NAME.set(f"{NAME.get()} and {name}")
        pause(0.001)
        return before, seen

    async def request(name: str) -> tuple[tuple[str, str], str]:
        NAME.set(name)
        return await on_loop(work, name), NAME.get()

    async def run() -> list[tuple[tuple[str, str], str]]:
        return list(await asyncio.gather(*(request(name) for name in "abc")))

    assert asyncio.run(run()) == [((name, name), f"{name} and {name}") for name in "abc"]
    assert NAME.get() == ""


def test_a_blocking_call_runs_in_a_thread() -> None:
    """On a loop `in_thread` uses another thread, and the loop goes on; elsewhere it is a plain call."""

    async def run() -> tuple[int, int]:
        released = threading.Event()

        def release() -> int:
            released.set()
            return threading.get_ident()

        def block() -> int:
            assert released.wait(30)
            return threading.get_ident()

        blocked, released_in = await asyncio.gather(on_loop(in_thread, block), on_loop(release))
        return int(blocked), released_in

    blocked, released_in = asyncio.run(run())
    assert released_in == threading.get_ident() != blocked
    assert in_thread(threading.get_ident) == threading.get_ident()


def test_a_cancellation_is_raised_within_the_function() -> None:
    """The function cleans up, even with further waits, and no greenlet is left."""
    cleaned: list[str] = []

    def work() -> None:
        try:
            suspend(asyncio.Event().wait())
        finally:
            pause(0.001)
            cleaned.append("yes")

    async def run() -> None:
        task = asyncio.create_task(on_loop(work))
        await asyncio.sleep(0)
        assert greenlets() == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(run())
    assert cleaned == ["yes"]
    assert greenlets() == 0


def test_a_coroutine_that_need_not_wait_ends_at_once() -> None:
    """Its result and its error; one that waits goes on in its task, and a cancellation reaches it."""
    steps: list[str] = []

    async def result(value: int, *, is_failing: bool = False) -> int:
        if is_failing:
            raise KeyError(value)
        return value

    async def waits(turn: asyncio.Event) -> str:
        task = asyncio.current_task()
        try:
            await turn.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            steps.append("cancelled")
            raise
        assert asyncio.current_task() is task
        return "waited"

    async def run() -> str:
        def work() -> str:
            asyncio.get_running_loop().call_soon(steps.append, "the loop's next turn")
            steps.append(str(suspend(result(1))))
            with pytest.raises(KeyError):
                suspend(result(2, is_failing=True))
            return suspend(waits(turn))

        turn = asyncio.Event()
        cancelled = asyncio.create_task(on_loop(work))
        await asyncio.sleep(0)
        assert steps == ["1"]
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        turn.set()
        return await on_loop(work)

    assert asyncio.run(run()) == "waited"
    assert "cancelled" in steps


def test_a_wait_may_be_limited() -> None:
    """`TimeoutError` after the time; the function may go on."""

    async def run() -> str:
        def work() -> str:
            with pytest.raises(TimeoutError):
                suspend(asyncio.Event().wait(), seconds=0.01)
            return suspend(asyncio.sleep(0, "in time"), seconds=10)

        return await on_loop(work)

    assert asyncio.run(run()) == "in time"
