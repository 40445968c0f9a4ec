"""The highest rate of requests that a deployment can serve, by the cost of each of its parts."""

import pytest

from bench.capacity import WORKERS, Cost, ceiling

IDLE = Cost()


@pytest.mark.parametrize(
    ("cost", "idle", "highest", "full"),
    [
        (Cost(worker=0.01, cache=1e-4), IDLE, WORKERS / 0.01, "workers"),
        (Cost(worker=0.01, cache=1e-3), IDLE, 1_000, "cache server"),
        (Cost(worker=0.01, queue=1e-3), Cost(queue=0.5), 500, "queue server"),
        (Cost(cache=1e-3), IDLE, 1_000, "cache server"),
    ],
)
def test_the_slowest_part_is_full_first(cost: Cost, idle: Cost, highest: float, full: str) -> None:
    """More workers share the work, a Redis server has one thread, and idle workers take part of that thread."""
    rate, bottleneck = ceiling(cost, idle)
    assert rate == pytest.approx(highest, rel=1e-2)
    assert bottleneck == full


def test_waiting_samplers_lower_the_rate() -> None:
    """Each sampler that waits for work costs time of the cache's Redis server at a request; busy ones cost none."""
    cost, waiting = Cost(worker=0.01, cache=4e-4), 1e-5
    rate, full = ceiling(cost, IDLE, waiting)
    assert full == "cache server"
    assert rate < ceiling(cost, IDLE)[0]
    assert rate * (cost.cache + waiting * (WORKERS - rate * cost.worker)) == pytest.approx(1, rel=1e-2)
    assert ceiling(Cost(worker=0.1, cache=4e-4), IDLE, 1e-7)[1] == "workers"
