"""One trace from the request to the solver; one request id in all log lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import httpx

from tests.conftest import until
from tests.system.conftest import fitted, synthetic

if TYPE_CHECKING:
    from tests.system.conftest import Limited

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_trace_and_request_id_reach_the_worker(limited: Limited) -> None:
    """The trace has spans of the API, the task, its stages and draws; all log lines name the request."""
    headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "grepthis"}
    with httpx.Client(base_url=limited.url, headers=headers, timeout=60) as client:
        posterior = fitted(client, synthetic(client, 300, seed=2))
        until(lambda: client.get(f"{posterior}/draws/0").status_code == 200)
        expected = {
            ("glle-api", "POST /v1/posteriors"),
            ("glle-api", "GET /v1/posteriors/{id}/draws/{index}"),
            ("glle-worker", "task fit"),
            ("glle-worker", "weights"),
            ("glle-worker", "task draws"),
            ("glle-worker", "queued"),
            ("glle-worker", "drawing"),
        }
        until(lambda: expected <= {(service, name) for service, name, trace in limited.spans if trace == TRACE})
        lines = [json.loads(line) for line in limited.log.read_text().splitlines()]
    of_request = [line for line in lines if line.get("request_id") == "grepthis"]
    assert {line["logger"] for line in of_request} == {"glle.access", "worker.jobs.queue", "worker.execution.telemetry"}
    assert {line["trace_id"] for line in of_request} == {TRACE}
    jobs = {line["job_id"] for line in of_request if line["logger"] == "worker.jobs.queue"}
    assert jobs == {line["job_id"] for line in of_request if line["logger"] == "worker.execution.telemetry"}
    assert len(jobs) == 1, "a single draw is no job"
