"""Calls in the background."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from tests.worker.execution.test_tasks import raiser
from worker.execution.background_writer import MAX_PENDING, BackgroundWriter


def test_calls_are_made_in_order_and_by_the_end() -> None:
    """Calls run in order in one separate thread, and the context waits for the last."""
    made: list[int] = []
    threads = set()

    def call(number: int) -> None:
        time.sleep(0.002 * (number % 3))
        made.append(number)
        threads.add(threading.get_ident())

    with BackgroundWriter() as writer:
        for number in range(20):
            writer.submit(partial(call, number))
    assert made == list(range(20))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_nobody_gets_far_ahead() -> None:
    """A caller with `MAX_PENDING` pending calls waits."""
    gate = threading.Event()
    asked: list[int] = []

    def ask(writer: BackgroundWriter) -> None:
        for number in range(3 * MAX_PENDING):
            writer.submit(gate.wait)
            asked.append(number)

    with BackgroundWriter() as writer:
        thread = threading.Thread(target=ask, args=(writer,))
        thread.start()
        time.sleep(0.2)
        assert len(asked) == MAX_PENDING
        gate.set()
        thread.join()


def test_an_error_reaches_the_asker_and_ends_it() -> None:
    """The next `flush` raises it, and later calls are dropped."""
    made: list[int] = []
    writer = BackgroundWriter()
    gate = threading.Event()
    writer.submit(gate.wait)
    writer.submit(raiser(ValueError("no")))
    writer.submit(partial(made.append, 1))
    gate.set()
    with pytest.raises(ValueError, match="no"):
        writer.flush()
    writer.submit(partial(made.append, 2))
    writer.flush()
    assert made == []


def test_an_error_of_the_asker_drops_what_waits() -> None:
    """Pending calls are dropped when the caller fails, and its error is raised."""
    gate, made = threading.Event(), list[int]()

    def fail() -> None:
        with BackgroundWriter() as writer:
            writer.submit(gate.wait)
            writer.submit(partial(made.append, 1))
            threading.Timer(0.05, gate.set).start()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert made == []
