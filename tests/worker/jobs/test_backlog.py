"""Retry-After of refused jobs, computed from the backlog."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.base.problems import ProblemError
from worker.jobs import backlog, store
from worker.jobs.backlog import LONGEST_SECONDS, LOOK_SECONDS, WINDOW_SECONDS
from worker.records.quotas import JobLimits

if TYPE_CHECKING:
    from worker.jobs.store import JobStore
    from worker.stores import Stores


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """Return the time of the records and of the process, in seconds; a test advances it."""
    time = {"now": 1_800_000_000.0}
    monkeypatch.setattr(store, "now_ms", lambda: int(1000 * time["now"]))
    monkeypatch.setattr(backlog, "now_ms", lambda: int(1000 * time["now"]))
    monkeypatch.setattr(backlog, "monotonic", lambda: time["now"])
    return time


def add(jobs: JobStore, claim: str) -> str:
    """Create a job and return its id."""
    return jobs.create(kind="fit", claim=claim, posterior=claim, spec={}, total=1)[0].id


def refused(jobs: JobStore, code: str) -> int:
    """Return the seconds of a refusal."""
    with pytest.raises(ProblemError) as caught:
        add(jobs, "one more")
    assert caught.value.problem.code == code
    seconds = caught.value.problem.details["retry_after"]
    assert isinstance(seconds, int)
    return seconds


def end(jobs: JobStore, clock: dict[str, float], count: int, seconds: float) -> None:
    """End jobs one after the other, `seconds` apart; the first ends now."""
    for number in range(count):
        clock["now"] += seconds if number else 0.0
        jobs.cancel(add(jobs, f"ended {clock['now']} {number}"))


def test_refused_requests_return_at_the_rate_at_which_jobs_end(stores: Stores, clock: dict[str, float]) -> None:
    """At a job in 4 s, three requests that are refused together return after 4, 8 and 12 s."""
    jobs = stores.jobs.of("alice", JobLimits(all_open=2))
    end(jobs, clock, 6, 4.0)
    clock["now"] += 4.0  # six ends in 24 s
    for claim in ("a", "b"):
        add(jobs, claim)
    assert [refused(jobs, "too-many-jobs") for _ in range(3)] == [4, 8, 12]
    clock["now"] += 0.5
    assert refused(jobs, "too-many-jobs") == 16  # the line has moved by half a second


def test_the_estimate_is_at_least_a_second_and_bounded(stores: Stores, clock: dict[str, float]) -> None:
    """Fast ends give one second; without an end in the window, or for a long line, the bound holds."""
    jobs = stores.jobs.of("alice", JobLimits(all_open=1))
    end(jobs, clock, 5, 0.01)
    add(jobs, "a")
    assert refused(jobs, "too-many-jobs") == 1
    assert max(refused(jobs, "too-many-jobs") for _ in range(500)) == LONGEST_SECONDS
    clock["now"] += WINDOW_SECONDS + LONGEST_SECONDS + 1
    assert refused(jobs, "too-many-jobs") == LONGEST_SECONDS


def test_the_bound_holds_although_the_time_is_rounded(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """At this time, seconds since the start of the machine, t + 60 - t is more than 60."""
    assert 223.273 + LONGEST_SECONDS - 223.273 > LONGEST_SECONDS
    monkeypatch.setattr(backlog, "monotonic", lambda: 223.273)
    jobs = stores.jobs.of("alice", JobLimits(all_open=1))
    add(jobs, "a")
    assert refused(jobs, "too-many-jobs") == LONGEST_SECONDS


def test_a_tenants_rate_is_its_share_of_the_open_jobs(stores: Stores, clock: dict[str, float]) -> None:
    """Each tenant has a separate line, and rates that are a second old at most."""
    alice, bob = (stores.jobs.of(name, JobLimits(open=1)) for name in ("alice", "bob"))
    end(alice, clock, 5, 2.0)
    clock["now"] += 2.0  # five ends in 10 s
    for jobs in (alice, bob):
        add(jobs, "a")
    assert [refused(alice, "quota-exceeded"), refused(bob, "quota-exceeded")] == [4, 4]  # half of the rate
    bob.cancel(add(bob, "a"))
    clock["now"] += LOOK_SECONDS / 2
    assert refused(alice, "quota-exceeded") == 8  # 7.5
    clock["now"] += LOOK_SECONDS
    assert refused(alice, "quota-exceeded") == 9  # 6.5 and the seconds of six ends in 11.5 s
