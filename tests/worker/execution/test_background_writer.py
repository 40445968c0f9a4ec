"""Calls made behind other work."""

from __future__ import annotations

import threading
import time
from functools import partial

import pytest

from tests.worker.execution.test_tasks import raiser
from worker.execution.background_writer import FAR, Behind


def test_calls_are_made_in_order_and_by_the_end() -> None:
    """Whatever each takes, they follow one another, by a thread of their own, and leaving waits for the last."""
    made: list[int] = []
    threads = set()

    def call(number: int) -> None:
        time.sleep(0.002 * (number % 3))
        made.append(number)
        threads.add(threading.get_ident())

    with Behind() as behind:
        for number in range(20):
            behind.do(partial(call, number))
    assert made == list(range(20))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


def test_nobody_gets_far_ahead() -> None:
    """Who asks for more than a few calls waits."""
    gate = threading.Event()
    asked: list[int] = []

    def ask(behind: Behind) -> None:
        for number in range(3 * FAR):
            behind.do(gate.wait)
            asked.append(number)

    with Behind() as behind:
        thread = threading.Thread(target=ask, args=(behind,))
        thread.start()
        time.sleep(0.2)
        assert len(asked) == FAR
        gate.set()
        thread.join()


def test_an_error_reaches_the_asker_and_ends_it() -> None:
    """It is raised where the asker next says a word, and nothing after the failed call is made."""
    made: list[int] = []
    behind = Behind()
    gate = threading.Event()
    behind.do(gate.wait)
    behind.do(raiser(ValueError("no")))
    behind.do(partial(made.append, 1))
    gate.set()
    with pytest.raises(ValueError, match="no"):
        behind.catch_up()
    behind.do(partial(made.append, 2))
    behind.catch_up()
    assert made == []


def test_an_error_of_the_asker_drops_what_waits() -> None:
    """What has not begun when the asker fails is not made, and his error is the one that is raised."""
    gate, made = threading.Event(), list[int]()

    def fail() -> None:
        with Behind() as behind:
            behind.do(gate.wait)
            behind.do(partial(made.append, 1))
            threading.Timer(0.05, gate.set).start()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        fail()
    assert made == []
