"""The processes of `glle up`, replaced one after the other."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING

from service.cli.supervisor import Child, Started, pipe_is_up, replaced
from service.cli.up import _recovered
from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.base.settings import Settings


SHELL = "/bin/sh"


def sleeping() -> subprocess.Popen[bytes]:
    """Return a process that goes on until it is told to stop."""
    return subprocess.Popen([SHELL, "-c", "exec sleep 60"])


def children(said: list[str], is_up: Callable[[], bool]) -> list[Child]:
    """Return two places with a process each."""
    numbers = count(1)
    made = [Child(name, lambda: Started(sleeping(), is_up, str(next(numbers))), said.append) for name in ("one", "two")]
    for child in made:
        child.start()
    return made


def end(places: list[Child]) -> None:
    """End what runs."""
    for child in places:
        if child.running is not None:
            child.running.process.kill()
            child.running.process.wait()


def test_the_new_one_works_before_the_old_one_stops() -> None:
    """Each place is filled at every moment; an old process is over before the next one is replaced."""
    said: list[str] = []
    ready = False
    over: list[str] = []
    leaving: list[Started] = []
    places = children(said, lambda: ready)
    first = [child.running for child in places]
    steps = replaced(places, leaving, 60, said.append, lambda gone: over.append(gone.name))
    try:
        next(steps)
        assert [child.running for child in places] == first
        assert [started.name for started in leaving] == ["3"], "whoever stops the tree stops it, too"
        ready = True
        until(lambda: next(steps, "end") == "end", 10)
        assert over == ["1", "2"]
        assert [child.running.name for child in places if child.running] == ["3", "4"]
        assert [started.is_over for started in first if started] == [True, True]
        assert (leaving, said[-1]) == ([], "Every process is a new one.")
    finally:
        end(places)


def test_where_the_new_one_does_not_start_the_old_one_goes_on() -> None:
    """A release that does not start costs nothing."""
    said: list[str] = []
    places = children(said, lambda: False)
    first = [child.running for child in places]
    for child in places:
        child.spawn = lambda: Started(subprocess.Popen([SHELL, "-c", "exit 1"]), lambda: False)
    steps = replaced(places, [], 60, said.append, lambda _: None)
    try:
        until(lambda: next(steps, "end") == "end", 10)
        assert [child.running for child in places] == first
        assert not any(started.is_over for started in first if started)
        assert "did not start" in said[-1]
    finally:
        end(places)


def test_what_does_not_end_is_killed_in_the_end() -> None:
    """A process that is deaf to its signal does not hold up the others for ever."""
    said: list[str] = []
    deaf = Child(
        "deaf", lambda: Started(subprocess.Popen([SHELL, "-c", "trap '' TERM; sleep 60 & wait; wait"])), said.append
    )
    deaf.start()
    steps = replaced([deaf], [], 0.2, said.append, lambda _: None)
    try:
        until(lambda: next(steps, "end") == "end", 10)
        assert said[-1] == "Every process is a new one."
    finally:
        end([deaf])


def test_a_pipe_tells_readiness_and_not_an_end() -> None:
    """Nothing is said, then the word comes; an end without a word is no readiness."""
    for word in (b"1", b""):
        end_of_parent, end_of_child = os.pipe()
        is_up = pipe_is_up(end_of_parent)
        assert not is_up()
        os.write(end_of_child, word)
        os.close(end_of_child)
        assert is_up() == bool(word)


def test_pauses_grow_for_what_does_not_start() -> None:
    """What ends at once is begun again after pauses that grow; what had lived for seconds is begun again at once."""
    said: list[str] = []
    child = Child("one", lambda: Started(sleeping()), said.append)
    try:
        for pause in ("0.5", "1", "2"):
            child.start()
            end([child])
            assert child.ended() is not None
            assert said[-1] == f"one ended with -9; again in {pause} s"
        child.start()
        end([child])
        child.started -= 6
        assert child.ended() is not None
        assert said[-1] == "one ended with -9; again in 0 s"
    finally:
        end([child])


def test_a_dead_workers_tasks_wait_for_the_queues_server(settings: Settings) -> None:
    """A worker that was lost together with the server is told of again, until the server hears it."""
    process = sleeping()
    process.kill()
    process.wait()
    lost = Started(process, name="lost")
    away = replace(settings, redis_url="redis://127.0.0.1:1/0")
    assert not _recovered(away, lost)
    assert _recovered(settings, lost)
    assert _recovered(away, Started(process)), "an API has no tasks"
