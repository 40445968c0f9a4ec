"""Log lines of the API and of its workers."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import pytest

from service.app import create_app
from tests.service.conftest import serving, task_metadata_of
from worker.observability import logging as logs
from worker.observability.request_context import on_behalf, task_metadata

if TYPE_CHECKING:
    from worker.base.settings import Settings
    from worker.stores import Stores


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """Return the lines on standard error as objects."""
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_json_line_has_all_ids(settings: Settings, capsys: pytest.CaptureFixture[str]) -> None:
    """A JSON line has time, level, logger, message, ids, and the traceback."""
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
    with serving(create_app(replace(stores, settings=settings))) as client:
        dataset = client.post("/v1/datasets/synthetic", json={"name": "s_curve", "n": 100}).json()["id"]
        response = client.post("/v1/posteriors?wait=0", json={"dataset": dataset}, headers={"X-Request-Id": "grepme"})
    job = response.json()["id"]
    enqueued, access = [line for line in lines(capsys) if line.get("request_id") == "grepme"]
    assert (enqueued["message"], enqueued["job_id"]) == ("Enqueued: fit job", job)
    assert (access["logger"], access["message"]) == ("glle.access", "POST /v1/posteriors")
    assert (access["route"], access["status"]) == ("/v1/posteriors", 202)
    assert access["bytes"] == len(response.content)
    assert access["ms"] > 0
    assert task_metadata_of(stores, job) == {"request_id": "grepme"}
    assert not task_metadata(), "the request's id stayed with the request"


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
    with serving(create_app(replace(stores, settings=settings))) as client:
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
    with serving(create_app(replace(stores, settings=settings))) as client:
        for path in ("/x%0a2026-01-01T00:00:00.000Z%20info%20forged", "/x%0d%1b[2J", "/x%c2%85y", "/%e2%80%ae"):
            assert client.get(path).status_code == 404
    output = capsys.readouterr().err.split("\n")
    assert [line.isprintable() for line in output if " glle.access: GET /" in line] == [True] * 4
    assert not [line for line in output if line.startswith("2026-01-01")]


def test_probes_are_logged_at_level_debug(stores: Stores, capsys: pytest.CaptureFixture[str]) -> None:
    """Probes are logged at level debug only, because load balancers send them all the time."""
    lists: dict[Literal["info", "debug"], list[str]] = {
        "info": ["/v1/info"],
        "debug": ["/livez", "/metrics", "/v1/info"],
    }
    for level, expected in lists.items():
        settings = replace(stores.settings, log_format="json", log_level=level)
        logs.configure(settings)
        with serving(create_app(replace(stores, settings=settings))) as client:
            for path in ("/livez", "/metrics", "/v1/info"):
                assert client.get(path).status_code == 200
        routes = [line["route"] for line in lines(capsys) if line["logger"] == "glle.access"]
        assert routes == expected
    logs.configure(stores.settings)
