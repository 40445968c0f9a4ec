"""One trace from the request to the solver; one request id in all log lines."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import httpx
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.conftest import until
from tests.system.conftest import ONE_EACH, running, synthetic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@contextmanager
def collecting(spans: list[tuple[str, str, str]]) -> Iterator[str]:
    """Collect OTLP spans as (service, name, trace) on a free port; yield its URL."""

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # name of BaseHTTPRequestHandler
            export = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["content-length"])))
            for resource in export.resource_spans:
                attributes = {item.key: item.value.string_value for item in resource.resource.attributes}
                spans.extend(
                    (attributes["service.name"], span.name, span.trace_id.hex())
                    for scope in resource.scope_spans
                    for span in scope.spans
                )
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 # name of BaseHTTPRequestHandler
            """Suppress access logs."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_trace_and_request_id_reach_the_worker(tmp_path: Path) -> None:
    """The trace has spans of the API, the task, its stages and draws; all log lines name the request."""
    spans: list[tuple[str, str, str]] = []
    with (
        collecting(spans) as collector,
        running(
            tmp_path,
            **ONE_EACH,
            GLLE_LOG_FORMAT="json",
            OTEL_EXPORTER_OTLP_ENDPOINT=collector,
            OTEL_BSP_SCHEDULE_DELAY="100",
        ) as up,
        httpx.Client(base_url=up.url, timeout=60) as client,
    ):
        dataset = synthetic(client, 200)
        headers = {"traceparent": f"00-{TRACE}-00f067aa0ba902b7-01", "X-Request-Id": "grepthis"}
        fit = client.post("/v1/posteriors?wait=60", json={"dataset": dataset}, headers=headers)
        path = f"/v1/posteriors/{fit.json()['id']}/draws/0"
        assert client.get(path, headers=headers).status_code == 200
        expected = {
            ("glle-api", "POST /v1/posteriors"),
            ("glle-api", "GET /v1/posteriors/{id}/draws/{index}"),
            ("glle-worker", "task fit"),
            ("glle-worker", "weights"),
            ("glle-worker", "task draws"),
            ("glle-worker", "queued"),
            ("glle-worker", "drawing"),
        }
        until(lambda: expected <= {(service, name) for service, name, trace in spans if trace == TRACE})
        lines = [json.loads(line) for line in up.log.read_text().splitlines()]
    of_request = [line for line in lines if line.get("request_id") == "grepthis"]
    assert {line["logger"] for line in of_request} == {"glle.access", "worker.jobs.queue", "worker.execution.telemetry"}
    assert {line["trace_id"] for line in of_request} == {TRACE}
    jobs = {line["job_id"] for line in of_request if line["logger"] == "worker.jobs.queue"}
    assert jobs == {line["job_id"] for line in of_request if line["logger"] == "worker.execution.telemetry"}
    assert len(jobs) == 1, "a single draw is no job"
