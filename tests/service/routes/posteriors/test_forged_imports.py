"""Imports whose file states what no fit reports, or has arrays that no fit makes: refused, or harmless."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import reduce
from operator import getitem
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import stored_files
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import NPY, fit_posterior, members
from tests.service.routes.posteriors.forged import (
    exported_fit,
    import_file,
    json_member,
    pack_export,
    random_graph,
    separate_classes,
)
from tests.service.tenants import serve_stores
from tests.worker.storage.conftest import fill_memory
from worker.execution import tasks
from worker.records.draws import DrawsSpec
from worker.records.quotas import MAX_RECORD, RECORD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

    from worker.stores import Stores

SURROGATE = "lone \ud800"
CODE = "small-gap"


@pytest.fixture
def content(client: httpx.Client) -> bytes:
    """The exported file of a fit."""
    return exported_fit(client)


def note(message: Any = "A note.", code: str = CODE) -> dict[str, str]:
    """Return a note as a file has it."""
    return {"code": code, "message": message}


def forge(content: bytes, path: str, value: Any) -> bytes:
    """Return a file with another value at a path: of an array, of the head, or of the description."""
    arrays = members(content)
    parts: dict[str, Any] = {name: json.loads(arrays[f"{name}.json"].tobytes()) for name in ("head", "export")}
    del parts["export"]["arrays_sha256"]
    *names, last = path.split(".")
    if not names:
        arrays[last][...] = value
    else:
        reduce(getitem, names, parts)[last] = value
    return pack_export({**arrays, "head.json": json_member(parts["head"])}, **parts["export"])


FIGURES, NOTES = "head.diagnostics.figures", "head.diagnostics.notes"
FORGED: dict[str, tuple[str, Any]] = {
    "a long note": (NOTES, [note("x" * 10_000)]),
    "a note of several lines": (NOTES, [note("one\ntwo")]),
    "a code that is no UTF-8": (NOTES, [note(code=SURROGATE)]),
    "a note that is no text": (NOTES, [note(1)]),
    "an unknown figure that is not finite": (FIGURES, {"mine": float("inf")}),
    "a large integer": (FIGURES, {"n_points": 10**400}),
    "a deeply nested figure": (FIGURES, {"bridges": json.loads("[" * 300 + "]" * 300)}),
    "a name in a figure that is no UTF-8": (FIGURES, {"noise": {SURROGATE: 1}}),
    "many long lists": (FIGURES, {"bridges": [[0.123456789012345] * 90] * 90}),
    "a provenance of control characters": ("export.posterior.provenance.\x1b[2J", "x"),
    "a version that is none": ("export.posterior.provenance.numbers", "glle:x"),
    "a job that is no UTF-8": ("export.posterior.job", SURROGATE),
    "an index beyond the points": ("neighbors", 60),
    "an embedding of one place": ("embedding", 1.0),
    "a huge embedding": ("embedding", 1e308),
    "eigenvalues in no order": ("eigenvalues", [3.0, 2.0, 1.0]),
    "huge eigenvalues": ("eigenvalues", 1e308),
    "huge weights": ("mean", 1e308),
    "huge covariances": ("covariance_factor", 1e308),
    "a huge prior": ("prior_factor", 1e200),
    "another digest": ("export.arrays_sha256", "0" * 64),
    "another format": ("export.export", 2),
    "no data set": ("export.dataset", None),
    "features of another data set": ("export.dataset", {"sha256": "a" * 64, "n": 61, "d": 3}),
    "no record": ("export.posterior", []),
}


def test_forged_files_are_refused_and_leave_nothing(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """422 with the reason and the remedy; no posterior, and no file."""
    arrays = members(content)
    files = {name: forge(content, *change) for name, change in FORGED.items()}
    files |= {
        "no head": pack_export({name: array for name, array in arrays.items() if name != "head.json"}),
        "a head that is no JSON": pack_export({**arrays, "head.json": np.zeros(3, np.uint8)}),
        "cut off": content[: len(content) // 2],
        "no zip": b"x,y\n1,2\n",
    }
    for name, file in files.items():
        problem = check_problem(import_file(client, file), 422, "malformed-posterior")
        assert "export" in problem["remedy"], name
    page = client.get("/v1/posteriors").json()
    assert (page["items"], page["unreadable"]) == ([], [])
    assert stored_files(stores) == []


def test_other_names_and_numbers_are_refused(client: httpx.Client, content: bytes) -> None:
    """Names are checked like those of an upload; draws of another version have other bits: 409."""
    names = forge(content, "export.dataset.names", ["a", "b", SURROGATE])
    check_problem(import_file(client, names), 422, "invalid-names")
    numbers = forge(content, "export.posterior.provenance.numbers", "0.0.1")
    check_problem(import_file(client, numbers), 409, "other-numbers")


def test_a_record_has_short_statements_and_the_file_has_all(client: httpx.Client, content: bytes) -> None:
    """Long lists are not in the record; the exported file still has them."""
    stated = {"figures": {"constant_features": list(range(9000)), "n_points": 60}, "notes": [note()]}
    record = import_file(client, forge(content, "head.diagnostics", stated)).json()
    assert record["diagnostics"] == {"figures": {"n_points": 60}, "notes": [note()]}
    assert len(json.dumps(record)) < MAX_RECORD
    job = client.get(record["links"]["export"] + "?wait=0").json()
    tasks.fit(job["id"])
    head = json.loads(members(client.get(record["links"]["export"]).content)["head.json"].tobytes())
    assert head["diagnostics"] == stated


def test_the_duration_of_a_file_is_not_believed(client: httpx.Client, content: bytes) -> None:
    """The seconds and the cost of draws of an import are those of its graph."""
    forged = [forge(content, "export.posterior.seconds", seconds) for seconds in (0, 1e12, "x", float("nan"))]
    records = [import_file(client, each).json() for each in forged]
    assert 0 < records[0]["seconds"] < 10
    assert all(record == records[0] for record in records)


def test_draws_beyond_the_limits_of_fits_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files of a graph whose factors fill in, or of many closed classes, are 422; none is stored."""
    with serve_stores(stores, auth="off", method_bytes=2**24) as other:
        problem = check_problem(import_file(other, random_graph(1000, 10)), 422, "too-much-memory")
    assert "GLLE_METHOD_BYTES" in problem["remedy"]
    assert problem["details"]["expected_bytes"] > problem["details"]["allowed_bytes"]
    filled = random_graph(3000, 10)
    with serve_stores(stores, auth="off", job_timeout=1) as other:
        for file in (filled, separate_classes(12_000, 6)):
            check_problem(import_file(other, file), 422, "too-long")
    monkeypatch.setattr("service.uploads.sandbox.processes.MAX_BYTES", 2**21)
    with serve_stores(stores, auth="off") as small:  # the check itself needs more than a reader has
        check_problem(import_file(small, filled), 413, "reader-memory")
    monkeypatch.undo()
    assert client.get("/v1/posteriors").json()["items"] == []


def test_imports_wait_for_memory_of_the_queue_server(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """Above the mark a new import is 503 with Retry-After; a stored one is answered and repaired."""
    noted = forge(content, NOTES, [note()])
    assert import_file(client, content).status_code == 201
    with fill_memory(stores, 0.9):
        answer = import_file(client, noted)
        check_problem(answer, 503, "redis-full")
        assert int(answer.headers["retry-after"]) > 0
        assert import_file(client, content).status_code == 200
    assert import_file(client, noted).status_code == 201


def test_bytes_of_records_count_in_the_quota(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """Beyond the bytes that the quota of posteriors allows, 429 has the bytes; a deletion makes room."""
    fit_posterior(client)
    record = stores.posteriors.fetch(client.get("/v1/posteriors").json()["items"][0]["id"])
    long = [note("x" * 2 * RECORD_BYTES)]
    for number in range(3):
        stores.posteriors.record(replace(record, id=f"post_{number:032x}", diagnostics={"figures": {}, "notes": long}))
    with serve_stores(stores, auth="off", quotas="*=posteriors:6") as small:
        details = check_problem(import_file(small, content), 429, "quota-exceeded")["details"]
        assert (details["quota"], details["allowed"]) == ("posteriors", 6 * RECORD_BYTES)
        assert details["used"] > details["allowed"]
        small.delete(f"/v1/posteriors/post_{0:032x}").raise_for_status()
        assert import_file(small, content).status_code == 201


VALUES = (0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e110, 1e140, -1e144, 1e154, 1e308, np.inf, np.nan)
CHANGES: dict[str, Callable[[Any, int, float], None]] = {
    "all": lambda array, _, value: array.fill(value),
    "one": lambda array, at, value: array.flat.__setitem__(at % array.size, value),
    "row": lambda array, at, value: array.__setitem__(at % len(array), value),
    "scaled": lambda array, _, value: np.multiply(array, value, out=array),
}


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variant=st.sampled_from(["constrained", "published"]),
    name=st.sampled_from(["embedding", "eigenvalues", "mean", "covariance_factor", "prior_factor"]),
    change=st.sampled_from(sorted(CHANGES)),
    at=st.integers(0, 10_000),
    value=st.sampled_from(VALUES),
)
def test_changed_arrays_are_refused_or_drawn(
    client: httpx.Client, stores: Stores, variant: str, name: str, change: str, at: int, value: float
) -> None:
    """Each change of an array is 422 at the import, or its draws answer without a 500."""
    arrays = members(exported_fit(client, variant=variant))
    with np.errstate(all="ignore"):
        CHANGES[change](arrays[name], at, value)
    answer = import_file(client, pack_export(arrays))
    if answer.status_code not in {200, 201}:
        check_problem(answer, 422, "malformed-posterior")
        return
    for source in ("posterior", "prior"):
        url = f"{answer.json()['links']['self']}/draws/3?source={source}&wait=0"
        drawn = client.get(url, headers=NPY)
        if drawn.status_code == 200:
            continue
        assert drawn.status_code == 202, drawn.text
        job = stores.jobs.fetch(drawn.json()["id"])
        for shard in range(DrawsSpec.from_dict(job.spec).shards):
            tasks.draw(job.id, job.round, shard)
        result = client.get(f"/v1/jobs/{job.id}/result", headers=NPY)
        assert result.status_code in {200, 422}, result.text
