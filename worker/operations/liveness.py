"""Liveness probe of an orchestrator: `python -m worker.operations.liveness` fails if this host has no live worker.

While the queue's Redis does not answer, the probe succeeds: the workers wait for it and must not be killed.
"""

from __future__ import annotations

import socket
import sys

import redis

from worker.base.settings import Settings
from worker.connections.clients import connect_queue
from worker.observability.live_workers import workers_by_numbers


def is_alive(settings: Settings, host: str) -> bool:
    """Return whether a host has a live worker, or Redis does not answer."""
    client = connect_queue(settings)
    try:
        live = workers_by_numbers(client, settings).values()
        return host in {worker.host for workers in live for worker in workers}
    except redis.RedisError:
        return True
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(not is_alive(Settings.from_env(), socket.gethostname()))
