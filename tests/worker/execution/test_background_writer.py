"""Background writer: ordered, bounded calls in one thread."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from tests.worker.execution.jobs import raiser
from worker.execution.background_writer import MAX_PENDING, BackgroundWriter
from worker.observability.request_context import on_behalf, task_metadata


def test_calls_run_in_order_before_the_context_ends() -> None:
    """Calls run in order in one separate thread, and the context waits for the last."""
    numbers: list[int] = []
    threads = set()

    def call(number: int) -> None:
        time.sleep(0.002 * (number % 3))
        numbers.append(number)
        threads.add(threading.get_ident())

    with BackgroundWriter() as writer:
        for number in range(20):
            writer.submit(partial(call, number))
    assert numbers == list(range(20))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_pending_calls_are_bounded() -> None:
    """A caller with `MAX_PENDING` pending calls waits."""
    gate = threading.Event()
    submitted: list[int] = []

    def submit_all(writer: BackgroundWriter) -> None:
        for number in range(3 * MAX_PENDING):
            writer.submit(gate.wait)
            submitted.append(number)

    with BackgroundWriter() as writer:
        thread = threading.Thread(target=submit_all, args=(writer,))
        thread.start()
        time.sleep(0.2)
        assert len(submitted) == MAX_PENDING
        gate.set()
        thread.join()


def test_an_error_of_a_call_reaches_the_caller() -> None:
    """The next `flush` raises it, and later calls are dropped with the same error."""
    numbers: list[int] = []
    writer = BackgroundWriter()
    gate = threading.Event()
    writer.submit(gate.wait)
    writer.submit(raiser(ValueError("no")))
    writer.submit(partial(numbers.append, 1))
    gate.set()
    with pytest.raises(ValueError, match="no"):
        writer.flush()
    with pytest.raises(ValueError, match="no"):
        writer.submit(partial(numbers.append, 2)).result()
    assert numbers == []


def test_a_call_has_a_result_and_the_context_of_its_submission() -> None:
    """Tasks that a call enqueues carry the request id of the task in work."""
    with BackgroundWriter() as writer, on_behalf({"request_id": "r1"}, "job_1"):
        assert writer.submit(task_metadata).result()["request_id"] == "r1"


def test_an_error_of_the_caller_drops_pending_calls() -> None:
    """Pending calls are dropped when the caller fails, and its error is raised."""
    gate, numbers = threading.Event(), list[int]()

    def fail() -> None:
        with BackgroundWriter() as writer:
            writer.submit(gate.wait)
            writer.submit(partial(numbers.append, 1))
            threading.Timer(0.05, gate.set).start()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert numbers == []
