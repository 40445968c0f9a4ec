"""The main job on real containers."""

from __future__ import annotations

import io
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np
import pytest

from .conftest import API, up
from .engine import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from .engine import Engine

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]  # the first test builds the image

SERVICES = ("door", "api", "api-2", "worker", "queue", "cache")
REDONE_SECONDS = 60  # time limit for a job whose worker was killed, s
LONG = 60_000  # points of a fit of about five seconds

BUSY = """
import os, redis, rq
queue = redis.from_url(os.environ["GLLE_REDIS_URL"])
print(*[w.hostname for w in rq.Worker.all(connection=queue) if w.get_current_job_id()])
"""


def post_job(client: httpx.Client, url: str, body: dict[str, Any]) -> str:
    """Post a request that creates a job; return the job's URL."""
    answer = client.post(url, json=body)
    assert answer.status_code == 202, answer.text
    return answer.headers["Location"]


def status(client: httpx.Client, job: str, wait: float = 0) -> str:
    """Return the status of the job at the URL `job`."""
    answer = client.get(job, params={"wait": wait})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["status"])


def succeed(client: httpx.Client, job: str, *, seconds: float) -> None:
    """Wait for the success of a job."""
    wait_until(f"{job} ends", lambda: status(client, job, wait=5) not in {"queued", "running"}, seconds=seconds)
    assert status(client, job) == "succeeded", client.get(job).text


def npy(client: httpx.Client, url: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the array at `url`."""
    answer = client.get(url, headers={"Accept": "application/x-npy"})
    assert answer.status_code == 200, answer.text
    array: np.ndarray[Any, np.dtype[np.float64]] = np.load(io.BytesIO(answer.content), allow_pickle=False)
    return array


def running_fit(client: httpx.Client, stack: Engine, seed: int) -> tuple[str, str]:
    """Start a long fit; return the URL of its job and the container that runs it."""
    answer = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": LONG, "seed": seed})
    assert answer.status_code == 201, answer.text
    job = post_job(client, "/v1/posteriors", {"dataset": answer.json()["id"]})
    wait_until("the fit runs", lambda: status(client, job) == "running", seconds=30)
    (host,) = stack.compose("exec", "-T", "api", "python", "-c", BUSY).split()
    return job, host


@pytest.mark.parametrize("service", SERVICES)
def test_containers_are_confined(stack: Engine, service: str) -> None:
    """A process in any container is not root, has no capability, and cannot write to the root file system."""
    look = "id -u; grep CapEff /proc/self/status; touch /etc/x 2>&1"
    found = [stack.inspect(name) for name in stack.containers(service)]
    assert len(found) == (2 if service == "worker" else 1)
    for container in found:
        output = stack.docker("exec", container["Id"], "sh", "-c", f"{look}; touch /tmp/x && echo written").split("\n")
        assert int(output[0]) > 0
        assert output[1].split()[1] == "0" * 16
        assert "Read-only file system" in output[2]
        assert output[3] == "written"
        assert container["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


def wait_until_healthy(stack: Engine) -> None:
    """Wait until the health checks of all containers pass; the door has none."""

    def healthy() -> bool:
        names = [name for service in SERVICES[1:] for name in stack.containers(service)]
        return all(stack.inspect(name)["State"]["Health"]["Status"] == "healthy" for name in names)

    wait_until("every container is healthy", healthy, seconds=120)


def test_redis_answers_on_the_inner_network_only(stack: Engine) -> None:
    """Only the service's containers reach a Redis server; the API listens on loopback."""
    (queue,) = stack.containers("queue")
    address = stack.inspect(queue)["NetworkSettings"]["Networks"]["glle_inner"]["IPAddress"]
    ping = ("timeout", "3", "redis-cli", "-h", address, "ping")
    image = stack.inspect(queue)["Config"]["Image"]
    run = ("run", "--rm", "--init")  # as process 1 the client would ignore the signal of `timeout`
    assert stack.docker(*run, "--network=glle_inner", image, *ping) == "PONG\n"
    assert stack.docker(*run, "--network=glle_outer", image, *ping, check=False) == ""
    (door,) = stack.containers("door")
    published = stack.inspect(door)["NetworkSettings"]["Ports"]
    published = {port: hosts for port, hosts in published.items() if hosts}
    assert published == {"8000/tcp": [{"HostIp": "127.0.0.1", "HostPort": "8000"}]}


@pytest.mark.parametrize(
    ("service", "policy", "persistent"), [("queue", "noeviction", "yes"), ("cache", "allkeys-lru", "no")]
)
def test_redis_persistence_and_eviction(stack: Engine, service: str, policy: str, persistent: str) -> None:
    """The queue is persistent and never evicts; the cache is in memory and evicts."""
    command = ("redis-cli", "config", "get", "maxmemory-policy", "appendonly", "save")
    output = stack.compose("exec", "-T", service, *command)
    lines = output.splitlines()
    assert dict(zip(lines[::2], lines[1::2], strict=True)) == {
        "maxmemory-policy": policy, "appendonly": persistent, "save": "",
    }  # fmt: skip


def test_the_main_job(stack: Engine, client: httpx.Client) -> None:
    """An upload, its posterior and many draws as npy survive `down` and `up`."""
    angle, height = np.random.default_rng(1).uniform(size=(2, 1000))
    upload = io.BytesIO()
    np.save(upload, np.column_stack([np.sin(6 * angle), 3 * height, np.cos(6 * angle) + 3 * angle]))
    headers = {"Content-Type": "application/x-npy"}
    answer = client.post("/v1/datasets", content=upload.getvalue(), headers=headers)
    assert answer.status_code == 201, answer.text
    dataset = answer.json()["id"]
    job = post_job(client, "/v1/posteriors", {"dataset": dataset, "n_neighbors": 10})
    succeed(client, job, seconds=60)
    posterior = client.get(job).json()["posterior"]
    draws = post_job(client, f"/v1/posteriors/{posterior}/draws", {"count": 8, "seed": 3})
    succeed(client, draws, seconds=60)
    embeddings = npy(client, f"{draws}/result")
    assert embeddings.shape == (8, 1000, 2)
    assert np.isfinite(embeddings).all()
    assert len(np.unique(embeddings[:, 0, 0])) == 8

    stack.compose("down")
    up(stack)
    assert client.get(f"/v1/datasets/{dataset}").status_code == 200
    again = npy(client, f"/v1/posteriors/{posterior}/draws/5?seed=3&wait=60")  # the cache is empty after the restart
    np.testing.assert_array_equal(again, embeddings[5])


def test_an_upgrade_refuses_no_request(stack: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of docs/how-to/upgrades.md replace all containers of the image, while clients open connections."""
    wait_until_healthy(stack)
    before = {name: stack.containers(name) for name in SERVICES}
    statuses: list[int] = []
    is_over = threading.Event()

    def probe() -> None:
        while not is_over.is_set():
            statuses.append(httpx.get(f"{API}/v1/info", timeout=60).status_code)  # a new connection each

    with ThreadPoolExecutor() as pool:
        probes = [pool.submit(probe) for _ in range(4)]
        try:
            monkeypatch.setenv("GLLE_LOG_FORMAT", "json")
            for service in ("worker", "api", "api-2"):
                stack.compose("up", "--detach", "--scale", "worker=2", service)
                wait_until_healthy(stack)
        finally:
            is_over.set()
        for each in probes:
            each.result()  # raises if a connection was refused
    assert set(statuses) == {200}, len(statuses)
    after = {name: stack.containers(name) for name in SERVICES}
    assert [name for name in SERVICES if after[name] == before[name]] == ["door", "queue", "cache"]


def test_the_image_is_small(stack: Engine) -> None:
    """The layers above the official image of Python, which has about 130 MB, hold less than 600 MB."""
    sizes = [stack.inspect(image)["Size"] for image in ("glle", "standin-python")]
    assert sizes[0] - sizes[1] < 600e6


def test_wheels_are_built_with_the_pip_configuration_of_a_secret(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`docker buildx bake wheels` writes both wheels; the build reads the package index from the secret alone."""
    if "buildx" not in engine.docker("--help"):
        pytest.skip("this engine has no buildx")
    build = ("buildx", "bake", "--file", "docker-bake.hcl", "--set", "*.args.PYTHON_IMAGE=standin-python")
    engine.docker(*build, "--set", f"wheels.output=type=local,dest={tmp_path}", "wheels")
    assert sorted(path.name.partition("-")[0] for path in tmp_path.iterdir()) == ["glle", "glle_server"]
    empty = tmp_path / "pip.conf"
    empty.write_text("[global]\nno-index = true\n")
    monkeypatch.setenv("PIP_CONF", str(empty))
    with pytest.raises(AssertionError, match="No matching distribution found"):
        engine.docker(*build, "--no-cache", "--set", f"wheels.output=type=local,dest={tmp_path}", "wheels")


@pytest.mark.parametrize(("service", "run"), [("worker", "true"), ("api", "glle doctor >/dev/null")])
def test_nothing_is_compiled_in_a_container(stack: Engine, service: str, run: str) -> None:
    """Fits, draws and the doctor find all their code in the image; what is compiled would be a new file."""
    count = "find {} -name '*.nbc' 2>/dev/null | wc -l"
    delivered = count.format("/opt/glle/lib/python*/site-packages/glle_engine/compiled")
    compiled = count.format("$NUMBA_CACHE_DIR")
    numbers = stack.compose("exec", "-T", service, "bash", "-c", f"{run}; {delivered}; {compiled}").split()
    assert int(numbers[0]) > 20
    assert int(numbers[1]) == 0


def test_job_survives_its_worker_container(stack: Engine, client: httpx.Client) -> None:
    """After `docker kill` of its worker in the middle of a fit, another worker finishes within a minute."""
    job, host = running_fit(client, stack, seed=11)
    stack.docker("kill", host)
    killed = time.monotonic()
    assert status(client, job) == "running"
    succeed(client, job, seconds=REDONE_SECONDS)
    assert time.monotonic() - killed < REDONE_SECONDS
    assert len(stack.containers("worker")) == 1
    up(stack)
    assert len(stack.containers("worker")) == 2


def test_crashed_worker_restarts(stack: Engine) -> None:
    """A container restarts after its process dies."""
    name = stack.containers("worker")[0]
    before = stack.inspect(name)
    os.kill(before["State"]["Pid"], signal.SIGKILL)  # the engine runs in this process's namespace

    def back() -> bool:
        now = stack.inspect(name)
        return bool(now["State"]["Running"] and now["RestartCount"] == before["RestartCount"] + 1)

    wait_until("the worker is back", back, seconds=30)


def test_stopping_worker_finishes_its_job(stack: Engine, client: httpx.Client) -> None:
    """`docker-compose stop worker` waits for a running fit instead of killing it."""
    job, host = running_fit(client, stack, seed=12)
    stack.compose("stop", "worker")
    assert status(client, job) == "succeeded"
    assert stack.inspect(host)["State"]["ExitCode"] == 0
