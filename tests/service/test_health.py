"""Health and metrics, with Redis there and away."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from service.app import create_app
from tests.service.conftest import serving
from worker.stores import Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    import httpx

    from worker.settings import Settings


@pytest.fixture
def away(settings: Settings) -> Iterator[httpx.Client]:
    """A client of an app whose Redis is not there."""
    nowhere = "redis://127.0.0.1:1/0"
    stores = Stores.connect(replace(settings, redis_url=nowhere, cache_url=nowhere))
    with serving(create_app(stores)) as made:
        yield made
    stores.close()


def test_redis_away_is_503_and_the_process_lives(away: httpx.Client) -> None:
    """What needs Redis says so and how to go on; livez and the documentation answer."""
    for path in ("/v1/jobs", "/v1/posteriors/post_1", "/readyz", "/v1/jobs/x?wait=5"):
        answer = away.get(path)
        assert (answer.status_code, answer.json()["type"]) == (503, "urn:glle:problem:redis-unavailable")
        assert answer.json()["remedy"]
        assert answer.headers["retry-after"] == "5"
    for path in ("/livez", "/docs", "/v1/info", "/v1/datasets"):
        assert away.get(path).status_code == 200
    assert "glle_redis_up 0.0" in away.get("/metrics").text


def test_metrics_count_by_route_template(stores: Stores) -> None:
    """However many ids are asked for, there is one series a route and status; unknown paths share one."""
    with serving(create_app(stores)) as client:
        for number in range(30):
            client.get(f"/v1/jobs/job_{number}")
            client.get(f"/nowhere/{number}")
        text = client.get("/metrics").text
    assert 'glle_http_requests_total{method="GET",route="/v1/jobs/{id}",status="404"} 30.0' in text
    assert 'glle_http_requests_total{method="GET",route="(none)",status="404"} 30.0' in text
    assert "job_7" not in text
    assert "glle_redis_up 1.0" in text
    assert "glle_queue_length 0.0" in text
    assert "glle_workers 0.0" in text


def test_metrics_count_jobs(client: httpx.Client, stores: Stores) -> None:
    """Jobs are counted by kind and status."""
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    stores.jobs.cancel(job.id)
    text = client.get("/metrics").text
    assert 'glle_jobs_entered_total{kind="fit",status="queued"} 1.0' in text
    assert 'glle_jobs_entered_total{kind="fit",status="cancelled"} 1.0' in text


def test_two_apps_have_metrics_of_their_own(client: httpx.Client, stores: Stores) -> None:
    """A second app in the process counts for itself."""
    client.get("/livez")
    with serving(create_app(stores)) as other:
        assert 'route="/livez"' not in other.get("/metrics").text
