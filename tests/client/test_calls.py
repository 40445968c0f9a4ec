"""Calls of the client: retries, deadlines, errors, jobs, pages, the asynchronous client and progress bars."""

from __future__ import annotations

import asyncio
import io
import json
import pickle
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, assert_type

import httpx
import numpy as np
import pytest
from scipy.sparse import csr_array

import glle
from glle import (
    AsyncClient,
    AsyncPosterior,
    AuthError,
    Client,
    ConflictError,
    GlleServiceError,
    InvalidRequestError,
    Job,
    JobTimeoutError,
    NotFoundError,
    Posterior,
    RateLimitedError,
    Retries,
    UnavailableError,
    datasets,
)
from glle.progress import Bars
from glle.transport.calls import Reply
from openapi import client_types
from tests.client.answers import DATASET, INFO, URL, Clock, Service, job, npy, posterior, problem

if TYPE_CHECKING:
    from pathlib import Path


def test_client_imports_nothing_of_the_server() -> None:
    """The client needs httpx, numpy and the engine's tables; `glle.fit` no httpx; `import glle` none of them.

    `glle worker` sets the number of BLAS threads before numpy reads it.
    """

    def loaded_packages(*statements: str) -> list[set[str]]:
        """Return the packages that are loaded in a new process after each statement."""
        program = "import sys\n" + "".join(f"{each}\nprint(*sys.modules)\n" for each in statements)
        done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
        return [{name.partition(".")[0] for name in line.split()} for line in done.stdout.splitlines()]

    server = {"service", "worker", "fastapi", "starlette", "pydantic", "redis", "rq"}
    package, command, client = loaded_packages(
        "import glle; dir(glle)", "import glle.cli", "from glle import AsyncClient, Client"
    )
    assert package & {"httpx", "numpy", "glle_engine", "matplotlib"} == set()
    assert command & {"numpy", "httpx"} == set()
    assert client & {*server, "numba", "scipy", "pandas", "narwhals"} == set()
    assert client >= {"glle", "httpx", "numpy"}
    (engine,) = loaded_packages("import glle; glle.fit, glle.audit, glle.plot")
    assert engine & {"httpx", "anyio"} == set()


def test_types_are_those_of_the_contract() -> None:
    """glle/types.py is what `openapi.client_types` writes from openapi.json."""
    contract = json.loads(client_types.CONTRACT.read_text(encoding="utf-8"))
    assert client_types.TYPES.read_text(encoding="utf-8") == client_types.types_text(contract), "run `make setup`"


@pytest.mark.parametrize(
    ("failures", "pauses"),
    [
        *[([problem(status)] * 3, [0.25, 0.5, 1.0]) for status in (429, 502, 503, 504)],
        ([httpx.ReadError("gone"), httpx.ConnectError("refused"), httpx.DecodingError("torn")], [0.25, 0.5, 1.0]),
        ([problem(429, **{"retry-after": "7"})], [7.0]),
        ([problem(503, **{"retry-after": "soon"})], [0.25]),
    ],
)
def test_temporary_failures_are_retried(clock: Clock, failures: list[Any], pauses: list[float]) -> None:
    """A failed request is sent again after pauses that double, and never before the seconds of Retry-After."""
    service = Service(*failures, httpx.Response(200, json=INFO))
    assert service.client().info() == INFO
    assert clock.slept == pauses


def test_deadline_ends_the_retries(clock: Clock) -> None:
    """No pause lasts beyond the deadline; the last refusal is raised then."""
    service = Service(problem(429, **{"retry-after": "8"}), problem(429, "quota-exceeded", **{"retry-after": "8"}))
    with pytest.raises(RateLimitedError) as caught:
        service.client(Retries(deadline=10)).info()
    assert clock.slept == [8.0]
    assert caught.value.code == "quota-exceeded"


def test_missing_service_is_reported_soon(clock: Clock) -> None:
    """If nothing ever answered, refused connections end the retries early; the error names the command to start."""
    service = Service(*[httpx.ConnectError("refused")] * 9)
    with pytest.raises(UnavailableError, match="glle up") as caught:
        service.client().info()
    assert sum(clock.slept) <= 5
    assert (caught.value.status, caught.value.details) == (0, {"url": URL})


def test_a_restart_of_the_service_is_waited_out(clock: Clock) -> None:
    """A service that has answered before and refuses connections has the whole deadline to come back."""
    answer = httpx.Response(200, json=INFO)
    failures = [httpx.ConnectError("refused")] * 6 + [problem(503, "draining", **{"retry-after": "1"})]
    client = Service(answer, *failures, answer).client()
    assert client.info() == INFO
    assert client.info() == INFO
    assert 20 < sum(clock.slept) <= 120


def test_cut_answers_have_another_remedy_than_a_missing_service(clock: Clock) -> None:
    """If connections break off after they opened, the error advises to read the service's log and check proxies."""
    service = Service(*[httpx.ReadError("reset by peer")] * 2)
    with pytest.raises(UnavailableError, match="reset by peer") as caught:
        service.client(Retries(deadline=0)).info()
    assert "log of the service" in caught.value.remedy
    assert "glle up" not in caught.value.remedy


@pytest.mark.parametrize(
    ("body", "detail"), [(b"<h1>no such page</h1>", "404 Not Found: <h1>no such page</h1>"), (b"", "an empty body")]
)
def test_an_answer_of_another_program_is_shown(body: bytes, detail: str) -> None:
    """The error quotes the beginning of a response that no service of this kind sends."""
    with pytest.raises(NotFoundError, match=detail) as caught:
        Service(httpx.Response(404, content=body)).client().info()
    assert "a glle service listens" in caught.value.remedy


def test_pauses_are_random_and_bounded() -> None:
    """Clients refused together return at different times, and within the longest pause."""
    refused = Reply(503, {}, b"")
    pauses = {Retries().pause(3, 0, refused) or 0 for _ in range(100)}
    assert len(pauses) > 50
    assert 1.0 <= min(pauses) < max(pauses) <= 2.0
    assert 10 <= (Retries().pause(1000, 0, refused) or 0) <= 20
    assert Retries(deadline=0).pause(0, 0, refused) is None


@pytest.mark.parametrize("failure", [problem(503), httpx.ReadError("gone")])
def test_every_post_is_repeated(clock: Clock, failure: Any) -> None:
    """A failed POST is sent again unchanged, because the service names what it creates by its content."""
    metadata = {"id": "post_1", "n": 3, "n_features": 2}
    service = Service(failure, httpx.Response(200, json=metadata), failure, job("succeeded"))
    client = service.client()
    assert assert_type(client.fit("ds_1", n_neighbors=5), Posterior).id == "post_1"
    assert posterior(client).start_draws(4).id == "job_1"
    bodies = [json.loads(request.content) for request in service.requests]
    assert bodies == [{"dataset": "ds_1", "n_neighbors": 5}] * 2 + [{"n_draws": 4}] * 2


def test_repeated_delete_accepts_404(clock: Clock) -> None:
    """404 means success for a repeated DELETE; for a first DELETE it is an error."""
    service = Service(httpx.Response(200, json=DATASET), httpx.ReadError("gone"), problem(404), problem(404))
    dataset = service.client().dataset("ds_1")
    dataset.delete()
    with pytest.raises(NotFoundError):
        dataset.delete()


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (InvalidRequestError, [400, 413, 422]),
        (AuthError, [401, 403]),
        (NotFoundError, [404]),
        (ConflictError, [409]),
        (GlleServiceError, [418, 500, 507]),
    ],
)
def test_error_has_every_member_of_the_problem(kind: type[GlleServiceError], statuses: list[int]) -> None:
    """The exception has all members and the request's id, survives pickling, and the call is not repeated."""
    for status in statuses:
        service = Service(problem(status))
        with pytest.raises(kind) as caught:
            service.client().info()
        error = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 -- our own
        assert type(error) is kind
        assert (error.type, error.title, error.status) == ("urn:glle:problem:some-code", "A title", status)
        assert (error.detail, error.remedy, error.details) == ("It went wrong.", "Do this.", {"row": 3})
        assert (error.code, error.request_id) == ("some-code", "abc")
        assert str(error) == "It went wrong. Do this."
        assert len(service.requests) == 1


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"", b"[]", b'{"detail": "x"}'])
def test_response_of_another_server_is_an_error(body: bytes) -> None:
    """A proxy's page or a redirect, which could send the key elsewhere, raises an error with its text and a remedy."""
    with pytest.raises(GlleServiceError, match="418 I'm a Teapot") as caught:
        Service(httpx.Response(418, content=body)).client().info()
    assert (caught.value.status, caught.value.type) == (418, "about:blank")
    assert "URL" in caught.value.remedy
    moved = Service(httpx.Response(308, headers={"location": "https://elsewhere.test/"}, content=body))
    with pytest.raises(GlleServiceError, match="308 Permanent Redirect"):
        moved.client().info()
    assert len(moved.requests) == 1


def test_key_is_sent_as_bearer_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Key and address come from the arguments or from GLLE_KEY and GLLE_URL; without a key no header is sent."""
    service = Service(*[httpx.Response(200, json=INFO) for _ in range(3)])
    Client(URL, "glle_k", transport=service.transport).info()
    Client(transport=service.transport).info()
    monkeypatch.setenv("GLLE_KEY", "glle_e")
    monkeypatch.setenv("GLLE_URL", "http://elsewhere.test:81/glle/")
    Client(transport=service.transport).info()
    keys = [request.headers.get("authorization") for request in service.requests]
    assert keys == ["Bearer glle_k", None, "Bearer glle_e"]
    assert str(service.requests[1].url) == "http://127.0.0.1:8000/v1/info"
    assert str(service.requests[2].url) == "http://elsewhere.test:81/glle/v1/info"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://x", "http://", "nonsense"])
def test_invalid_url_is_refused_at_once(url: str) -> None:
    """A client of an invalid URL raises when it is made; the message shows a valid example."""
    with pytest.raises(ValueError, match="such as http://127"):
        Client(url)


def test_job_is_followed_by_long_polls(clock: Clock) -> None:
    """`fit` follows a job by long polls to its posterior; polls that return at once are spaced by a pause."""
    fitted = httpx.Response(200, json={"id": "post_1", "n": 3})
    service = Service(job("queued"), job("running"), job("succeeded"), fitted)
    assert service.client().fit("ds_1", timeout=60).id == "post_1"
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
    """The exception's class is that of the problem's status, and no result is requested."""
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


@pytest.mark.parametrize(("kind", "names_job"), [("embedding", True), ("summary", False)])
def test_results_of_jobs_without_a_posterior_name_the_job(kind: str, *, names_job: bool) -> None:
    """An embedding and a comparison are made by one job; a summary is the same for every job."""
    service = Service(job("queued", kind=kind), job("succeeded", kind=kind), httpx.Response(200, json={"scale": 1.0}))
    expected = {"scale": 1.0, "job": "job_1"} if names_job else {"scale": 1.0}
    assert service.client().job("job_1").result().metadata == expected


def test_statements_of_a_running_audit_are_none_until_there_are_some() -> None:
    """The service answers 202 until the first statements, which are a `Result`."""
    statements = httpx.Response(200, json={"verdict": "weak"})
    running: Any = Service(job("running"), job("running"), statements).client().job("job_1")
    assert running.statements() is None
    assert running.statements().verdict == "weak"


def test_uncached_draw_is_fetched_after_its_job() -> None:
    """A draw answered with 202 is requested again, with exactly the given options, once the job has ended."""
    draw = np.arange(6.0).reshape(3, 2)
    service = Service(job("queued"), job("succeeded"), httpx.Response(200, content=npy(draw)))
    drawn = posterior(service.client()).draw(7, seed=3, scale="auto")
    np.testing.assert_array_equal(drawn, draw)
    assert str(service.requests[2].url) == f"{URL}/v1/posteriors/post_1/draws/7?seed=3&scale=auto"
    assert service.requests[2].headers["accept"] == "application/x-npy"


def test_given_neighbors_are_uploaded() -> None:
    """`fit` uploads a given array of neighbors as a data set, or refers to one by its id."""
    near = np.array([[1, 2], [0, 2], [0, 1]])
    for neighbors, uploads in ((near, 1), ("ds_near", 0), (None, 0)):
        answers = [httpx.Response(201, json=DATASET | {"id": "ds_near"})] * uploads
        service = Service(*answers, httpx.Response(200, json={"id": "post_1", "n": 3}))
        service.client().fit("ds_1", neighbors=neighbors)
        sent = json.loads(service.requests[-1].content)
        assert sent == {"dataset": "ds_1"} | ({} if neighbors is None else {"neighbors": "ds_near"})
        if uploads:
            np.testing.assert_array_equal(np.load(io.BytesIO(service.requests[0].content)), near)
    for other in ((near * 0.5, near), csr_array(np.eye(3))):
        with pytest.raises(ValueError, match=r"Give an array \(n, k\)"):
            Service().client().fit("ds_1", neighbors=other)


@pytest.mark.parametrize("form", [np.array, np.ndarray.tolist, lambda vector: vector[:, None], "column.npy", "ds_2"])
def test_truth_and_labels_are_vectors_columns_or_files(form: Any, tmp_path: Path, monkeypatch: Any) -> None:
    """A vector of labels, which may be words, goes beside the points; all else is a data set of one column."""
    column = np.array([[2], [0], [1]])
    np.save(tmp_path / "column.npy", column)
    monkeypatch.chdir(tmp_path)
    data = form if isinstance(form, str) else form(column[:, 0])
    answers = [httpx.Response(201, json=DATASET | {"id": "ds_2"})] * (0 if form == "ds_2" else 2)
    service = Service(httpx.Response(200, json=DATASET), *answers, problem(422))
    with pytest.raises(InvalidRequestError):
        service.client().embed("ds_1", "pca", truth=data, labels=data)
    sent = json.loads(service.requests[-1].content)
    assert (sent["truth"], sent["labels"]) == ("ds_2", "ds_2")
    for upload in service.requests[1:-1]:
        stored = np.load(io.BytesIO(upload.content))
        np.testing.assert_array_equal(
            stored["labels"][:, None] if "labels" in getattr(stored, "files", ()) else stored, column
        )


def test_lists_iterate_over_all_pages() -> None:
    """A list requests the next page only when it is needed, each time with the filter."""
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
    """Retries, jobs, lists and uploads of `AsyncClient` behave as those of `Client`."""
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
        async with AsyncClient(URL, progress=False, transport=service.transport) as client:
            fitted = assert_type(await client.fit(await client.dataset(np.ones((3, 2)))), AsyncPosterior)
            return [fitted.id, *[item.id async for item in client.jobs()]]

    assert asyncio.run(ask()) == ["post_1", "job_1"]
    assert clock.slept[0] == 0.25
    assert service.requests[0].content == service.requests[1].content == npy(np.ones((3, 2)))


def test_both_clients_have_one_set_of_methods() -> None:
    """`Client` and `AsyncClient` have the same public names."""
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    assert public[0] == public[1]
    assert "Return the posterior of a data set" in str(Client.fit.__doc__)


def test_bars_need_a_terminal_or_a_notebook(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Elsewhere only progress=True displays bars, and a finished job has none, because it would flicker."""
    for switch, done, is_shown in ((None, 1, False), (False, 1, False), (True, 1, True), (True, 2, False)):
        bars = Bars(switch)
        with bars.bar("fit") as update:
            update({"done": done, "total": 2, "stage": "weights", "eta": None})
        assert (bars.is_visible, bool(capsys.readouterr().err)) == (switch is True, is_shown)
    for stream in (Terminal, type("OutStream", (io.StringIO,), {"__module__": "ipykernel.iostream"})):
        monkeypatch.setattr("sys.stderr", stream())
        assert Bars().is_visible


def test_bars_of_several_jobs_share_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Two running jobs show one line of progress, which is erased after the last one ends."""
    bars = Bars(switch=True)
    with bars.bar("fit") as first, bars.bar("draws") as second:
        first({"done": 1, "total": 2, "stage": "weights", "eta": None})
        second({"done": 0, "total": 0, "stage": "queued", "eta": None})
        assert capsys.readouterr().err.endswith("fit: weights 1/2, 0 s | draws: queued, 0 s")
    *_, last, end = capsys.readouterr().err.split("\r")
    assert (last.strip(), end) == ("", "")


def test_failed_job_removes_its_bar(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    """The line of progress is erased when the job's error is raised."""
    service = Service(job("queued"), job("running"), problem(404))
    client = Client(URL, progress=True, transport=service.transport)
    with pytest.raises(NotFoundError):
        client.fit("ds_1")
    assert "fit: " in (shown := capsys.readouterr().err)
    assert not shown.split("\r")[-2].strip()


@pytest.mark.parametrize("kind", [Client, AsyncClient])
def test_a_large_upload_shows_its_progress(kind: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """An upload of 12 MB counts its megabytes until the service answers; a small one shows nothing."""
    for n, shown in ((1_600_000, "upload: megabytes 8/12, "), (4, "")):
        client = kind(URL, progress=True, transport=Service(httpx.Response(201, json=DATASET)).transport)
        dataset = client.dataset(np.zeros((n, 1)))
        if kind is AsyncClient:
            asyncio.run(dataset)
        assert shown in (err := capsys.readouterr().err)
        assert bool(err) == bool(shown)


@pytest.mark.parametrize(
    ("is_terminal", "options", "is_shown"),
    [
        (True, {}, True),
        (True, {"verbose": False}, False),
        (True, {"on_progress": lambda *_: None}, False),
        (False, {}, False),
        (False, {"verbose": True}, True),
    ],
)
def test_long_computations_show_their_progress(
    monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool, options: dict[str, Any], is_shown: bool
) -> None:
    """Computations of over two seconds report to a terminal on stderr, unless `verbose` or `on_progress` decides."""
    X = datasets.make("s_curve", 90).X
    calls: list[partial[Any]] = [
        partial(glle.fit, X),
        partial(glle.audit, X, "pca", threads=1),
        partial(glle.embed, X, "isomap"),
    ]
    calls.append(partial(glle.compare, X, ["pca"], threads=1))
    for delay in (0.0, 1e9):
        monkeypatch.setattr("glle.progress.DELAY_SECONDS", delay)
        for call in calls:
            stream = Terminal() if is_terminal else io.StringIO()
            monkeypatch.setattr("sys.stderr", stream)
            call(**options)
            assert bool(stream.getvalue()) == (is_shown and not delay), call
            assert stream.getvalue().endswith("\r" if is_shown and not delay else "")


class Terminal(io.StringIO):
    """Text buffer that claims to be a terminal."""

    def isatty(self) -> bool:
        """Return True, as a terminal does."""
        return True


def test_random_state_is_another_name_of_the_seed() -> None:
    """Methods of the client take `random_state` as the seed, and refuse both names at once."""
    service = Service(job("succeeded", kind="draws"), httpx.Response(200, content=npy(np.ones((1, 4, 2)))))
    posterior(service.client()).draws(1, random_state=5)
    assert json.loads(service.requests[0].content) == {"n_draws": 1, "seed": 5}
    with pytest.raises(glle.GlleError, match="Both seed and random_state"):
        service.client().synthetic("swiss_roll", seed=1, random_state=5)  # type: ignore[call-arg]


def test_draws_at_a_doubtful_scale_are_a_warning() -> None:
    """Arrays cannot carry notes, so notes in a response's header become a warning for draws, jobs and results."""
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
