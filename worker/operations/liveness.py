"""Whether a worker of this machine lives: what an orchestrator asks by `python -m worker.operations.liveness`.

Alive is whose heartbeat stands in the queue. While the queue's Redis does not answer nobody knows: that is no reason to
kill workers, which wait for it themselves.
"""

from __future__ import annotations

import socket
import sys

import redis

from worker.base.settings import Settings
from worker.connections.clients import connect_queue
from worker.jobs.live_workers import workers_by_numbers


def is_alive(settings: Settings, host: str) -> bool:
    """Say whether a worker of a host gave a sign of life lately, or nobody can say."""
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
