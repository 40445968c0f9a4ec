"""Fair scheduling of the requests of tenants on the event loop."""

from __future__ import annotations

import asyncio

from service.middleware.fair_scheduling import FairScheduler


def begun(arrivals: list[str], limit: int) -> list[list[str]]:
    """Return which tenants begin in each iteration of the event loop, if these requests arrive at once."""

    async def run() -> list[list[str]]:
        scheduler, order, current = FairScheduler(limit), [], 0

        async def request(tenant: str) -> None:
            await scheduler.begin(tenant)
            order.append((current, tenant))

        tasks = [asyncio.create_task(request(tenant)) for tenant in arrivals]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            current += 1
        return [[tenant for iteration, tenant in order if iteration == number] for number in range(current)]

    return [each for each in asyncio.run(run()) if each]


def test_a_tenant_begins_a_few_requests_in_an_iteration() -> None:
    """All requests begin, and in each iteration at most the limit of a tenant's."""
    iterations = begun(["a"] * 50, 4)
    assert sum(map(len, iterations)) == 50
    assert max(map(len, iterations)) == 4


def test_another_tenant_begins_at_once() -> None:
    """However many requests of one tenant wait, the only one of another begins in the first iteration."""
    iterations = begun(["a"] * 200 + ["b"], 4)
    assert iterations[0].count("b") == 1
    assert all(tenants.count("a") <= 4 for tenants in iterations)


def test_requests_of_a_tenant_keep_their_order() -> None:
    """A request that arrives later does not pass those that wait."""

    async def run() -> list[int]:
        scheduler, order = FairScheduler(1), []

        async def request(number: int) -> None:
            await scheduler.begin("a")
            order.append(number)

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(request(number)))
            if number % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == list(range(20))


def test_a_request_that_gives_up_takes_no_place() -> None:
    """If a waiting request is cancelled, the next one begins in its place, and nothing is left behind."""

    async def run() -> FairScheduler:
        scheduler = FairScheduler(1)
        tasks = [asyncio.create_task(scheduler.begin("a")) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.wait_for(tasks[4], 10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return scheduler

    scheduler = asyncio.run(run())
    assert (scheduler._waiting, +scheduler._begun) == ({}, {})
