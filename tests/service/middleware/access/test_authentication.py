"""The time of a 404 does not reveal the owner of an id."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.middleware import requests
from service.middleware.requests import NOT_FOUND_STEP_SECONDS, pad_not_found
from tests.service.tenants import bearer, resources_of

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores


def sent_after(seconds: float, status: int) -> float:
    """Return when a response is sent after this much work, by a clock that only work and sleep advance."""
    now, sent = [0.0], []

    async def send(message: Any) -> None:
        del message
        sent.append(now[0])

    async def sleep(more: float) -> None:
        assert more >= 0
        now[0] += more

    async def run() -> None:
        padded = pad_not_found(send, lambda: now[0], sleep)
        now[0] += seconds
        await padded({"type": "http.response.start", "status": status, "headers": []})

    asyncio.run(run())
    return sent[0]


@given(st.floats(1e-5, 0.99 * NOT_FOUND_STEP_SECONDS), st.floats(1e-5, 0.99 * NOT_FOUND_STEP_SECONDS))
def test_a_404_is_sent_at_the_next_step_for_any_work(work: float, other: float) -> None:
    """A 404 waits for the step; other responses are sent at once."""
    assert sent_after(work, 404) == pytest.approx(NOT_FOUND_STEP_SECONDS)
    assert sent_after(work, 404) == pytest.approx(sent_after(other, 404))
    assert sent_after(work, 200) == work


def test_every_404_to_a_key_is_held_back(
    guarded: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown ids and those of another tenant, of every kind of resource."""
    other, mine = resources_of("bob", stores), bearer(stores, "alice")
    held: list[str] = []

    def counted(send: Any) -> Any:
        async def send_counted(message: Any) -> None:
            if message["type"] == "http.response.start" and message["status"] == 404:
                held.append("404")
            await send(message)

        return pad_not_found(send_counted)

    monkeypatch.setattr(requests, "pad_not_found", counted)
    paths = [f"/v1/datasets/{other.dataset}", f"/v1/posteriors/{other.posterior}", f"/v1/jobs/{other.job}"]
    for path in [*paths, f"/v1/embeddings/{other.embedding}", "/v1/datasets/ds_0", "/v1/jobs/none"]:
        assert guarded.get(path, headers=mine).status_code == 404
    assert len(held) == 6
