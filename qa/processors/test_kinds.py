"""Workers of several numerics kinds side by side: an id or ETag never has two contents."""

from __future__ import annotations

import io
import random
import socket
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from glle_engine import FitSpec
from qa.faults.drills.conftest import NOW, ROOT, START_SECONDS, Version, deployed
from service.responses.draws import SMALL_BYTES
from tests.conftest import until
from tests.system.conftest import ended, fitted, synthetic
from worker.base.numerics import kind_of
from worker.execution import process_guard
from worker.records.cache_entry import PIECE
from worker.records.ids import posterior_id
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import httpx

    from qa.faults.drills.conftest import Deployment, Process

pytestmark = [
    pytest.mark.processors,
    pytest.mark.timeout(300),  # five processes start
    pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc"),
]

N, P = 400, 8  # without numba, draws in more dimensions take less time for a byte
BATCH = 12
RECEIVED = 2**14  # receive buffer of a slow client, bytes
REQUESTS = 120
ALIGN = ("none", "procrustes")
NPY = {"Accept": "application/x-npy"}
_NEEDS = {"Haswell": {"avx2", "fma"}, "Sandybridge": {"avx"}}  # processor flags that each kernel requires


class Fleet:
    """Deployment with two API processes and one worker of each numerics kind of this machine."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self.versions = [*kernels(), without_numba(folder)]
        self.apis = [deployment.api(NOW).client() for _ in range(2)]
        self.stores = Stores.connect(deployment.settings)
        self.cache = self.stores.cache.client
        self.workers: list[Process] = []

    def start(self, *versions: Version) -> list[Process]:
        """Start workers and wait for their registration."""
        expected = self.live() + len(versions)
        started = [self.deployment.worker(version) for version in versions]

        def is_done() -> bool:
            assert all(worker.process.poll() is None for worker in started), [
                worker.log.read_text() for worker in started
            ]
            return self.live() == expected

        until(is_done, START_SECONDS)
        self.workers += started
        return started

    def stop(self, process: Process) -> None:
        """Stop a worker and wait until it leaves the registry."""
        count = self.live()
        process.stop()
        until(lambda: self.live() < count)

    def kinds(self) -> dict[str, int]:
        """Return the number of live workers by their numbers."""
        body = self.apis[0].get("/v1/info").raise_for_status().json()["numerics"]
        assert all(kind["pinned"] == (not kind_of(kind["numbers"])) for kind in body)
        return {kind["numbers"]: kind["workers"] for kind in body}

    def live(self) -> int:
        """Return the number of live workers."""
        return sum(self.kinds().values())


def kernels() -> list[Version]:
    """Return workers with the BLAS kernels of several processors that this processor can run."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    flags = {flag for line in lines if line.startswith("flags") for flag in line.split()}
    chosen = [name for name, needed in _NEEDS.items() if needed <= flags]
    return [Version(name, environment={"OPENBLAS_CORETYPE": name}) for name in chosen] or [NOW]


def without_numba(folder: Path) -> Version:
    """Return a worker whose process cannot import numba."""
    folder.mkdir()
    lines = ["import sys", "sys.modules['numba'] = None", f"sys.path.append({str(ROOT)!r})"]
    (folder / "sitecustomize.py").write_text("\n".join(lines), encoding="utf-8")
    return Version("no-numba", root=folder)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """Return a fleet without started workers."""
    folder = tmp_path_factory.mktemp("fleet")
    with deployed(folder / "deployment") as deployment:
        fleet_ = Fleet(deployment, folder / "without")
        yield fleet_
        for api in fleet_.apis:
            api.close()
        fleet_.stores.close()


@pytest.fixture(scope="module")
def posteriors(fleet: Fleet) -> list[str]:
    """Fit once with each kind while all workers are live; return the paths."""
    fleet.start(*fleet.versions)
    dataset, spec = synthetic(fleet.apis[0], N), FitSpec(n_components=P).to_dict()
    paths: dict[str, str] = {}
    for numbers in fleet.kinds():
        id_ = posterior_id(dataset, spec, numbers)
        request = {"dataset": dataset, "spec": spec}
        job, _ = fleet.stores.jobs.create(kind="fit", claim=id_, posterior=id_, spec=request, total=1, numbers=numbers)
        fleet.stores.queue.enqueue(job)
        assert ended(fleet.apis[0], job.id)["status"] == "succeeded"
        paths[numbers] = f"/v1/posteriors/{id_}"
        assert fleet.apis[1].get(paths[numbers]).json()["provenance"]["numbers"] == numbers
    assert len(set(paths.values())) == len(paths), "another kind, another id"
    pinned = [numbers for numbers in paths if not kind_of(numbers)]
    new = fitted(fleet.apis[0], dataset, n_components=P)
    assert new == paths[min(pinned or paths)], "new work has the pinned kind if possible"
    return list(paths.values())


def test_no_id_and_no_etag_has_two_contents(fleet: Fleet, posteriors: list[str]) -> None:
    """Requests to random API processes, with cache flushes between them, return the same bytes."""
    rng = random.Random(0)  # noqa: S311 # no secret
    responses: dict[tuple[str, str], tuple[str, bytes]] = {}
    of_tag: dict[str, bytes] = {}
    jobs = [batch(fleet.apis[0], path) for path in posteriors]
    singles = ["/arrays", "/arrays?name=embedding", *(f"/draws/{i}?wait=60&align={a}" for i in range(3) for a in ALIGN)]
    paths = [*(path + single for path in posteriors for single in singles), *(f"/v1/jobs/{job}/result" for job in jobs)]
    for number in range(REQUESTS):
        if number % 7 == 0:
            fleet.cache.flushall()
        path, accept = rng.choice(paths), rng.choice(["application/json", "application/x-npy"])
        if path.endswith("arrays"):
            accept = "application/zip"
        answer = recomputed(rng.choice(fleet.apis), path, accept)
        tag, body = answer.headers["ETag"], answer.content
        assert responses.setdefault((path, accept), (tag, body)) == (tag, body), f"{path} as {accept}"
        assert of_tag.setdefault(tag, body) == body
    assert len(responses) > len(paths)


def batch(client: httpx.Client, path: str) -> str:
    """Run a draws job and return its id."""
    job = client.post(f"{path}/draws", json={"count": BATCH, "align": "none"}).raise_for_status().json()
    assert ended(client, job["id"])["status"] == "succeeded"
    return str(job["id"])


def recomputed(client: httpx.Client, path: str, accept: str) -> httpx.Response:
    """Return a response; after an eviction, wait until it is recomputed."""
    responses: list[httpx.Response] = []

    def is_there() -> bool:
        responses[:] = [client.get(path, headers={"Accept": accept})]
        assert responses[0].status_code in {200, 202}, responses[0].text
        return responses[0].status_code == 200

    until(is_there)
    return responses[0]


def test_a_batch_has_the_bits_of_its_draws(fleet: Fleet, posteriors: list[str]) -> None:
    """A batch computed while all kinds are live equals the single draws of its posterior."""
    client = fleet.apis[1]
    for path in posteriors:
        job = batch(client, path)
        whole = np.load(io.BytesIO(recomputed(client, f"/v1/jobs/{job}/result", NPY["Accept"]).content))
        fleet.cache.flushall()
        for index in (0, BATCH // 2, BATCH - 1):
            draw = recomputed(client, f"{path}/draws/{index}?wait=60&align=none", NPY["Accept"])
            np.testing.assert_array_equal(np.load(io.BytesIO(draw.content)), whole[index])


def test_an_eviction_during_a_download_changes_no_byte(fleet: Fleet, posteriors: list[str]) -> None:
    """The recomputed rest has the posterior's kind; a range by If-Range belongs to the whole."""
    client, count = fleet.apis[0], draws_beyond_the_sockets()
    for path in posteriors:
        job = client.post(f"{path}/draws", json={"count": count}).raise_for_status().json()["id"]
        assert ended(client, job)["status"] == "succeeded"
        url = f"/v1/jobs/{job}/result"
        whole = recomputed(client, url, NPY["Accept"])
        tag, body = slow_download(client.base_url.join(url), fleet.cache.flushall)
        assert (tag, body) == (whole.headers["ETag"], whole.content)
        assert fleet.stores.jobs.fetch(job).round > 0, "the download needed the evicted entries"
        half = len(whole.content) // 2
        headers = {**NPY, "Range": f"bytes={half}-", "If-Range": whole.headers["ETag"]}
        part = fleet.apis[1].get(url, headers=headers)
        assert (part.status_code, part.content) == (206, whole.content[half:])


def draws_beyond_the_sockets() -> int:
    """Return a number of draws with more bytes than the API reads at once, and than it and its sockets buffer."""
    sent = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text(encoding="utf-8").split()[2])  # 4 MB by default
    return (max(sent + RECEIVED + PIECE, SMALL_BYTES) + 2**18) // (8 * P * N)


def slow_download(url: httpx.URL, interrupt: Callable[[], object]) -> tuple[str | None, bytes]:
    """Return the ETag and body of an npy response; call `interrupt` after its first byte."""
    with socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVED)  # has an effect only before the connection
        slow.settimeout(60)
        slow.connect((url.host, url.port))
        connection = HTTPConnection(url.host, url.port)
        connection.sock = slow
        connection.request("GET", url.path, headers=NPY)
        answer = connection.getresponse()
        first = answer.read(1)
        interrupt()
        return answer.headers["ETag"], first + answer.read()


def test_all_analyses_run_on_the_posteriors_kind(fleet: Fleet, posteriors: list[str]) -> None:
    """A worker of the posterior's kind computes summary, transform, reconstructions and calibration."""
    client = fleet.apis[0]
    dataset = client.get(posteriors[0]).json()["dataset"]
    for path in posteriors:
        responses: dict[str, Any] = {}
        for _ in range(2):
            jobs = [
                client.post(f"{path}/transform", json={"dataset": dataset, "draws": 2}),
                client.post(f"{path}/reconstructions", json={"count": 2}),
                client.post(f"{path}/calibration", json={"half_samples": 4, "draws": 4}),
            ]
            urls = [f"/v1/jobs/{answer.raise_for_status().json()['id']}/result" for answer in jobs]
            for answer in jobs:
                assert ended(client, answer.json()["id"])["status"] == "succeeded"
            for url in (*urls, f"{path}/summary?count=5&scale=1&wait=60"):
                answer = recomputed(client, url, "application/json")
                headers = (answer.headers["ETag"], answer.content)
                assert responses.setdefault(url, headers) == headers
            fleet.cache.flushall()


def test_info_metrics_and_logs_report_the_kinds(fleet: Fleet, posteriors: list[str]) -> None:
    """Info and metrics count the workers of each kind, and every worker logs its kind."""
    assert posteriors
    kinds = fleet.kinds()
    assert sum(kinds.values()) == len(fleet.versions)
    text = fleet.apis[1].get("/metrics").text
    for numbers, workers in kinds.items():
        pinned = "no" if kind_of(numbers) else "yes"
        assert f'glle_numerics_workers{{numbers="{numbers}",pinned="{pinned}"}} {workers}.0' in text
    assert all("Numerics kind: " in worker.log.read_text() for worker in fleet.workers)
    assert fleet.apis[0].get("/readyz").status_code == 200


def test_work_waits_for_a_worker_of_its_kind(fleet: Fleet, posteriors: list[str]) -> None:
    """No other worker takes it; health names the kind; a returning worker of the kind runs it."""
    client, before = fleet.apis[0], set(fleet.kinds())
    fleet.stop(fleet.workers[-1])
    missing = before - set(fleet.kinds())
    if not missing:
        pytest.skip("Without numba the bits are the same here.")
    (numbers,) = missing
    (path,) = [
        candidate for candidate in posteriors if client.get(candidate).json()["provenance"]["numbers"] == numbers
    ]
    answer = client.get(f"{path}/draws/77?wait=0.5", headers=NPY)
    assert (answer.status_code, answer.json()["status"]) == (202, "queued")
    ready = client.get("/readyz").raise_for_status().json()["checks"]
    (check,) = [check for check in ready if numbers in check["name"]]
    assert check["state"] == "warning"
    assert numbers in check["detail"]
    fleet.start(fleet.versions[-1])
    assert client.get(f"{path}/draws/77?wait=60", headers=NPY).status_code == 200
