"""The main job on real containers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.system.arrays import NPY, UPLOAD, from_npy, to_npy
from tests.system.conftest import fit_posterior, wait_for_end

from .conftest import up

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from .engine import Engine

pytestmark = [pytest.mark.compose, pytest.mark.timeout(1800)]  # the first test builds the image

SERVICES = ("api", "worker", "queue", "cache")


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
