"""Spans from the request to the solver, in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import Response

from service.app import create_app
from tests.service.conftest import serving, task_metadata_of
from worker.base.settings import SettingsError
from worker.execution import tasks
from worker.observability import tracing
from worker.observability.request_context import task_metadata
from worker.observability.tracing import TRACING, trace_id

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from worker.stores import Stores

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def exporter() -> Iterator[InMemorySpanExporter]:
    """Exporter that holds the spans of a test."""
    memory = InMemorySpanExporter()
    TRACING.start("glle-test", exporter=memory)
    yield memory
    TRACING.stop()


def spans(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    """Return the finished spans by name."""
    TRACING.flush()
    return {span.name: span for span in exporter.get_finished_spans()}


def test_request_is_a_span_of_the_clients_trace(stores: Stores, exporter: InMemorySpanExporter) -> None:
    """The name is the route's template; a malformed traceparent starts a trace; probes have no span."""
    with serving(create_app(stores)) as client:
        client.get("/v1/jobs/job_1", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        client.get("/v1/jobs?limit=1", headers={"traceparent": "nonsense"})
        client.get("/nowhere/at/all")
        client.get("/livez")
    by_name = spans(exporter)
    assert set(by_name) == {"GET /v1/jobs/{id}", "GET /v1/jobs", "GET"}
    nowhere = by_name["GET"].attributes
    assert nowhere is not None
    assert nowhere["http.response.status_code"] == 404
    span = by_name["GET /v1/jobs/{id}"]
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 404
    assert span.attributes["http.route"] == "/v1/jobs/{id}"
    assert span.parent is not None
    assert (f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}") == (TRACE, PARENT)
    assert by_name["GET /v1/jobs"].parent is None


def test_trace_goes_on_in_the_task(
    stores: Stores, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task is a child of the request; stages and draws are children of the task."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    handed: list[dict[str, str]] = []
    monkeypatch.setattr(
        "worker.execution.telemetry.get_current_job",
        lambda: type("Task", (), {"meta": handed[-1], "enqueued_at": None}),
    )
    with serving(create_app(stores)) as client:
        dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 100}).json()["id"]
        headers = {"traceparent": f"00-{TRACE}-{PARENT}-01"}
        fit = client.post("/v1/posteriors", json={"dataset": dataset}, headers=headers).json()["id"]
        handed.append(task_metadata_of(stores, fit))
        tasks.fit(fit)
        posterior = stores.jobs.fetch(fit).subject
        path = f"/v1/posteriors/{posterior}/draws"
        draws = client.post(path, json={"count": 3}, headers=headers).json()["id"]
        handed.append(task_metadata_of(stores, f"{draws}-r0-s0"))
        tasks.draw(draws, 0, 0)
    assert stores.jobs.fetch(draws).status == "succeeded"
    by_name = spans(exporter)
    request, task = by_name["POST /v1/posteriors"], by_name["task fit"]
    assert task.parent is not None
    assert task.parent.span_id == request.context.span_id
    assert task.attributes is not None
    assert task.attributes["glle.job"] == fit
    for name in ("neighbors", "weights", "embedding", "posterior", "diagnostics"):
        parent = by_name[name].parent
        assert parent is not None
        assert parent.span_id == task.context.span_id
        assert f"{by_name[name].context.trace_id:032x}" == TRACE
    drawing = by_name["drawing"]
    assert drawing.attributes is not None
    assert drawing.attributes["glle.draws"] == 3
    assert drawing.attributes["glle.solver"] in {("lanes",), ("lu",), ("lanes-repinned",)}
    assert drawing.parent is not None
    assert drawing.parent.span_id == by_name["task draws"].context.span_id


def test_failed_task_is_a_failed_span(
    stores: Stores, exporter: InMemorySpanExporter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The span of a failed job has its code and detail."""
    monkeypatch.setattr(tasks, "process_stores", lambda: stores)
    with serving(create_app(stores)) as client:
        dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 60}).json()["id"]
        job = client.post("/v1/posteriors", json={"dataset": dataset}).json()["id"]
    stores.datasets.delete(dataset)
    tasks.fit(job)
    failed = stores.jobs.fetch(job)
    assert failed.error is not None
    span = spans(exporter)["task fit"]
    assert span.attributes is not None
    assert (span.attributes["glle.status"], span.attributes["error.type"]) == ("failed", failed.error.code)
    assert not span.status.is_ok
    assert span.status.description == failed.error.detail


def test_an_unreachable_collector_delays_a_task_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that cannot be exported are dropped within the time of a work-horse."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    TRACING.start("glle-test", seconds=0.2)
    try:
        with TRACING.span("lost"):
            pass
        started = time.monotonic()
        TRACING.flush()
        assert time.monotonic() - started < 8, "the exporter's own timeout is ten seconds"
    finally:
        TRACING.stop()


def test_answer_from_memory_has_its_route(stores: Stores, exporter: InMemorySpanExporter) -> None:
    """Cached responses have the same span name."""
    app = create_app(stores)

    async def present(_tenant: str, _id: str) -> str:
        return "state"

    app.state.answer_cache._state = present
    path = "/v1/posteriors/post_1/draws/0"
    kept = SimpleNamespace(path="/v1/posteriors/{id}/draws/{index}")
    scope = {"type": "http", "path": path, "query_string": b"", "headers": [(b"accept", b"*/*")]}
    request_scope: dict[str, Any] = {**scope, "route": kept, "glle.tenant": "default"}
    app.state.answer_cache.keep(request_scope, "post_1", "state", Response(b"body", media_type="application/x-npy"))
    with serving(app) as client:
        assert client.get(path).content == b"body"
    assert set(spans(exporter)) == {"GET /v1/posteriors/{id}/draws/{index}"}


def test_log_lines_have_the_trace(exporter: InMemorySpanExporter) -> None:
    """Log lines have the trace id within a span, and none outside."""
    with TRACING.span("one") as span:
        assert trace_id() == f"{span.get_span_context().trace_id:032x}"
    assert trace_id() == ""


def test_traces_go_to_a_named_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tracing is off by default; a standard variable switches it on."""
    for name in tracing._ENDPOINTS:
        monkeypatch.delenv(name, raising=False)
    assert not tracing.has_collector()
    with TRACING.span("nothing") as span:
        assert not span.is_recording()
        assert task_metadata() == {}
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    assert tracing.has_collector()


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the extra, tracing is a clear error."""
    monkeypatch.setattr(tracing, "_EXPORTER", "opentelemetry.nowhere.exporter")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318")
    with pytest.raises(SettingsError, match=r"glle-server\[otel\]"):
        tracing.has_collector()


@pytest.mark.slow
def test_no_exporter_is_imported_without_traces() -> None:
    """API and worker load no exporter."""
    code = "import sys, service.app, worker.execution.telemetry; print('opentelemetry.exporter' in sys.modules)"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTEL_")}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"
