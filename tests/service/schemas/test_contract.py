"""The contract: documented routes and models, an export that is up to date, one shape of errors."""

from __future__ import annotations

import copy
import re
from base64 import b64encode
from dataclasses import fields
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import FitSpec
from service.cli import main
from service.schemas import docs_page
from service.schemas.problems import MEDIA_TYPE
from service.schemas.resources import PosteriorIn
from tests.service.schemas.bodies import CONTRACT, OPERATIONS

if TYPE_CHECKING:
    import httpx


@pytest.fixture(scope="module")
def contract_text() -> str:
    """The contract of the routes."""
    return main.contract_text(main._contract_app())


def test_export_is_up_to_date(contract_text: str) -> None:
    """`glle openapi` writes openapi/openapi.json."""
    assert main.CONTRACT.read_text(encoding="utf-8") == contract_text


def test_check_notices_a_difference(
    tmp_path: Any, contract_text: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The exported contract passes; a stale or missing one fails with the remedy; writing repairs it and the types."""
    monkeypatch.setattr(main, "contract_text", lambda _: contract_text)
    assert main.main(["openapi", "--check"]) == 0
    monkeypatch.setattr(main, "CONTRACT", tmp_path / "openapi.json")
    assert main.main(["openapi", "--check"]) == 1
    assert "run `glle openapi`" in capsys.readouterr().err
    generator = "from pathlib import Path\ndef main(): Path(__file__).with_suffix('.txt').touch()"
    (tmp_path / "client_types.py").write_text(generator)
    assert main.main(["openapi"]) == 0
    assert (tmp_path / "client_types.txt").exists()
    assert main.main(["openapi", "--check"]) == 0


@pytest.mark.parametrize(
    "operation", [pytest.param(operation, id=f"{method} {path}") for method, path, operation in OPERATIONS]
)
def test_every_route_is_documented(operation: dict[str, Any]) -> None:
    """Each operation has a summary, one tag, a description and problems, each parameter a description."""
    assert operation["summary"]
    assert len(operation["tags"]) == 1
    if operation.get("parameters") or "requestBody" in operation:
        assert any(status.startswith("4") for status in operation["responses"])
    assert len(operation["description"]) > 10
    problems = {
        status: answer for status, answer in operation["responses"].items() if MEDIA_TYPE in answer.get("content", {})
    }
    assert {"500", "503"} <= set(problems)
    assert all(answer["description"] for answer in operation["responses"].values())
    for status, answer in operation["responses"].items():
        if int(status) >= 400:
            assert list(answer["content"]) == [MEDIA_TYPE], status
            assert answer["content"][MEDIA_TYPE]["schema"] == {"$ref": "#/components/schemas/ProblemOut"}
    for parameter in operation.get("parameters", []):
        description = parameter.get("description") or parameter["schema"].get("description")
        assert description or parameter["name"] == "id", parameter["name"]


def test_every_reference_leads_somewhere(contract_text: str) -> None:
    """Every reference resolves, and every schema is used."""
    referred = set(re.findall(r"#/components/schemas/(\w+)", contract_text))
    assert referred == set(CONTRACT["components"]["schemas"])


def test_docs_page_shows_every_route_and_loads_nothing(client: httpx.Client) -> None:
    """The page has each path and model, and no external address."""
    answer = client.get("/docs")
    assert answer.status_code == 200
    for path in CONTRACT["paths"]:
        assert f"<code>{path}</code>" in answer.text
    assert "<script" not in answer.text
    assert re.findall(r"https?://", answer.text) == []
    assert answer.text == docs_page.page(client.get("/openapi.json").json())


def test_docs_page_has_a_policy_that_admits_its_style_alone(client: httpx.Client) -> None:
    """The page has one style, whose hash is in the policy, and nothing that the policy refuses."""
    answer = client.get("/docs")
    directives = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    styles = re.findall(r"<style>(.*?)</style>", answer.text, re.DOTALL)
    hashes = [b64encode(sha256(style.encode()).digest()).decode() for style in styles]
    assert [directives.pop("style-src")] == [f"'sha256-{each}'" for each in hashes]
    assert directives == dict.fromkeys(("default-src", "base-uri", "form-action", "frame-ancestors"), "'none'")
    assert not re.search(r"<(script|img|link|iframe|form|base)|\sstyle=|\son\w+=", answer.text)


def test_docs_page_marks_deprecated_operations() -> None:
    """`deprecated: true` shows on the page; today no operation has it."""
    assert "(deprecated)" not in docs_page.page(CONTRACT)
    marked = copy.deepcopy(CONTRACT)
    marked["paths"]["/v1/info"]["get"]["deprecated"] = True
    assert docs_page.page(marked).count("(deprecated)") == 1


def test_served_contract_is_the_exported(client: httpx.Client) -> None:
    """/openapi.json does not depend on the settings."""
    assert client.get("/openapi.json").json() == CONTRACT


@pytest.mark.parametrize(
    ("method", "path", "more", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "no-such-route"),
        ("PUT", "/v1/datasets", {}, 405, "method-not-allowed"),
        ("GET", "/v1/datasets/ds_none", {}, 404, "dataset-not-found"),
        ("GET", "/v1/posteriors/post_none", {}, 404, "posterior-not-found"),
        ("POST", "/v1/advice", {"json": {"dataset": "ds_none"}}, 404, "dataset-not-found"),
        ("GET", "/v1/posteriors/x/summary?count=1", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/summary?scale=inf", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/summary", {"headers": {"accept": "application/x-npy"}}, 406, "not-acceptable"),
        ("GET", "/v1/jobs/job_none", {}, 404, "job-not-found"),
        ("GET", "/v1/jobs?limit=0", {}, 422, "invalid-request"),
        ("GET", "/v1/jobs?cursor=%21", {}, 422, "invalid-cursor"),
        ("GET", "/v1/jobs?status=done", {}, 422, "invalid-request"),
        ("GET", "/v1/jobs/x?wait=nan", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/draws/-1", {}, 422, "invalid-request"),
        ("GET", f"/v1/posteriors/x/draws/{2**64}", {}, 422, "invalid-request"),
        ("GET", "/v1/posteriors/x/draws/0?scale=nan", {}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "ds_none"}}, 404, "dataset-not-found"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x", "k": 3}}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x", "n_neighbors": "10"}}, 422, "invalid-request"),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x", "mean": "derived"}}, 422, "invalid-parameter"),
        (
            "POST",
            "/v1/posteriors",
            {"content": b"{", "headers": {"content-type": "application/json"}},
            422,
            "invalid-request",
        ),
        ("POST", "/v1/posteriors", {}, 422, "invalid-request"),
        (
            "POST",
            "/v1/posteriors",
            {"content": b"{}", "headers": {"content-type": "text/plain"}},
            415,
            "unsupported-media-type",
        ),
        ("POST", "/v1/posteriors", {"json": {"dataset": "x" * 70_000}}, 413, "body-too-large"),
        (
            "POST",
            "/v1/posteriors",
            {"content": (b"x" * 9000 for _ in range(9)), "headers": {"content-type": "application/json"}},
            413,
            "body-too-large",
        ),
        (
            "POST",
            "/v1/posteriors",
            {"content": b'{"dataset": "x", "reg": NaN}', "headers": {"content-type": "application/json"}},
            422,
            "invalid-request",
        ),
        (
            "POST",
            "/v1/posteriors",
            {"content": b'{"dataset": "x", "reg": 1e999}', "headers": {"content-type": "application/json"}},
            422,
            "invalid-request",
        ),
        ("POST", "/v1/datasets/synthetic", {"json": {"name": "moebius"}}, 422, "invalid-parameter"),
        ("POST", "/v1/datasets/synthetic", {"json": {"name": "s_curve", "n": 2_000_000}}, 422, "too-many-points"),
        ("POST", "/v1/datasets", {"content": b"", "headers": {"content-type": "text/csv"}}, 422, "empty-body"),
        (
            "POST",
            "/v1/datasets",
            {"content": b"x", "headers": {"content-type": "image/png"}},
            415,
            "unsupported-media-type",
        ),
        ("GET", "/readyz", {}, 503, "no-workers"),
    ],
)
def test_every_error_is_a_problem(
    client: httpx.Client, method: str, path: str, more: dict[str, Any], status: int, code: str
) -> None:
    """Each is problem+json with type, title, status, detail and remedy."""
    answer = client.request(method, path, **more)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == MEDIA_TYPE
    body = answer.json()
    assert list(body) == ["type", "title", "status", "detail", "remedy", "details"]
    assert body["type"] == f"urn:glle:problem:{code}"
    assert body["status"] == status
    assert body["detail"].endswith(".")
    assert body["remedy"].endswith((".", "header."))


def test_method_not_allowed_names_the_allowed_methods(client: httpx.Client) -> None:
    """405 has the Allow header with every method of the path."""
    assert client.put("/v1/info").headers["allow"] == "GET, HEAD"
    assert client.put("/v1/datasets").headers["allow"] == "GET, HEAD, POST"
    assert client.head("/v1/advice").headers["allow"] == "POST"
    assert client.options("/v1/embeddings/emb_1.png").headers["allow"] == "GET, HEAD"
    assert client.options("/v1/embeddings/emb_1").headers["allow"] == "DELETE, GET, HEAD"


def test_every_answer_has_an_id_and_its_time(client: httpx.Client) -> None:
    """X-Request-Id is the client's if it is alphanumeric; Server-Timing is set."""
    valid = client.get("/livez", headers={"x-request-id": "abc123"})
    assert valid.headers["x-request-id"] == "abc123"
    replaced = client.get("/nowhere", headers={"x-request-id": "a b\tc"})
    assert replaced.headers["x-request-id"].isalnum()
    assert re.fullmatch(r"app;dur=\d+\.\d", replaced.headers["server-timing"])


def test_every_parameter_of_the_engine_is_a_field() -> None:
    """The fields of POST /v1/posteriors are two data sets and the engine's parameters, with their defaults."""
    others = {name: field.default for name, field in PosteriorIn.model_fields.items()}
    defaults = {name: default for name, default in others.items() if name not in {"dataset", "neighbors"}}
    assert defaults == {field.name: field.default for field in fields(FitSpec)}
