"""Jobs, pages, the asynchronous client and progress bars."""

from __future__ import annotations

import asyncio
import io
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_type

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

if TYPE_CHECKING:
    from pathlib import Path


def test_job_is_followed_by_long_polls(clock: Clock) -> None:
    """202, long polls, the posterior; polls that return at once are spaced by a pause."""
    fitted = httpx.Response(200, json={"id": "post_1", "n": 3})
    service = Service(job("queued"), job("running"), job("succeeded"), fitted)
    assert service.client(clock.retries()).fit("ds_1").id == "post_1"
    assert [request.url.path for request in service.requests][1:] == ["/v1/jobs/job_1"] * 2 + ["/v1/posteriors/post_1"]
    assert service.requests[1].url.params["wait"] == "20.0"
    assert clock.slept == [1.0]


@pytest.mark.parametrize(
    ("end", "kind", "message"),
    [
        (job("failed", error=problem(503, "worker-lost").json()), UnavailableError, "It went wrong"),
        (job("cancelled"), ConflictError, r"job_1 was cancelled\. Send the request again"),
    ],
)
def test_failed_job_raises_its_problem(end: httpx.Response, kind: type[Exception], message: str) -> None:
    """The class is that of the status; no result is requested."""
    service = Service(job("queued"), end)
    with pytest.raises(kind, match=message):
        service.client().fit("ds_1")
    assert len(service.requests) == 2


def test_timeout_leaves_the_job_running() -> None:
    """The error is also a TimeoutError, and names the job."""
    with pytest.raises(TimeoutError, match=r"client\.job\(id\)\.wait\(\)") as caught:
        Service(job("queued")).client().fit("ds_1", timeout=0)
    assert isinstance(caught.value, JobTimeoutError)
    assert caught.value.details["job"] == "job_1"


def test_uncached_draw_is_fetched_after_its_job() -> None:
    """202 with a job, the job's end, the same GET again, with exactly the given options."""
    draw = np.arange(6.0).reshape(3, 2)
    service = Service(job("queued"), job("succeeded"), httpx.Response(200, content=npy(draw)))
    drawn = posterior(service.client()).draw(7, seed=3, scale="auto")
    np.testing.assert_array_equal(drawn, draw)
    assert str(service.requests[2].url) == f"{URL}/v1/posteriors/post_1/draws/7?seed=3&scale=auto"
    assert service.requests[2].headers["accept"] == "application/x-npy"


def test_given_neighbors_are_uploaded() -> None:
    """As the data set of their indices, or named by an id; without them nothing is sent."""
    near = np.array([[1, 2], [0, 2], [0, 1]])
    for neighbors, uploads in ((near, 1), ((near * 0.5, near), 1), ("ds_near", 0), (None, 0)):
        answers = [httpx.Response(201, json=DATASET | {"id": "ds_near"})] * uploads
        service = Service(*answers, httpx.Response(200, json={"id": "post_1", "n": 3}))
        service.client().fit("ds_1", neighbors=neighbors)
        sent = json.loads(service.requests[-1].content)
        assert sent == {"dataset": "ds_1"} | ({} if neighbors is None else {"neighbors": "ds_near"})
        if uploads:
            np.testing.assert_array_equal(np.load(io.BytesIO(service.requests[0].content)), near)


def test_a_sheet_of_draws_has_its_scale() -> None:
    """The route of a sheet takes several scales; the client's `scale` is one of them."""
    service = Service(httpx.Response(200, content=b"\x89PNG"))
    posterior(service.client()).picture("draws", count=2, scale=0.1)
    assert str(service.requests[0].url) == f"{URL}/v1/posteriors/post_1/draws.png?count=2&scales=0.1"


def test_an_export_is_written_to_its_path(tmp_path: Path) -> None:
    """The file replaces the path when it is complete, and nothing else stays in the folder."""
    service = Service(job("queued"), job("succeeded"), httpx.Response(200, content=b"PK.."))
    path = posterior(service.client()).export(tmp_path / "kept.npz")
    assert (path, path.read_bytes(), list(tmp_path.iterdir())) == (tmp_path / "kept.npz", b"PK..", [path])
    assert service.requests[2].url.path == "/v1/posteriors/post_1/export"
    assert service.requests[2].headers["accept"] == "application/zip"


def test_an_import_sends_the_file(tmp_path: Path, clock: Clock) -> None:
    """The body is the file, sent again after a lost connection, because the content names the posterior."""
    (tmp_path / "kept.npz").write_bytes(b"PK..")
    service = Service(httpx.ReadError("gone"), httpx.Response(201, json={"id": "post_2", "n": 3}))
    assert service.client(clock.retries()).import_posterior(tmp_path / "kept.npz").id == "post_2"
    for request in service.requests:
        assert (request.method, request.url.path, request.content) == ("POST", "/v1/posteriors/import", b"PK..")
        assert request.headers["content-type"] == "application/zip"


def test_an_estimate_is_fetched_after_its_job() -> None:
    """202 with a job, the job's end, the same POST again, without an Idempotency-Key: its content names the result."""
    expected = {"fit": {"seconds": 3.0, "bytes": 1e8}, "problem": None}
    service = Service(job("queued"), job("succeeded"), httpx.Response(200, json=expected))
    assert dict(service.client().estimate_fit("ds_1", n_neighbors=7)) == expected
    asked, _, again = service.requests
    assert (asked.method, asked.url.path) == ("POST", "/v1/posteriors/estimate")
    assert json.loads(asked.content) == json.loads(again.content) == {"dataset": "ds_1", "n_neighbors": 7}
    assert "idempotency-key" not in asked.headers


def test_repeated_eviction_is_an_error() -> None:
    """The number of attempts is bounded; the remedy is a smaller request or a larger cache."""
    service = Service(*[job("queued"), job("succeeded")] * 5)
    with pytest.raises(GlleServiceError, match="GLLE_CACHE_BYTES"):
        posterior(service.client()).draw(7)


def test_lists_iterate_over_all_pages() -> None:
    """Pages are requested on demand, each with the filter."""
    items = [job("succeeded").json() | {"id": f"job_{i}"} for i in range(3)]
    pages = [{"items": items[:2], "next": "c1"}, {"items": items[2:], "next": None}]
    service = Service(*[httpx.Response(200, json=page) for page in pages])
    jobs = assert_type(service.client().jobs(kind="fit"), Iterator[Job])
    assert next(jobs).id == "job_0"
    assert len(service.requests) == 1
    assert [item.id for item in jobs] == ["job_1", "job_2"]
    assert [dict(request.url.params) for request in service.requests] == [
        {"kind": "fit", "limit": "100"},
        {"kind": "fit", "limit": "100", "cursor": "c1"},
    ]


def test_async_client_has_the_same_methods(clock: Clock) -> None:
    """Retries, jobs, lists and uploads behave as those of `Client`."""
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


def test_async_client_raises_the_same_errors(clock: Clock) -> None:
    """After a lost connection the problem is raised."""
    service = Service(httpx.ReadError("gone"), problem(404))

    async def ask() -> None:
        async with AsyncClient(URL, retries=clock.retries(), transport=service.transport) as client:
            await client.posterior("post_1")

    with pytest.raises(NotFoundError):
        asyncio.run(ask())
    assert clock.slept == [0.25]


def test_both_clients_have_one_set_of_methods() -> None:
    """Methods and their docstrings are shared."""
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert public[0] == public[1]
    assert "Return the posterior of a data set" in str(Client.fit.__doc__)


def test_bars_need_a_terminal_or_a_notebook(capsys: pytest.CaptureFixture[str]) -> None:
    """Elsewhere only progress=True displays them, and a finished job has none, because it would flicker."""
    for switch, done, is_shown in ((None, 1, False), (False, 1, False), (True, 1, True), (True, 2, False)):
        bars = Bars(switch)
        with bars.bar("fit") as update:
            update({"done": done, "total": 2, "stage": "weights", "eta": None})
        assert (bars.is_visible, bool(capsys.readouterr().err), bars.display) == (switch is True, is_shown, None)


@pytest.mark.parametrize(("sign", "value"), [("Console.is_terminal", True), ("_is_jupyter", lambda: True)])
def test_bars_appear_in_terminals_and_notebooks(monkeypatch: pytest.MonkeyPatch, sign: str, value: object) -> None:
    """The default is to display them."""
    monkeypatch.setattr(f"rich.console.{sign}", value)
    assert Bars().is_visible


def test_only_requested_bars_need_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rich the default is no bars."""
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert not Bars().is_visible
    with pytest.raises(ImportError, match="pip install rich"):
        Bars(switch=True)


def test_bars_of_several_jobs_share_one_display() -> None:
    """The display starts with the first update and ends with the last bar."""
    bars = Bars(switch=True)
    with bars.bar("fit") as first, bars.bar("draws") as second:
        first({"done": 1, "total": 2, "stage": "weights", "eta": None})
        display = bars.display
        second({"done": 0, "total": 0, "stage": "queued", "eta": None})
        assert bars.display is display
        assert [task.description for task in display.tasks] == ["fit", "draws"]
    assert display.tasks == []
    assert not display.live.is_started


def test_failed_job_removes_its_bar(clock: Clock) -> None:
    """An exception closes the steps, and so the bar."""
    service = Service(job("queued"), job("running"), problem(404))
    client = Client(URL, progress=True, retries=clock.retries(), transport=service.transport)
    with pytest.raises(NotFoundError):
        client.fit("ds_1")
    assert client._session.bars.display is None


def test_draws_at_a_doubtful_scale_are_a_warning() -> None:
    """An array has no notes, so the header of one draw, of a job's draws and of a job's result becomes a warning."""
    headers = {"glle-scale": "0.5", "glle-notes": "scale-saturated, of-a-later-version"}
    words = r"doubtful: the spread of draws hardly depends on it and of-a-later-version\. Posterior\.calibration\(\)"
    draws = httpx.Response(200, content=npy(np.ones((4, 2))), headers=headers)
    with pytest.warns(UserWarning, match=words):
        posterior(Service(draws).client()).draw(7, scale="auto")
    with pytest.warns(UserWarning, match=words):
        posterior(Service(job("succeeded", kind="draws"), draws).client()).draws(2, scale="auto")
    finished = Service(job("succeeded", kind="draws"), draws).client().job("job_1")
    with pytest.warns(UserWarning, match=words):
        finished.result()
