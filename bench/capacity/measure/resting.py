"""Costs of an idle deployment: records by kind, connections, memory of processes, commands of waiting clients."""

from __future__ import annotations

import re
import statistics
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.capacity.measure.deployment import tree
from worker.base.versions import versioned
from worker.records.draws import LANE_GROUP

if TYPE_CHECKING:
    import redis

    from bench.capacity.measure.deployment import Deployment

SECONDS = 10.0
_NAMES = re.compile(r"(post|job|ds|emb)_[0-9a-f]+|worker-\d+|(?<=:)[0-9a-f-]{20,}")

Row = dict[str, Any]


def idle(deployment: Deployment) -> Row:
    """Return the growth of each meter per second without requests."""
    before = deployment.reading()
    time.sleep(SECONDS)
    after = deployment.reading()
    return {"operation": "idle", "times": 1, **{what: (after[what] - before[what]) / SECONDS for what in after}}


def processes(deployment: Deployment) -> Row:
    """Return memory and server connections of an API process and of a worker with its lasting children."""
    usage: Row = {}
    for kind in ("api", "worker"):
        pid = next(process.pid for name, process in deployment.processes.items() if name.startswith(kind))
        usage[f"{kind}_bytes"] = _bytes(tree(pid))
        for name, client in (("queue", deployment.queue), ("cache", deployment.cache)):
            port = client.connection_pool.connection_kwargs["port"]
            usage[f"{kind}_{name}_connections"] = sum(_connections(process, int(port)) for process in tree(pid))
    return usage


def _bytes(pids: list[int]) -> int:
    """Return the resident bytes of processes; the pages that a child shares with its parent count once."""
    resident, *children = pids
    (used,) = re.findall(r"^Rss:\s+(\d+)", Path(f"/proc/{resident}/smaps_rollup").read_text(), re.MULTILINE)
    unique = 0
    for pid in children:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        unique += sum(map(int, re.findall(r"^Private_\w+:\s+(\d+)", rollup, re.MULTILINE)))
    return 1024 * (int(used) + unique)


def _connections(pid: int, port: int) -> int:
    """Return the number of connections of a process to a local port."""
    lines = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    to_port = {f"socket:[{line[9]}]" for line in lines if int(line[2].partition(":")[2], 16) == port}
    links = [entry.readlink() for entry in Path(f"/proc/{pid}/fd").iterdir() if entry.is_symlink()]
    return sum(str(link) in to_port for link in links)


def keys(deployment: Deployment) -> list[Row]:
    """Return the number of keys of each kind, and the median of their bytes."""
    usage = []
    for server, client in (("queue", deployment.queue), ("cache", deployment.cache)):
        kinds: defaultdict[str, list[int]] = defaultdict(list)
        for kind, size in _sizes(client):
            kinds[kind].append(size)
        for kind, sizes in sorted(kinds.items()):
            usage.append({"server": server, "kind": kind, "count": len(sizes), "bytes": statistics.median(sizes)})
    return usage


def draws(deployment: Deployment, posterior: str, n: int, p: int) -> Row:
    """Return the cached bytes of a draw and of a posterior's arrays."""
    groups = list(deployment.cache.scan_iter(versioned(f"{LANE_GROUP}:{posterior}:*"), 1000))[:20]
    sizes = [  # two fields per draw
        2 * (deployment.cache.memory_usage(key, samples=0) or 0) / deployment.cache.hlen(key) for key in groups
    ]
    whole = deployment.cache.memory_usage(versioned(f"posterior:{posterior}"), samples=0) or 0
    return {
        "n": n,
        "p": p,
        "draw_cached": statistics.median(sizes),
        "posterior_cached": whole or 0,
    }


def _sizes(client: redis.Redis) -> list[tuple[str, int]]:
    names = [key.decode() for key in client.scan_iter(count=1000)]
    sizes = [client.memory_usage(name, samples=0) or 0 for name in names]
    return [(_NAMES.sub("*", name).split(":0:")[0], size) for name, size in zip(names, sizes, strict=True)]
