"""Requests for single draws in the streams of a real Redis."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from redis import asyncio as redis_asyncio

from worker.connections.loop_commands import LoopCommands
from worker.connections.retry import CircuitBreaker
from worker.jobs import draw_stream
from worker.jobs.draw_stream import (
    DRAWN,
    STREAMS,
    DrawBatch,
    DrawRequest,
    DrawRequests,
    DrawStream,
    draw_outcomes,
    next_batch,
    next_name,
    stream_state,
    waited_name,
)
from worker.records.cache_entry import Entry
from worker.records.draws import DrawAddress

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
    """Return the batches that wait."""
    return batches(DrawStream(client, name))


def batches(stream: DrawStream) -> list[DrawBatch]:
    """Return the batches of eight requests of each stream, the oldest first."""
    waiting = stream.read(8, 0.05)
    found = []
    while waiting:
        found.append(next_batch(waiting, len(waiting), is_oldest=True))
    return found


def requests_of(client: redis.Redis, reply: str = DRAWN, tenant: str | None = None) -> DrawRequests:
    """Return the requests of an API process."""
    options: dict[str, Any] = {
        name: client.connection_pool.connection_kwargs.get(name) for name in ("host", "port", "password")
    }
    connect = partial(redis_asyncio.Redis, **options)
    return DrawRequests(LoopCommands(connect, CircuitBreaker(5, "GLLE_CACHE_URL"), 5), reply, tenant)


def send(requests: DrawRequests, name: str) -> str:
    """Send a request; return its entry."""
    return asyncio.run(requests.send(name, {}))


def is_pending(requests: DrawRequests, entry: str) -> bool:
    """Return whether a request is pending."""
    return asyncio.run(requests.is_pending(entry))


def messages(client: redis.Redis) -> Any:
    """Subscribe to the answers, and return the channel."""
    channel = client.pubsub()  # type: ignore[no-untyped-call] # redis-py's
    channel.subscribe(DRAWN)
    assert next(channel.listen())["type"] == "subscribe"
    return channel


def outcome_of(channel: Any) -> Any:
    """Return the outcomes in the next answer."""
    (message,) = islice(channel.listen(), 1)
    return draw_outcomes(message["data"])


def test_requests_of_one_posterior_are_a_batch(client: redis.Redis) -> None:
    """Requests with any seed and scale are together to the bit, each draw once; another alignment is another batch."""
    requests = requests_of(client)
    wanted = [key(3), key(90, seed=7), key(3), key(2**63, seed=2**64 - 1, scale=0.1 + 0.2)]
    for request in (*wanted, key(3, align="procrustes")):
        send(requests, waited_name("a", request))
    first, second = read(client)
    assert first.posterior == "a"
    assert (first.keys, second.keys) == ([wanted[0], wanted[1], wanted[3]], [key(3, align="procrustes")])
    assert len(first.of([key(3)]).requests) == 2
    assert read(client) == []


def test_a_tenant_with_many_requests_delays_others_by_one_read(client: redis.Redis) -> None:
    """A read takes some requests from each stream."""
    busy, other = requests_of(client, tenant="busy"), requests_of(client, tenant="other")
    assert busy._stream != other._stream
    for index in range(20):
        send(busy, waited_name("a", key(index)))
    send(other, waited_name("z", key(0)))
    assert sorted((batch.posterior, len(batch.keys)) for batch in read(client)) == [("a", 8), ("z", 1)]


def test_an_answer_ends_its_requests(client: redis.Redis) -> None:
    """They leave the stream, and a message names the draws, with the problem of a refusal."""
    requests, stream, channel = requests_of(client), DrawStream(client, "one"), messages(client)
    entries = [send(requests, waited_name("a", key(index))) for index in range(2)]
    (batch,) = batches(stream)
    assert all(is_pending(requests, entry) for entry in entries)
    assert stream_state(client).drawing == stream_state(client).length == 2
    stream.finish(batch.of([key(0)]), "drawn")
    assert [is_pending(requests, entry) for entry in entries] == [False, True]
    outcomes = outcome_of(channel)
    assert set(outcomes) == {waited_name("a", key(0))}
    assert {answer.outcome for answer in outcomes.values()} == {"drawn"}
    stream.finish(batch.of([key(1)]), "job")
    assert stream_state(client).length == 0
    assert not list(stream.claim_abandoned(own=True))
    channel.close()


def test_an_answer_carries_small_draws(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their bits and metadata arrive, on the channel of the process that asked; a larger one is only named."""
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
        found = answers[waited_name("a", each)].entry
        assert found.meta == entries[each].meta
        assert found.arrays["embedding"].tobytes() == entries[each].arrays["embedding"].tobytes()
    assert answers[waited_name("a", wanted[1])].entry is None
    channel.close()


def test_a_lane_group_is_that_of_the_oldest_request_or_of_the_most(client: redis.Redis) -> None:
    """The oldest request is in the first of the former; the latter has most draws, each once; all are drawn."""
    requests = [DrawRequest("s", str(i), f"{name} p a", key(i), {}) for i, name in enumerate("abbcbbb")]
    requests.append(DrawRequest("s", "8", "b p a", key(1), {}))
    waiting = list(requests)
    assert next_name(waiting, is_oldest=True) == ("a p a", 1)
    assert next_name(waiting, is_oldest=False) == ("b p a", 6)
    fullest = next_batch(waiting, 4, is_oldest=False)
    assert ([k.index for k in fullest.keys], len(fullest.requests)) == ([1, 2, 4, 5], 5)
    left = [next_batch(waiting, 4, is_oldest=True) for _ in range(3)]
    assert [batch.posterior for batch in left] == ["a", "c", "b"]
    assert not waiting
    assert {r.id for batch in [fullest, *left] for r in batch.requests} == {request.id for request in requests}


def test_an_expired_lease_moves_a_request(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request of a machine that is gone is claimed by another sampler, by one only."""
    send(requests_of(client), waited_name("a", key(1)))
    assert read(client, "one")
    for own in (False, True):
        assert not list(DrawStream(client, "two").claim_abandoned(own=own)), "before the end of the lease"
    monkeypatch.setattr(draw_stream, "LEASE_SECONDS", 0)
    (request,) = DrawStream(client, "two").claim_abandoned(own=False)
    assert request.key == key(1)
    monkeypatch.undo()
    assert not list(DrawStream(client, "three").claim_abandoned(own=False))


def test_lost_streams_are_made_again(client: redis.Redis) -> None:
    """A server that was emptied loses requests, which their clients see; later ones are delivered."""
    requests, stream = requests_of(client), DrawStream(client, "one")
    entry = send(requests, waited_name("a", key(1)))
    assert batches(stream)
    client.flushall()
    assert not is_pending(requests, entry)
    assert batches(stream) == []
    send(requests, waited_name("a", key(2)))
    assert [batch.keys for batch in batches(stream)] == [[key(2)]]


def test_the_streams_are_bounded(client: redis.Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest requests are dropped beyond the maximum."""
    monkeypatch.setattr(draw_stream, "MAX_LENGTH", 200)
    requests = requests_of(client)

    async def send_all() -> list[str]:
        return [await requests.send(waited_name("a", key(index)), {}) for index in range(500)]

    entries = asyncio.run(send_all())
    assert stream_state(client).length < 400
    assert not is_pending(requests, entries[0])
    assert is_pending(requests, entries[-1])
    assert stream_state(client).oldest_seconds >= 0


def test_a_stopped_sampler_leaves_the_group(client: redis.Redis) -> None:
    """Its name is removed from every stream."""
    stream = DrawStream(client, "one")
    batches(stream)
    stream.leave()
    assert all(not client.xinfo_consumers(name, "samplers") for name in STREAMS)
