"""Log lines of the API and of its workers, and spans from the request to the task."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from service.app import create_app
from tests.service.conftest import serving, task_metadata_of
from worker.base.settings import SettingsError
from worker.execution import tasks
from worker.observability import logging as logs
from worker.observability import tracing
from worker.observability.tracing import TRACING, on_behalf, task_metadata

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.sdk.trace import ReadableSpan

    from worker.base.settings import Settings
    from worker.stores import Stores


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines on standard error as objects."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_line_has_all_ids(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Time, level, logger, message, ids, and a traceback in the same line."""
    logs.configure(replace(settings, log_format="json"))
    with on_behalf({"request_id": "abc"}, "job_1"):
        try:
            int("line one\nline two")
        except ValueError:
            logging.getLogger("any.logger").exception("It %s", "failed", extra={"fields": {"stage": "weights"}})
    logging.getLogger("any.logger").debug("below the level")
    logging.getLogger("rq.worker").info("one a heartbeat, which needs level debug")
    (line,) = lines(capsys)
    assert line["time"].endswith("Z")
    assert (line["level"], line["logger"], line["message"]) == ("error", "any.logger", "It failed")
    assert (line["request_id"], line["job_id"], line["stage"]) == ("abc", "job_1", "weights")
    assert "trace_id" not in line
    assert "Traceback" in line["exception"]
    assert "\n" in line["exception"]


def test_text_line_has_the_same_fields(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """The text format has the same fields, and omits unknown ids."""
    logs.configure(replace(settings, log_format="text", log_level="warning"))
    logging.getLogger("one").warning("plain")
    logging.getLogger("one").info("below the level")
    with on_behalf({}, "job_1"):
        logging.getLogger("one").error("of a job")
    plain, ofajob = capsys.readouterr().err.splitlines()
    assert plain.endswith(" warning one: plain")
    assert ofajob.endswith(" error one: of a job [job_id=job_1]")


def test_request_id_travels_with_the_task(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """A request's id is in its access line, its job's line, and its worker's task."""
    settings = replace(stores.settings, log_format="json")
    logs.configure(settings)
    with serving(create_app(replace_settings(stores, settings))) as client:
        dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 100}).json()["id"]
        response = client.post(
            "/v1/posteriors?deadline=777", json={"dataset": dataset}, headers={"X-Request-Id": "grepme"}
        )
    job = response.json()["id"]
    enqueued, access = [line for line in lines(capsys) if line.get("request_id") == "grepme"]
    assert (enqueued["message"], enqueued["job_id"]) == ("Enqueued: fit job", job)
    assert (access["logger"], access["message"]) == ("glle.access", "POST /v1/posteriors")
    assert (access["route"], access["status"]) == ("/v1/posteriors", 202)
    assert access["bytes"] == len(response.content)
    assert access["ms"] > 0
    assert task_metadata_of(stores, job) == {"request_id": "grepme"}
    assert not task_metadata(), "the request's id stayed with the request"


def replace_settings(stores: Stores, settings: Settings) -> Stores:
    """Return the same stores under other settings."""
    return replace(stores, settings=settings)


@pytest.mark.parametrize(
    ("log_format", "log_level", "is_on"),
    [("text", "info", False), ("text", "debug", True), ("json", "info", True), ("json", "error", True)],
)
def test_access_log_is_on_with_json(
    settings: Settings,
    log_format: Literal["text", "json"],
    log_level: Literal["debug", "info", "error"],
    *,
    is_on: bool,
) -> None:
    """The text format omits requests above level debug."""
    assert logs.has_access_log(replace(settings, log_format=log_format, log_level=log_level)) is is_on


def test_announcement_is_an_object_among_objects(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """Start messages do not break a log of JSON lines."""
    logs.announce("ready at http://x", replace(settings, log_format="json"))
    logs.announce("ready at http://x", replace(settings, log_format="text"))
    first, second = capsys.readouterr().err.splitlines()
    assert json.loads(first)["message"] == second == "ready at http://x"


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_keys_are_redacted_in_logs_and_responses(
    stores: Stores, capsys: pytest.CaptureFixture[str], log_format: Literal["text", "json"]
) -> None:
    """In a path, a query, a body or a traceback, the key's id replaces its secret."""
    key, spoken = stores.keys.create("alice", ("write",), "", None)
    settings = replace(stores.settings, log_format=log_format, log_level="debug")
    logs.configure(settings)
    with serving(create_app(replace_settings(stores, settings))) as client:
        client.headers["Authorization"] = f"Bearer {spoken}"
        for answer in (
            client.get(f"/v1/datasets/{spoken}"),
            client.get("/v1/datasets", params={"limit": spoken}),
            client.post("/v1/posteriors", json={"dataset": spoken}),
            client.post("/v1/posteriors", json={"dataset": "x", "n_neighbors": spoken}),
        ):
            assert answer.status_code in {404, 422}
            assert spoken not in answer.text
    try:
        int(spoken)
    except ValueError:
        logging.getLogger("any.logger").exception("It failed")
    output = capsys.readouterr().err
    assert f"GET /v1/datasets/glle_{key.id}_***" in output
    assert f"base 10: 'glle_{key.id}_***'" in output
    assert spoken.split("_", 2)[2] not in output


def test_a_path_is_one_line_of_the_access_log(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """Control characters of a path are escaped."""
    settings = replace(stores.settings, log_format="text", log_level="debug")
    logs.configure(settings)
    with serving(create_app(replace_settings(stores, settings))) as client:
        for path in ("/x%0a2026-01-01T00:00:00.000Z%20info%20forged", "/x%0d%1b[2J", "/x%c2%85y", "/%e2%80%ae"):
            assert client.get(path).status_code == 404
    output = capsys.readouterr().err.split("\n")
    assert [line.isprintable() for line in output if " glle.access: GET /" in line] == [True] * 4
    assert not [line for line in output if line.startswith("2026-01-01")]


def test_probes_are_logged_at_level_debug(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """Load balancers and Prometheus send them all the time; a request beside them has its line, a failed probe too."""
    lists: dict[Literal["info", "debug"], list[str]] = {
        "info": ["/v1/info"],
        "debug": ["/livez", "/metrics", "/v1/info"],
    }
    for level, expected in lists.items():
        settings = replace(stores.settings, log_format="json", log_level=level)
        logs.configure(settings)
        with serving(create_app(replace_settings(stores, settings))) as client:
            for path in ("/livez", "/metrics", "/v1/info"):
                assert client.get(path).status_code == 200
        routes = [line["route"] for line in lines(capsys) if line["logger"] == "glle.access"]
        assert routes == expected
    logs.configure(stores.settings)


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


def test_request_is_a_span_of_the_clients_trace(
    stores: Stores, drawn_posterior: str, exporter: InMemorySpanExporter
) -> None:
    """The name is the route's template; a malformed traceparent starts a trace; probes have no span."""
    with serving(create_app(stores)) as client:
        client.get("/v1/jobs/job_1", headers={"traceparent": f"00-{TRACE}-{PARENT}-01"})
        client.get("/v1/jobs?limit=1", headers={"traceparent": "nonsense"})
        client.get("/nowhere/at/all")
        client.get("/livez")
        for _ in range(2):  # the second one from memory
            client.get(f"{drawn_posterior}/draws/0").raise_for_status()
    by_name = spans(exporter)
    assert set(by_name) == {"GET /v1/jobs/{id}", "GET /v1/jobs", "GET", "GET /v1/posteriors/{id}/draws/{index}"}
    assert len([span for span in exporter.get_finished_spans() if span.name.endswith("{index}")]) == 2
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


def test_failed_task_is_a_failed_span(stores: Stores, exporter: InMemorySpanExporter) -> None:
    """The span of a failed job has its code and detail."""
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


def test_an_export_has_the_time_limit_of_a_work_horse(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the service's name, unless a standard variable sets another; the exporter's own limit is ten seconds."""
    limits: list[float] = []

    def exporter(timeout: float) -> InMemorySpanExporter:
        limits.append(timeout)
        return InMemorySpanExporter()

    monkeypatch.setattr("opentelemetry.exporter.otlp.proto.http.trace_exporter.OTLPSpanExporter", exporter)
    for name, value, service in (
        ("GLLE_OTHER", "", "glle-test"),
        ("OTEL_SERVICE_NAME", "own", "own"),
        ("OTEL_RESOURCE_ATTRIBUTES", "service.name=ours", "ours"),
    ):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            TRACING.start("glle-test", seconds=0.2)
        assert TRACING.provider is not None
        assert TRACING.provider.resource.attributes["service.name"] == service
        TRACING.stop()
    assert limits == [0.2] * 3


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
