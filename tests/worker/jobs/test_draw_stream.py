"""Requests for single draws in the streams of a real Redis."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from redis import asyncio as redis_asyncio

from tests.conftest import until
from worker.base.problems import ProblemError
from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker
from worker.jobs import draw_stream
from worker.jobs.draw_stream import (
    BELL,
    DRAWN,
    TURNS,
    DrawBatch,
    DrawRequest,
    DrawRequests,
    DrawStream,
    RequestsInHand,
    draw_outcomes,
    stream_of,
    stream_state,
    waited_name,
)
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress
from worker.records.ids import DEFAULT
from worker.records.shares import SHARE, UNLIMITED

if TYPE_CHECKING:
    import redis

    from worker.stores import Stores


@pytest.fixture
def client(stores: Stores) -> redis.Redis:
    """Return the cache's Redis."""
    client: redis.Redis = stores.cache.client
    return client


def key(index: int, seed: int = 0, scale: float = 1.0, align: str = "none") -> DrawAddress:
    """Return the address of a draw."""
    return DrawAddress(seed, index, scale, "posterior", align)


def read(client: redis.Redis, name: str = "one") -> list[DrawBatch]:
    """Read the waiting requests as a sampler does; return them in batches."""
    return batches(DrawStream(client, name))


def batches(stream: DrawStream, count: int = 16) -> list[DrawBatch]:
    """Read up to `count` requests; return them in batches, in the order of turns."""
    in_hand, popped = RequestsInHand(), []
    in_hand.add(stream.read(count, 0.05))
    while in_hand:
        popped.append(in_hand.pop(len(in_hand)))
    return popped


def requests_of(client: redis.Redis, reply: str = DRAWN, tenant: str = DEFAULT, limit: int = UNLIMITED) -> DrawRequests:
    """Return what an API process sends requests for draws with."""
    options: dict[str, Any] = {
        name: client.connection_pool.connection_kwargs.get(name) for name in ("host", "port", "password")
    }
    connect = partial(redis_asyncio.Redis, **options)
    commands = LoopCommands(connect, CircuitBreaker(5, "GLLE_CACHE_URL"), 5)
    return DrawRequests(commands, reply).for_tenant(tenant, lambda: limit)


def send(requests: DrawRequests, name: str) -> str:
    """Send a request for a draw by its name; return the id of the stream entry."""
    return asyncio.run(requests.send(name, {}))


def is_pending(requests: DrawRequests, entry: str) -> bool:
    """Return whether a request is pending."""
    return asyncio.run(requests.is_pending(entry))


def messages(client: redis.Redis) -> Any:
    """Subscribe to the channel of answers, and return the subscription."""
    channel = client.pubsub()  # type: ignore[no-untyped-call] # redis-py's
    channel.subscribe(DRAWN)
    assert next(channel.listen())["type"] == "subscribe"
    return channel


def outcome_of(channel: Any) -> Any:
    """Wait for the next message, and return its answers by the name of the draw."""
    (message,) = islice(channel.listen(), 1)
    return draw_outcomes(message["data"])


def test_requests_of_one_posterior_are_a_batch(client: redis.Redis) -> None:
    """Requests with any seed and scale are one batch, which has each draw once; another alignment is another batch."""
    requests = requests_of(client)
    wanted = [key(3), key(90, seed=7), key(3), key(2**63, seed=2**64 - 1, scale=0.1 + 0.2)]
    for request in (*wanted, key(3, align="procrustes")):
        send(requests, waited_name("a", request))
    first, second = read(client)
    assert first.posterior == "a"
    assert (first.keys, second.keys) == ([wanted[0], wanted[1], wanted[3]], [key(3, align="procrustes")])
    assert len(first.select([key(3)]).requests) == 2
    assert read(client) == []


def test_tenants_take_turns(client: redis.Redis) -> None:
    """A read takes a lane group of each tenant; the next read begins with the tenants that had to wait."""
    for tenant in ("a", "b", *(f"t{number}" for number in range(20))):
        for index in range(20 if tenant == "a" else 1):
            send(requests_of(client, tenant=tenant), waited_name(tenant, key(index)))
    stream = DrawStream(client, "one")
    reads = [[(batch.posterior, len(batch.keys)) for batch in batches(stream, 8)] for _ in range(6)]
    others = [f"t{number}" for number in range(20)]
    assert reads[0] == [("a", 4), ("b", 1), *((name, 1) for name in others[:3])]
    assert reads[1] == [(name, 1) for name in others[3:11]]
    assert reads[2] == [(name, 1) for name in others[11:19]]
    assert sorted(reads[3]) == [("a", 4), (others[19], 1)]
    assert reads[4:] == [[("a", 4)]] * 2


def test_posteriors_of_a_tenant_take_turns() -> None:
    """A posterior with many requests delays another one by one lane group.

    All requests for one draw are in the same batch.
    """
    requests = [DrawRequest("s", str(i), f"{name} p a", key(i), {}) for i, name in enumerate("abbcbbb")]
    requests.append(DrawRequest("s", "8", "b p a", key(1), {}))
    requests.append(DrawRequest("t", "9", "z p a", key(0), {}))
    in_hand, popped = RequestsInHand(), []
    in_hand.add(requests)
    sizes = []
    while in_hand:
        sizes.append(in_hand.next_size)
        popped.append(in_hand.pop(4))
    assert [batch.posterior for batch in popped] == ["a", "z", "b", "c", "b"]
    assert sizes == [1, 1, 6, 1, 1]
    assert ([k.index for k in popped[2].keys], len(popped[2].requests)) == ([1, 2, 4, 5], 5)
    assert {r.id for batch in popped for r in batch.requests} == {request.id for request in requests}
    assert in_hand.next_size == 0


def test_an_answer_ends_its_requests(client: redis.Redis) -> None:
    """Answered requests leave the stream, and a message has the outcome for each draw."""
    requests, stream, channel = requests_of(client), DrawStream(client, "one"), messages(client)
    entries = [send(requests, waited_name("a", key(index))) for index in range(2)]
    (batch,) = batches(stream)
    assert all(is_pending(requests, entry) for entry in entries)
    assert stream_state(client).drawing == stream_state(client).length == 2
    assert 0 < stream_state(client).oldest_seconds < 60
    stream.finish(batch.select([key(0)]), "drawn")
    assert [is_pending(requests, entry) for entry in entries] == [False, True]
    outcomes = outcome_of(channel)
    assert set(outcomes) == {waited_name("a", key(0))}
    assert {answer.outcome for answer in outcomes.values()} == {"drawn"}
    stream.finish(batch.select([key(1)]), "job")
    assert stream_state(client).length == 0
    assert not list(stream.claim_abandoned(of_predecessor=True))
    channel.close()


def test_an_answer_carries_small_draws(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message has bits and metadata of small draws, on the channel of the process that asked, but no large draws."""
    stream, channel = DrawStream(client, "one"), messages(client)
    wanted = [key(0), key(1), key(2)]
    sizes = {wanted[0]: 5, wanted[1]: 100, wanted[2]: 7}
    entries = {each: Entry({"scale": 0.1 + 0.2}, {"embedding": np.random.default_rng(0).normal(size=(n, 2))})
               for each, n in sizes.items()}  # fmt: skip
    monkeypatch.setattr(draw_stream, "MAX_SENT_BYTES", entries[wanted[2]].nbytes)
    for each in wanted:
        send(requests_of(client), waited_name("a", each))
    send(requests_of(client, "other"), waited_name("a", key(2)))
    send(requests_of(client, "other"), waited_name("a", key(3)))
    (batch,) = batches(stream)
    stream.finish(batch, "drawn", entries=entries)
    answers = outcome_of(channel)
    assert list(answers) == [waited_name("a", each) for each in wanted]
    for each in (wanted[0], wanted[2]):
        entry = answers[waited_name("a", each)].entry
        assert entry.meta == entries[each].meta
        assert entry.arrays["embedding"].tobytes() == entries[each].arrays["embedding"].tobytes()
    assert answers[waited_name("a", wanted[1])].entry is None
    channel.close()


def test_an_expired_lease_moves_a_request(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request whose sampler has ended is claimed by one other sampler, when the lease is over."""
    send(requests_of(client), waited_name("a", key(1)))
    assert read(client, "one")
    for of_predecessor in (False, True):
        assert not list(DrawStream(client, "two").claim_abandoned(of_predecessor=of_predecessor)), (
            "before the end of the lease"
        )
    monkeypatch.setattr(draw_stream, "LEASE_SECONDS", 0)
    (request,) = DrawStream(client, "two").claim_abandoned(of_predecessor=False)
    assert request.key == key(1)
    monkeypatch.undo()
    assert not list(DrawStream(client, "three").claim_abandoned(of_predecessor=False))


def test_lost_streams_are_made_again(client: redis.Redis) -> None:
    """If the server loses a stream, clients see that their requests are lost; later requests are delivered."""
    requests, stream = requests_of(client), DrawStream(client, "one")
    entry = send(requests, waited_name("a", key(1)))
    assert batches(stream)
    client.flushall()
    assert not is_pending(requests, entry)
    assert batches(stream) == []
    send(requests, waited_name("a", key(2)))
    assert [batch.keys for batch in batches(stream)] == [[key(2)]]
    for lost in (TURNS, stream_of(DEFAULT)):  # a server evicts single keys, too
        entry = send(requests, waited_name("a", key(3)))
        client.delete(lost)
        assert not is_pending(requests, entry)
        assert batches(stream) == []
        again = send(requests, waited_name("a", key(3)))
        assert is_pending(requests, again)
        (batch,) = batches(stream)
        assert batch.keys == [key(3)]
        stream.finish(batch, "drawn")


@pytest.mark.parametrize(
    ("limit", "accepted", "of_others"), [(SHARE, 150, True), (UNLIMITED, 200, False), (120, 120, True)]
)
def test_waiting_requests_of_a_tenant_are_bounded(
    client: redis.Redis, monkeypatch: pytest.MonkeyPatch, limit: int, accepted: int, *, of_others: bool
) -> None:
    """A request beyond its tenant's share or quota is 429 with Retry-After; requests of other tenants are accepted."""
    monkeypatch.setattr(draw_stream, "MAX_DRAWS", 200)
    busy, other = (requests_of(client, tenant=name, limit=limit) for name in ("busy", "other"))

    async def send_all() -> int:
        for index in range(250):
            try:
                await busy.send(waited_name("a", key(index)), {})
            except ProblemError as error:
                problem = error.problem
                assert (problem.status, problem.code, problem.details["quota"]) == (429, "quota-exceeded", "draws")
                assert problem.details["retry_after"] > 0
                return index
        return 250

    assert asyncio.run(send_all()) == accepted
    assert stream_state(client).lengths == {"busy": accepted}
    if of_others:
        assert is_pending(other, send(other, waited_name("z", key(0))))


def test_streams_of_tenants_without_requests_are_removed(client: redis.Redis) -> None:
    """The last answer removes a stream, and an idle sampler leaves no key behind."""
    stream = DrawStream(client, "one")
    for tenant in ("a", "b"):
        send(requests_of(client, tenant=tenant), waited_name(tenant, key(0)))
    for batch in batches(stream):
        stream.finish(batch, "drawn")
    assert batches(stream) == []
    assert not client.exists(TURNS, BELL, stream_of("a"), stream_of("b"))


def test_a_request_wakes_an_idle_sampler(client: redis.Redis) -> None:
    """Each request wakes one of the samplers that wait."""
    with ThreadPoolExecutor(2) as pool:
        idle = [pool.submit(DrawStream(client, name).read, 1, 60.0) for name in ("one", "two")]
        until(lambda: client.info("clients")["blocked_clients"] == 2)
        for index in range(2):
            send(requests_of(client, tenant="a"), waited_name("a", key(index)))
        assert sorted(request.key.index for read in idle for request in read.result(30)) == [0, 1]


def test_a_stopped_sampler_leaves_the_group(client: redis.Redis) -> None:
    """The sampler leaves each consumer group in which it has no unanswered request."""
    requests = requests_of(client)
    send(requests, waited_name("a", key(0)))
    one, two = DrawStream(client, "one"), DrawStream(client, "two")
    (batch,) = batches(one)
    send(requests, waited_name("a", key(1)))
    assert batches(two)
    one.leave()
    assert len(client.xinfo_consumers(stream_of(DEFAULT), "samplers")) == 2
    one.finish(batch, "drawn")
    one.leave()
    assert [consumer["name"] for consumer in client.xinfo_consumers(stream_of(DEFAULT), "samplers")] == [b"two"]
