"""The client over several calls: jobs, pages, the awaited twin, progress bars."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from typing import assert_type

import httpx
import numpy as np
import pytest

from glle import (
    AsyncClient,
    AsyncPosterior,
    Client,
    ConflictError,
    GlleServiceError,
    Job,
    JobTimeoutError,
    NotFoundError,
    UnavailableError,
)
from glle.progress import Bars
from tests.client.answers import DATASET, URL, Clock, Service, job, npy, posterior, problem


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The client's clock."""
    return Clock(monkeypatch)


def test_job_is_followed_by_long_polls_to_its_end(clock: Clock) -> None:
    """202, then polls that wait, then the posterior; a service that allows no waiting is not stormed."""
    fitted = httpx.Response(200, json={"id": "post_1", "n": 3})
    service = Service(job("queued"), job("running"), job("succeeded"), fitted)
    assert service.client(clock.retries()).fit("ds_1").id == "post_1"
    assert [request.url.path for request in service.requests][1:] == ["/v1/jobs/job_1"] * 2 + ["/v1/posteriors/post_1"]
    assert service.requests[1].url.params["wait"] == "20.0"
    assert clock.slept == [1.0]


def test_job_that_failed_raises_its_problem() -> None:
    """Of the kind of its status, without asking for a result that is not there."""
    told = problem(503, "worker-lost").json()
    service = Service(job("queued"), job("failed", error=told))
    with pytest.raises(UnavailableError) as caught:
        service.client().fit("ds_1")
    assert caught.value.code == "worker-lost"
    assert len(service.requests) == 2


def test_job_that_was_cancelled_raises_a_conflict() -> None:
    """Somebody else may have cancelled it."""
    with pytest.raises(ConflictError, match=r"job_1 was cancelled\. Send the request again"):
        Service(job("queued"), job("cancelled")).client().fit("ds_1")


def test_job_that_outlasts_the_timeout_goes_on() -> None:
    """The error is a TimeoutError, too, and names the job."""
    with pytest.raises(TimeoutError, match=r"client\.job\(id\)\.wait\(\)") as caught:
        Service(job("queued")).client().fit("ds_1", timeout=0)
    assert isinstance(caught.value, JobTimeoutError)
    assert caught.value.details["job"] == "job_1"


def test_draw_that_must_be_made_first_is_waited_for() -> None:
    """202 with a job, the job's end, the same GET again; options are its query, and none is invented."""
    made = np.arange(6.0).reshape(3, 2)
    service = Service(job("queued"), job("succeeded"), httpx.Response(200, content=npy(made)))
    drawn = posterior(service.client()).draw(7, seed=3, scale="auto")
    np.testing.assert_array_equal(drawn, made)
    assert str(service.requests[2].url) == f"{URL}/v1/posteriors/post_1/draws/7?seed=3&scale=auto"
    assert service.requests[2].headers["accept"] == "application/x-npy"


def test_result_that_is_evicted_again_and_again_is_given_up() -> None:
    """Not asked for until the end of days: the remedy is less, or more cache."""
    service = Service(*[job("queued"), job("succeeded")] * 5)
    with pytest.raises(GlleServiceError, match="GLLE_CACHE_BYTES"):
        posterior(service.client()).draw(7)


def test_lists_go_over_all_pages() -> None:
    """Page by page, as they are asked for; the filter goes with every page."""
    told = [job("succeeded").json() | {"id": f"job_{i}"} for i in range(3)]
    pages = [{"items": told[:2], "next": "c1"}, {"items": told[2:], "next": None}]
    service = Service(*[httpx.Response(200, json=page) for page in pages])
    found = assert_type(service.client().jobs(kind="fit"), Iterator[Job])
    assert next(found).id == "job_0"
    assert len(service.requests) == 1
    assert [item.id for item in found] == ["job_1", "job_2"]
    assert [dict(request.url.params) for request in service.requests] == [
        {"kind": "fit", "limit": "100"},
        {"kind": "fit", "limit": "100", "cursor": "c1"},
    ]


def test_async_client_has_the_same_methods_awaited(clock: Clock) -> None:
    """Retries, jobs, lists and uploads are those of the one copy."""
    page = {"items": [job("succeeded").json()], "next": None}
    service = Service(
        problem(503),
        httpx.Response(201, json=DATASET),
        job("queued"),
        job("succeeded"),
        httpx.Response(200, json={"id": "post_1", "n": 3}),
        httpx.Response(200, json=page),
    )

    async def ask() -> list[str]:
        async with AsyncClient(URL, progress=False, retries=clock.retries(), transport=service.transport) as client:
            fitted = assert_type(await client.fit(await client.dataset(np.ones((3, 2)))), AsyncPosterior)
            return [fitted.id, *[item.id async for item in client.jobs()]]

    assert asyncio.run(ask()) == ["post_1", "job_1"]
    assert clock.slept[0] == 0.25
    assert service.requests[0].content == service.requests[1].content == npy(np.ones((3, 2)))


def test_async_client_raises_what_the_other_does(clock: Clock) -> None:
    """A lost connection, then a problem."""
    service = Service(httpx.ReadError("gone"), problem(404))

    async def ask() -> None:
        async with AsyncClient(URL, retries=clock.retries(), transport=service.transport) as client:
            await client.posterior("post_1")

    with pytest.raises(NotFoundError):
        asyncio.run(ask())
    assert clock.slept == [0.25]


def test_both_clients_have_one_set_of_methods() -> None:
    """What one can do, the other can."""
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert public[0] == public[1]
    assert "Return the posterior of a data set" in str(Client.fit.__doc__)


def test_bars_are_silent_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    """No terminal, no notebook: nothing is written, unless it is asked for."""
    for switch, shown in ((None, False), (False, False), (True, True)):
        bars = Bars(switch)
        with bars.bar("fit") as update:
            update({"done": 1, "total": 2, "stage": "weights", "eta": None})
            assert bars.is_visible is shown
        assert bool(capsys.readouterr().err) is shown


@pytest.mark.parametrize(("sign", "value"), [("Console.is_terminal", True), ("_is_jupyter", lambda: True)])
def test_bars_appear_in_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch, sign: str, value: object) -> None:
    """Without being asked for."""
    monkeypatch.setattr(f"rich.console.{sign}", value)
    assert Bars().is_visible


def test_bars_need_rich_only_when_they_are_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the client works in silence."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert not Bars().is_visible
    with pytest.raises(ImportError, match="pip install rich"):
        Bars(switch=True)


def test_job_that_is_over_at_once_has_no_bar(capsys: pytest.CaptureFixture[str]) -> None:
    """A bar that comes only to go would flicker."""
    bars = Bars(switch=True)
    with bars.bar("fit") as update:
        update({"done": 2, "total": 2, "stage": "done", "eta": None})
    assert bars.display is None
    assert capsys.readouterr().err == ""


def test_bars_of_several_jobs_share_one_display() -> None:
    """They begin with the first one's news and end with the last one."""
    bars = Bars(switch=True)
    with bars.bar("fit") as first, bars.bar("draws") as second:
        first({"done": 1, "total": 2, "stage": "weights", "eta": None})
        display = bars.display
        second({"done": 0, "total": 0, "stage": "queued", "eta": None})
        assert bars.display is display
        assert [task.description for task in display.tasks] == ["fit", "draws"]
    assert display.tasks == []
    assert not display.live.is_started


def test_bar_goes_when_the_job_fails(clock: Clock) -> None:
    """The steps that hold it are closed by whatever ends them."""
    service = Service(job("queued"), job("running"), problem(404))
    client = Client(URL, progress=True, retries=clock.retries(), transport=service.transport)
    with pytest.raises(NotFoundError):
        client.fit("ds_1")
    assert client._session.bars.display.tasks == []
