"""The ceilings of a deployment, and their table in docs/how-to/scaling.md."""

import pytest

from bench.capacity import HEAD, PAGE, SIZES, WORKERS, Cost, ceiling
from docs.figures.methods.tables import between

IDLE = Cost()


def table() -> list[list[str]]:
    """Return the cells of the table."""
    lines = [line for line in between(PAGE.read_text(encoding="utf-8"), "capacity").splitlines() if line[:1] == "|"]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def number(cell: str) -> float:
    """Return the number of a cell."""
    return 0.0 if cell == "-" else float(cell.replace(",", ""))


@pytest.mark.parametrize(
    ("cost", "idle", "most", "full"),
    [
        (Cost(worker=0.01, cache=1e-4), IDLE, WORKERS / 0.01, "workers"),
        (Cost(worker=0.01, cache=1e-3), IDLE, 1_000, "cache server"),
        (Cost(worker=0.01, queue=1e-3), Cost(queue=0.5), 500, "queue server"),
        (Cost(cache=1e-3), IDLE, 1_000, "cache server"),
    ],
)
def test_the_slowest_part_is_full_first(cost: Cost, idle: Cost, most: float, full: str) -> None:
    """Workers divide the work, a server has one thread, and idle workers take a part of it."""
    rate, part = ceiling(cost, idle)
    assert rate == pytest.approx(most, rel=1e-2)
    assert part == full


def test_waiting_samplers_lower_the_rate() -> None:
    """Each that waits costs the cache's server time at a request; those that draw cost none."""
    cost, waiting = Cost(worker=0.01, cache=4e-4), 1e-5
    rate, full = ceiling(cost, IDLE, waiting)
    assert full == "cache server"
    assert rate < ceiling(cost, IDLE)[0]
    assert rate * (cost.cache + waiting * (WORKERS - rate * cost.worker)) == pytest.approx(1, rel=1e-2)
    assert ceiling(Cost(worker=0.1, cache=4e-4), IDLE, 1e-7)[1] == "workers"


def test_the_page_has_the_ceilings_of_its_costs() -> None:
    """Every operation of every size has a row, and its rate follows from the costs beside it."""
    head, _, *rows, idle_row, waiting_row = table()
    assert head == list(HEAD)
    assert [number(row[1]) for row in rows] == [size for size in SIZES for _ in range(4)]
    idle = Cost(queue=number(idle_row[4]) / 1e6, cache=number(idle_row[5]) / 1e6)
    for row in rows:
        queue, cache, api, worker = (number(cell) for cell in row[4:8])
        cost = Cost(queue=queue / 1e6, cache=cache / 1e6, worker=worker / 1e3)
        waiting = number(waiting_row[5]) / 1e6 if row[0] == "a single draw" else 0.0
        rate, full = ceiling(cost, idle, waiting)
        assert rate == pytest.approx(number(row[8]), rel=0.02), row
        assert full == row[9], row
        assert number(row[10]) == pytest.approx(rate * api / 1e3, rel=0.02, abs=1)
