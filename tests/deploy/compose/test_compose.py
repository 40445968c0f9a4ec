"""The main job on real containers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle
from tests.conftest import until
from tests.system.arrays import NPY, UPLOAD, from_npy, to_npy
from tests.system.conftest import fit_posterior, synthetic, wait_for_end

from .conftest import API, up

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from .engine import Engine

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]  # the first test builds the image

SERVICES = ("api", "worker", "queue", "cache")
LONG = 60_000  # points of a fit of about five seconds

BUSY = """
import os, redis, rq
queue = redis.from_url(os.environ["GLLE_REDIS_URL"])
print(*[w.hostname for w in rq.Worker.all(connection=queue) if w.get_current_job_id()])
"""


def status(client: httpx.Client, job: str) -> str:
    """Return the status of a job."""
    return str(client.get(f"/v1/jobs/{job}").raise_for_status().json()["status"])


def running_fit(client: httpx.Client, stack: Engine, seed: int) -> tuple[str, str]:
    """Start a long fit; return the id of its job and the container that runs it."""
    answer = client.post("/v1/posteriors", json={"dataset": synthetic(client, LONG, seed)})
    assert answer.status_code == 202, answer.text
    job = answer.json()["id"]
    until(lambda: status(client, job) == "running", 30)
    (host,) = stack.compose("exec", "-T", "api", "python", "-c", BUSY).split()
    return job, host


@pytest.mark.parametrize("service", SERVICES)
def test_containers_are_confined(stack: Engine, service: str) -> None:
    """A process in any container is not root, has no capability, and cannot write to the root file system."""
    look = "id -u; grep CapEff /proc/self/status; touch /etc/x 2>&1"
    containers = [stack.inspect(name) for name in stack.containers(service)]
    assert len(containers) == (2 if service == "worker" else 1)
    for container in containers:
        output = stack.docker("exec", container["Id"], "sh", "-c", f"{look}; touch /tmp/x && echo written").split("\n")
        assert int(output[0]) > 0
        assert output[1].split()[1] == "0" * 16
        assert "Read-only file system" in output[2]
        assert output[3] == "written"
        assert container["HostConfig"]["RestartPolicy"]["Name"] == "unless-stopped"


def wait_until_healthy(stack: Engine) -> None:
    """Wait until the health checks of all containers pass."""

    def healthy() -> bool:
        names = [name for service in SERVICES for name in stack.containers(service)]
        return all(stack.inspect(name)["State"]["Health"]["Status"] == "healthy" for name in names)

    until(healthy, 120)


def test_redis_answers_on_the_inner_network_only(stack: Engine) -> None:
    """Only the service's containers reach a Redis server; the API listens on loopback."""
    (queue,) = stack.containers("queue")
    address = stack.inspect(queue)["NetworkSettings"]["Networks"]["glle_inner"]["IPAddress"]
    ping = ("timeout", "3", "redis-cli", "-h", address, "ping")
    image = stack.inspect(queue)["Config"]["Image"]
    run = ("run", "--rm", "--init")  # as process 1 the client would ignore the signal of `timeout`
    assert stack.docker(*run, "--network=glle_inner", image, *ping) == "PONG\n"
    assert stack.docker(*run, "--network=glle_outer", image, *ping, check=False) == ""
    (api,) = stack.containers("api")
    published = stack.inspect(api)["NetworkSettings"]["Ports"]
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
    points = np.column_stack([np.sin(6 * angle), 3 * height, np.cos(6 * angle) + 3 * angle])
    dataset = client.post("/v1/datasets", content=to_npy(points), headers=UPLOAD).raise_for_status().json()["id"]
    posterior = fit_posterior(client, dataset, n_neighbors=10)
    draws = client.post(f"{posterior}/draws", json={"n_draws": 8, "seed": 3}).json()["id"]
    assert wait_for_end(client, draws)["status"] == "succeeded"
    embeddings = from_npy(client.get(f"/v1/jobs/{draws}/result", headers=NPY).content)
    assert embeddings.shape == (8, 1000, 2)
    assert np.isfinite(embeddings).all()
    assert len(np.unique(embeddings[:, 0, 0])) == 8

    stack.compose("down")
    up(stack)
    assert client.get(f"/v1/datasets/{dataset}").status_code == 200
    again = client.get(f"{posterior}/draws/5?seed=3&wait=60", headers=NPY)  # the cache is empty after the restart
    np.testing.assert_array_equal(from_npy(again.content), embeddings[5])


def test_clients_wait_out_an_upgrade(stack: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of docs/how-to/storage.md replaces the containers of the image; calls of a client last longer."""
    wait_until_healthy(stack)
    before = {name: set(stack.containers(name)) for name in SERVICES}
    over = threading.Event()
    with glle.Client(API, progress=False) as client, ThreadPoolExecutor(1) as pool:
        points = np.random.default_rng(21).normal(size=(300, 3))

        def draw_until_over() -> int:
            posterior = client.fit(points)
            for index in count():
                posterior.draw(index)
                if over.is_set():
                    return index
            raise AssertionError("unreachable")

        draws = pool.submit(draw_until_over)
        try:
            monkeypatch.setenv("GLLE_LOG_FORMAT", "json")
            stack.compose("up", "--detach", "--wait", "--scale", "worker=2")
        finally:
            over.set()
        assert draws.result(120) > 0
    after = {name: set(stack.containers(name)) for name in SERVICES}
    assert [name for name in SERVICES if after[name] == before[name]] == ["queue", "cache"]


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


def test_stopping_worker_finishes_its_job(stack: Engine, client: httpx.Client) -> None:
    """`docker-compose stop worker` waits for a running fit instead of killing it."""
    job, host = running_fit(client, stack, seed=12)
    stack.compose("stop", "worker")
    assert status(client, job) == "succeeded"
    assert stack.inspect(host)["State"]["ExitCode"] == 0
