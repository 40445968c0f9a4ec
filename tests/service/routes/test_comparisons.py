"""Comparisons with audits over HTTP: which map to show; tasks run in the test process, without workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import manifolds
from glle_engine.audit.candidates import candidates_of, default_candidates
from glle_engine.audit.comparison import compare_maps
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import result_of
from worker.analyses.audit import AuditSpec

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

X = manifolds.make("s_curve", 90, seed=5).X
METHODS: list[dict[str, Any]] = [{"method": "pca"}, {"method": "isomap", "parameters": {"n_neighbors": 12}}]
COMMAND = "/v1/comparisons"


def answer(client: httpx.Client, stores: Stores, body: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a comparison."""
    payload: dict[str, Any] = client.get(result_of(stores, client.post(f"{COMMAND}?wait=0", json=body))).json()
    return payload


@pytest.mark.parametrize("space", [{}, {"standardize": "zscore"}])
def test_the_answer_is_the_engines(client: httpx.Client, stores: Stores, space: dict[str, Any]) -> None:
    """Sentences, best maps and levels are the engine's; a method that cannot run is a row with its problem."""
    body = {"dataset": upload(client, X), "methods": [*METHODS, {"method": "lle", "parameters": {"n_neighbors": 95}}]}
    comparison = answer(client, stores, {**body, **space, "scores": ["trustworthiness"]})
    candidates = candidates_of(["pca", ("isomap", {"n_neighbors": 12})])
    *_, (compared, choices) = compare_maps(X, candidates, threads=1, **space)
    assert comparison["sentences"] == list(choices.sentences)
    assert ["".join(parts) for parts in comparison["sentence_parts"]] == comparison["sentences"]
    assert comparison["best"] == choices.best
    for row, each in zip(comparison["rows"], compared, strict=False):
        assert each.audit is not None
        assert each.facts is not None
        assert (row["label"], row["level"], row["verdict"]) == (
            each.candidate.label,
            each.facts.level,
            each.audit.verdict,
        )
        assert row["facts"]["kept"] == each.facts.kept
        assert row["scores"].keys() == {"trustworthiness"}
    assert comparison["rows"][2]["problem"]["type"] == "urn:glle:problem:too-few-points"
    assert comparison["rows"][2]["facts"] is None


def test_an_audit_afterwards_computes_nothing(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison stores the results of its audits, for the embedding and for the method."""
    dataset = upload(client, X)
    comparison = answer(client, stores, {"dataset": dataset, "methods": METHODS})
    row = next(row for row in comparison["rows"] if not row["is_preliminary"])
    monkeypatch.setattr(AuditSpec, "audits", None)
    of_method = {"dataset": dataset, "method": row["method"], "parameters": row["parameters"]}
    for body in ({"embedding": row["embedding"]}, of_method):
        job = client.post("/v1/audits?wait=0", json=body)
        result = job.json()["links"]["self"] + "/result" if job.status_code == 200 else result_of(stores, job)
        assert client.get(result).json()["verdict"] == row["verdict"]


def test_default_candidates_and_labels(client: httpx.Client, stores: Stores) -> None:
    """By default at most a dozen installed methods are compared; rows of one method have distinct labels."""
    job = client.post(f"{COMMAND}?wait=0", json={"dataset": upload(client, X)}).json()
    rows = job["request"]["methods"]
    assert [row["label"] for row in rows] == [each.label for each in default_candidates(*X.shape)]
    assert len(rows) <= 12
    several = [{"method": "pca"}, {"method": "pca", "label": "mine"}, {"method": "pca"}]
    job = client.post(f"{COMMAND}?wait=0", json={"dataset": upload(client, X), "methods": several}).json()
    assert [row["label"] for row in job["request"]["methods"]] == ["pca", "mine", "pca-2"]
    check_problem(client.post(COMMAND, json={"dataset": upload(client, X), "audit": False}), 422, "invalid-request")
    assert stores.jobs.fetch(job["id"]).parts is not None
