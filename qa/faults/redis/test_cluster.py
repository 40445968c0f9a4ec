"""The arrays on a Redis Cluster: three masters with one replica each."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import pytest
import redis

from qa.faults.redis.conftest import alone, array, deployed, outcome, patiently, prepared
from qa.faults.redis.nodes import CACHE, PASSWORD, QUEUE, Node, cluster_url, clustered, started
from tests.conftest import until
from worker.base.settings import Settings, SettingsError
from worker.operations import doctor
from worker.records.cache_entry import PIECE, Entry
from worker.records.draws import DrawAddress
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import httpx

BODY = {"count": 300, "seed": 3}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, list[Node]]]:
    """One server for the queue, six for the cache."""
    folder = tmp_path_factory.mktemp("cluster")
    queue = Node(folder, f"requirepass {PASSWORD}", *QUEUE)
    with started([queue]), clustered(folder, *CACHE) as nodes:
        yield queue, nodes


@pytest.fixture(scope="module")
def settings(servers: tuple[Node, list[Node]], tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """Settings with both; the URL names two nodes of the cluster, the client discovers the others."""
    queue, nodes = servers
    return Settings(
        redis_url=f"redis://:{PASSWORD}@127.0.0.1:{queue.port}/0",
        cache_url=cluster_url(nodes[:2]),
        data_dir=str(tmp_path_factory.mktemp("data")),
        cache_bytes=64 * 2**20,
        heartbeat=1,
    )


@pytest.fixture
def stores(settings: Settings) -> Iterator[Stores]:
    """Connected stores with a worker's retries."""
    connected = Stores.connect(settings, patient=True)
    yield connected
    connected.close()


@pytest.fixture(scope="module")
def service(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Return the service on these servers."""
    urls = {"GLLE_REDIS_URL": settings.redis_url, "GLLE_CACHE_URL": settings.cache_url}
    with deployed(tmp_path_factory.mktemp("up"), **urls, GLLE_CACHE_BYTES=str(settings.cache_bytes)) as (_, client):
        yield client


def test_arrays_are_spread_over_all_servers(stores: Stores, servers: tuple[Node, list[Node]]) -> None:
    """Arrays of all sizes are read, listed and deleted, one by one and together, on every node."""
    cache, masters = stores.cache, servers[1][:3]
    large = np.arange(3.0 * PIECE / 8)
    cache.put_many({f"draw:a:{i}": Entry({"i": i}, {"x": large if i % 5 == 0 else np.arange(3.0)}) for i in range(30)})
    cache.put("draw:b:0", {}, {"x": np.arange(3.0)})
    assert all(node.client.dbsize() for node in masters)
    assert sum(node.client.dbsize() for node in masters) == 31, "and nothing temporary is left"
    keys = [f"draw:a:{i}" for i in range(30)]
    entries = cache.get_many([*keys, "draw:a:30"])
    assert [entry and entry.meta["i"] for entry in entries] == [*range(30), None]
    assert entries[5] is not None
    np.testing.assert_array_equal(entries[5].arrays["x"], large)
    assert cache.heads(["draw:a:7", "nowhere"]) == [{"i": 7}, None]
    cache.forget("a")
    assert cache.contains([*keys, "draw:b:0"]) == [False] * 30 + [True]
    cache.delete("draw:b:0")
    assert sum(node.client.dbsize() for node in masters) == 0


def test_entries_of_a_subject_are_deleted_on_all_servers(stores: Stores, servers: tuple[Node, list[Node]]) -> None:
    """Entries of a subject are removed with and without the index of their node; other subjects keep theirs."""
    cache, masters = stores.cache, servers[1][:3]
    for is_indexed in (True, False):
        for subject in ("c", "d"):
            if is_indexed:
                cache.create_index(subject)
            cache.put_many({f"draw:{subject}:{i}": Entry({}, {"x": np.arange(3.0)}) for i in range(30)})
        named = stores.cache.client.smembers("keys:c")
        assert len(named) == 31 * is_indexed, "each, and the one that began it"
        cache.forget("c")
        assert cache.contains([f"draw:{subject}:{i}" for subject in ("c", "d") for i in range(30)]) == (
            [False] * 30 + [True] * 30
        )
        cache.forget("d")
        assert sum(node.client.dbsize() for node in masters) == 0


def test_lane_groups_are_spread_over_all_servers(stores: Stores, servers: tuple[Node, list[Node]]) -> None:
    """Draws of many lane groups, small and large, are written, read and deleted together, whatever their server."""
    masters = servers[1][:3]
    keys = [DrawAddress(0, index, 1.0, "posterior", "none") for index in range(48)]
    large = np.arange(3.0 * PIECE / 8)
    stores.cache.create_index("post_a")
    stores.draws.put("post_a:0", {key: Entry({"i": key.index}, {"x": np.arange(3.0)}) for key in keys[:40]})
    stores.draws.put("post_a:0", {keys[40]: Entry({"i": 40}, {"x": large})})
    assert all(node.client.dbsize() for node in masters)
    assert sum(node.client.dbsize() for node in masters) == 11 + 1 + 1, "groups, a separate entry, and the index"
    entries = stores.draws.get_many("post_a:0", keys)
    assert [entry and entry.meta["i"] for entry in entries] == [*range(41), *[None] * 7]
    assert entries[40] is not None
    np.testing.assert_array_equal(entries[40].arrays["x"], large)
    assert stores.draws.heads("post_a:0", [keys[7], keys[47]]) == [{"i": 7}, None]
    assert stores.draws.contains("post_a:0", keys) == [True] * 41 + [False] * 7
    stores.draws.delete("post_a:0", keys[3])
    assert stores.draws.contains("post_a:0", keys[:5]) == [True, True, True, False, True]
    stores.cache.forget("post_a")
    assert sum(node.client.dbsize() for node in masters) == 0


def test_doctor_checks_all_servers(settings: Settings) -> None:
    """Memory is added up; a queue server that belongs to a cluster is reported."""
    checks = {check.name: check for check in doctor.deployment(settings)}
    assert checks["cache connection"].state != "problem", "a busy machine's round trips may be slow"
    assert checks["cache policy"].state == "ok"
    assert "of 402,653,184 bytes" in checks["cache server"].detail
    assert checks["cache memory"].state == "ok"
    plain = settings.cache_url.replace("redis+cluster", "redis").rpartition(",")[0]
    for name in ("redis_url", "cache_url"):
        checks = {check.name: check for check in doctor.deployment(Settings(**{**vars(settings), name: plain}))}
        result = checks["queue connection" if name == "redis_url" else "cache connection"]
        assert (result.state, "Redis Cluster" in result.detail) == ("problem", True)


def test_queue_on_a_cluster_is_refused(settings: Settings) -> None:
    """The queue on a cluster is refused at start, with the alternatives."""
    with pytest.raises(SettingsError, match="GLLE_REDIS_URL cannot be a cluster"):
        Stores.connect(Settings(redis_url=settings.cache_url, cache_url=settings.cache_url))


def test_node_killed_during_a_job(
    service: httpx.Client,
    servers: tuple[Node, list[Node]],
    figure: Callable[[str, object], None],
) -> None:
    """A replica takes over and workers wait for it; lost draws are computed again with the same bits."""
    posterior = prepared(service)
    expected = alone(service, posterior, BODY)
    job = service.post(posterior + "/draws", json=BODY).json()
    until(lambda: service.get(job["links"]["self"]).json()["progress"]["done"] >= 30)
    killed_at = servers[1][0]
    killed_at.kill()
    since = time.monotonic()
    assert outcome(service, job["id"]) == "succeeded"
    figure("cluster, node killed: the job ended after", time.monotonic() - since)
    if patiently(service, "GET", job["links"]["self"] + "/result").status_code == 202:
        assert outcome(service, job["id"]) == "succeeded"
    assert array(service, job["links"]["self"] + "/result") == expected
    ready = patiently(service, "GET", "/readyz")
    assert ready.status_code == 200, ready.text
    figure("cluster, node killed: all of it is read again after", time.monotonic() - since)
    killed_at.start()


def test_evicted_and_deleted(service: httpx.Client, servers: tuple[Node, list[Node]]) -> None:
    """An emptied cache fills again with the same bits; a deleted posterior leaves nothing on any server."""
    posterior = prepared(service)
    path = f"{posterior}/draws/5?wait=60"
    before = array(service, path)
    _masters(servers[1], lambda node: node.client.flushall())
    assert array(service, path) == before
    assert service.delete(posterior).status_code in {200, 204}
    sizes: list[int] = []
    _masters(
        servers[1], lambda node: sizes.append(sum(posterior[-32:].encode() in key for key in node.client.scan_iter()))
    )
    assert sum(sizes) == 0


def _masters(nodes: list[Node], do: Callable[[Node], object]) -> None:
    for node in nodes:
        if node.client.info("replication")["role"] == "master":
            do(node)


def test_missing_slots_answer_503_with_retry_after(tmp_path: Path, settings: Settings) -> None:
    """If a master without a replica fails, requests for its slots get 503; other slots are read."""
    with clustered(tmp_path, *CACHE, masters=3, replicas=0) as nodes:
        stores = Stores.connect(Settings(**{**vars(settings), "cache_url": cluster_url(nodes)}))
        keys = [f"key{i}" for i in range(12)]
        for key in keys:
            stores.cache.put(key, {}, {"x": np.arange(3.0)})
        nodes[0].kill()
        answers = [_tried(stores, key) for key in keys]
        assert set(answers) == {"there", "away"}
        nodes[0].start()
        until(lambda: "away" not in [_tried(stores, key) for key in keys])
        stores.close()


def _tried(stores: Stores, key: str) -> str:
    try:
        return "gone" if stores.cache.get(key) is None else "there"
    except redis.RedisError:
        return "away"
