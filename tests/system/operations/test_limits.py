"""A task beyond its memory fails once, with a problem that names the limit, and its worker lives on."""

from __future__ import annotations

import secrets
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import glle
from tests.conftest import until
from tests.system.conftest import ONE_EACH, running, synthetic, wait_for_end
from worker.base.settings import show_size
from worker.execution import process_guard
from worker.observability.counters import Counters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.conftest import Up

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not process_guard.LINUX, reason="private memory is limited on Linux"),
]

ROLES = ("glle-quick", "glle-batch")
BYTES = 40 * 2**20
CGROUPS = Path("/sys/fs/cgroup/memory")  # version 1
LARGE = {"method": "isomap"}  # of 1,000 points: it holds 32 MB at least, and takes more


@pytest.fixture(scope="module")
def small_up(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """Run a service whose tasks may take 40 MiB of memory; scores, which are compiled, are compiled before."""
    glle.compare(glle.datasets.make("swiss_roll", 100).X, "pca", audit=False)
    with running(tmp_path_factory.mktemp("small"), **ONE_EACH, GLLE_METHOD_BYTES=show_size(BYTES)) as up:
        yield up


@pytest.fixture
def small(small_up: Up) -> Iterator[httpx.Client]:
    """Yield an HTTP client; afterwards assert that no process was replaced and that the next task succeeds."""

    def pids() -> list[list[int]]:
        return [small_up.workers(), *map(small_up.pids_of, ROLES)]

    until(lambda: all(pids()))  # the service is ready before its worker's children have their names
    before = pids()
    with httpx.Client(base_url=small_up.url, timeout=60) as client:
        yield client
        assert run_job(client, "embeddings", {"method": "pca"}, 100)["error"] is None
    assert pids() == before


def run_job(client: httpx.Client, kind: str, request: dict[str, Any], n: int) -> dict[str, Any]:
    """Run a job on n new points to its end; return its record."""
    body = {"dataset": synthetic(client, n, seed=secrets.randbits(30)), **request}
    answer = client.post(f"/v1/{kind}", json=body, headers={"Prefer": "respond-async"})
    assert answer.status_code == 202, answer.text
    return wait_for_end(client, answer.json()["id"])


def require_limit(problem: dict[str, Any]) -> None:
    """Require a problem that names the limit on memory, its value and its setting."""
    assert problem["type"] == "urn:glle:problem:too-much-memory", problem
    assert f"{BYTES:,}" in problem["detail"]
    assert "GLLE_METHOD_BYTES" in problem["remedy"]


@pytest.mark.parametrize(
    ("kind", "n", "request_"),
    [
        ("embeddings", 1000, LARGE),
        ("embeddings", 1500, {"method": "kernel-pca"}),
        ("embeddings", 600, {"method": "lle", "parameters": {"n_neighbors": 400}}),
        ("audits", 1000, LARGE),
    ],
)
def test_a_task_beyond_its_memory_names_the_limit(
    small: httpx.Client, kind: str, n: int, request_: dict[str, Any]
) -> None:
    """A task whose first arrays fit into the limit fails at a later allocation, with the limit in its problem."""
    require_limit(run_job(small, kind, request_, n)["error"])


@contextmanager
def cgroup(pids: list[int], nbytes: int) -> Iterator[None]:
    """Limit the memory of processes, and of what they fork, as a container does; skip where that is not possible."""
    group = CGROUPS / f"glle-{secrets.token_hex(8)}"
    try:
        group.mkdir()
    except OSError:
        pytest.skip("needs control groups, version 1, and root")
    homes = {pid: _group_of(pid) for pid in pids}
    try:
        (group / "memory.limit_in_bytes").write_text(str(nbytes))
        for pid in pids:
            (group / "cgroup.procs").write_text(str(pid))
        yield
    finally:
        for pid, home in homes.items():
            with suppress(OSError):  # it was killed
                (home / "cgroup.procs").write_text(str(pid))
        group.rmdir()


def _group_of(pid: int) -> Path:
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "memory":
            return CGROUPS / path.lstrip("/")
    return CGROUPS


def test_a_task_that_the_kernel_kills_for_memory_fails_once(small_up: Up, small: httpx.Client) -> None:
    """The kernel chooses the work-horse, not its worker; the task is not tried again."""
    with cgroup([pid for role in ROLES for pid in small_up.pids_of(role)], 12 * 2**20):
        problem = run_job(small, "embeddings", {"method": "mds"}, 1000)["error"]
    assert problem["type"] == "urn:glle:problem:out-of-memory", problem
    assert (problem["details"]["allowed_bytes"], f"{BYTES:,} bytes" in problem["detail"]) == (BYTES, True)
    with small_up.redis("GLLE_REDIS_URL") as client:
        killed = Counters(client).read()[0]
    assert sum(count for (name, *_), count in killed.items() if name == "tasks_killed") == 1
