"""Turns of the tenants on the event loop."""

from __future__ import annotations

import asyncio

from service.middleware.turns import Turns


def begun(arrivals: list[str], limit: int) -> list[list[str]]:
    """Return which tenants begin at each turn of the event loop, if these requests arrive at once."""

    async def run() -> list[list[str]]:
        turns, order, current = Turns(limit), [], 0

        async def request(tenant: str) -> None:
            await turns.begin(tenant)
            order.append((current, tenant))

        tasks = [asyncio.create_task(request(tenant)) for tenant in arrivals]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            current += 1
        return [[tenant for turn, tenant in order if turn == number] for number in range(current)]

    return [each for each in asyncio.run(run()) if each]


def test_a_tenant_begins_a_few_requests_at_a_turn() -> None:
    """All requests begin, and at each turn at most the limit of a tenant's."""
    turns = begun(["a"] * 50, 4)
    assert sum(map(len, turns)) == 50
    assert max(map(len, turns)) == 4


def test_another_tenant_begins_at_once() -> None:
    """However many requests of one tenant wait, the only one of another begins at the first turn."""
    turns = begun(["a"] * 200 + ["b"], 4)
    assert turns[0].count("b") == 1
    assert all(turn.count("a") <= 4 for turn in turns)


def test_requests_of_a_tenant_keep_their_order() -> None:
    """A request that arrives later does not pass those that wait."""

    async def run() -> list[int]:
        turns, order = Turns(1), []

        async def request(number: int) -> None:
            await turns.begin("a")
            order.append(number)

        tasks = []
        for number in range(20):
            tasks.append(asyncio.create_task(request(number)))
            if number % 3 == 0:
                await asyncio.sleep(0)
        await asyncio.gather(*tasks)
        return order

    assert asyncio.run(run()) == list(range(20))


def test_a_request_that_gives_up_takes_no_turn() -> None:
    """The next one begins in its place, and nothing is left behind."""

    async def run() -> Turns:
        turns = Turns(1)
        tasks = [asyncio.create_task(turns.begin("a")) for _ in range(5)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        await asyncio.wait_for(tasks[4], 10)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return turns

    turns = asyncio.run(run())
    assert (turns._waiting, +turns._begun) == ({}, {})
