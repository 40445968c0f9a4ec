"""Imports whose file states what no fit reports, or has arrays that no fit makes: refused, or harmless."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import stored_files
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import NPY, fit_posterior
from tests.service.routes.posteriors.forged import (
    exported_fit,
    import_file,
    json_member,
    members,
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

    Forge = Callable[[bytes], bytes]

SURROGATE = "lone \ud800"
CODE = "small-gap"


@pytest.fixture
def content(client: httpx.Client) -> bytes:
    """The exported file of a fit."""
    return exported_fit(client)


def note(message: Any = "A note.", code: str = CODE) -> dict[str, str]:
    """Return a note as a file has it."""
    return {"code": code, "message": message}


def stating(**diagnostics: Any) -> Forge:
    """Return a forger of members of the diagnostics: `figures` and `notes`."""

    def forge(content: bytes) -> bytes:
        arrays = members(content)
        head = json.loads(arrays["head.json"].tobytes())
        head["diagnostics"] |= diagnostics
        return pack_export({**arrays, "head.json": json_member(head)})

    return forge


def noting(*args: Any, **members: Any) -> Forge:
    """Return a forger of one note."""
    return stating(notes=[note(*args, **members)])


def measuring(**figures: Any) -> Forge:
    """Return a forger of figures."""
    return stating(figures=figures)


def describing(part: str, **saved: Any) -> Forge:
    """Return a forger of members of `export.json`: of its `posterior`, its `dataset` or its `provenance`."""

    def forge(content: bytes) -> bytes:
        arrays = members(content)
        about = json.loads(arrays["export.json"].tobytes())
        changed = about["posterior"]["provenance"] if part == "provenance" else about[part]
        changed.update(saved)
        return pack_export(arrays, posterior=about["posterior"], dataset=about["dataset"])

    return forge


def setting(name: str, value: Any, at: Any = ...) -> Forge:
    """Return a forger of entries of an array."""

    def forge(content: bytes) -> bytes:
        arrays = members(content)
        arrays[name][at] = value
        return pack_export(arrays)

    return forge


def changing(**changed: Callable[[Any], Any] | None) -> Forge:
    """Return a forger of whole arrays; None leaves one out."""

    def forge(content: bytes) -> bytes:
        arrays = members(content)
        kept = {name: array for name, array in arrays.items() if changed.get(name, 0) is not None}
        return pack_export({name: (changed.get(name) or np.asarray)(array) for name, array in kept.items()})

    return forge


def change_export(**about: Any) -> Forge:
    """Return a forger of members of `export.json`."""
    return lambda content: pack_export(members(content), **about)


def replace_head(head: Any) -> Forge:
    """Return a forger of the head."""
    return lambda content: pack_export({**members(content), "head.json": json_member(head)})


FORGED: dict[str, Forge] = {
    "a long note": noting("x" * 10_000),
    "a note that is no UTF-8": noting(SURROGATE),
    "a note of several lines": noting("one\ntwo"),
    "a code that is no UTF-8": noting(code=SURROGATE),
    "a note that is no text": noting(1),
    "a figure that is no UTF-8": measuring(solver=SURROGATE),
    "a figure of a long text": measuring(solver="x" * 10_000),
    "a figure that is not finite": measuring(relative_gap=float("nan")),
    "an unknown figure that is not finite": measuring(mine=float("inf")),
    "a large integer": measuring(n_points=10**400),
    "a deeply nested figure": measuring(bridges=json.loads("[" * 300 + "]" * 300)),
    "a name in a figure that is no UTF-8": measuring(noise={SURROGATE: 1}),
    "many long lists": measuring(bridges=[[0.123456789012345] * 90] * 90),
    "a provenance that is no UTF-8": describing("provenance", host=SURROGATE),
    "a provenance of control characters": describing("provenance", **{"\x1b[2J": "x"}),
    "a version that is none": describing("provenance", numbers="glle:x"),
    "a job that is no UTF-8": describing("posterior", job=SURROGATE),
    "an index beyond the points": setting("neighbors", 60, (0, -1)),
    "a negative index": setting("neighbors", -1, (0, 0)),
    "no permutation": setting("order", 0),
    "pins beyond the points": setting("pins", 60),
    "NaN": setting("mean", np.nan, (0, 0)),
    "an embedding of one place": setting("embedding", 1.0),
    "an embedding of zeros": setting("embedding", 0.0),
    "a huge embedding": setting("embedding", 1e308),
    "an infinite embedding": setting("embedding", np.inf),
    "eigenvalues of NaN": setting("eigenvalues", np.nan),
    "eigenvalues in no order": setting("eigenvalues", [3.0, 2.0, 1.0]),
    "huge eigenvalues": setting("eigenvalues", 1e308),
    "huge weights": setting("mean", 1e308),
    "huge covariances": setting("covariance_factor", 1e308),
    "a huge prior": setting("prior_factor", 1e200),
    "another type": changing(mean=lambda mean: mean.astype(np.float32)),
    "a missing array": changing(order=None),
    "no head": changing(**{"head.json": None}),
    "a head that is no JSON": changing(**{"head.json": lambda _: np.zeros(3, np.uint8)}),
    "a head that is a list": replace_head([]),
    "an empty head": replace_head({}),
    "a head of another shape": replace_head({"diagnostics": 1}),
    "another digest": change_export(arrays_sha256="0" * 64),
    "another format": change_export(export=2),
    "no data set": change_export(dataset=None),
    "features of another data set": change_export(dataset={"sha256": "a" * 64, "n": 61, "d": 3}),
    "no record": change_export(posterior=[]),
    "cut off": lambda content: content[: len(content) // 2],
    "no zip": lambda _: b"x,y\n1,2\n",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=list(FORGED))
def test_forged_files_are_refused_and_leave_nothing(
    client: httpx.Client, stores: Stores, content: bytes, forge: Forge
) -> None:
    """422 with the reason and the remedy; no posterior, and no file."""
    problem = check_problem(import_file(client, forge(content)), 422, "malformed-posterior")
    assert "export" in problem["remedy"]
    page = client.get("/v1/posteriors").json()
    assert (page["items"], page["unreadable"]) == ([], [])
    assert stored_files(stores) == []


def test_other_names_and_numbers_are_refused(client: httpx.Client, content: bytes) -> None:
    """Names are checked like those of an upload; draws of another version have other bits: 409."""
    for forge, status, code in (
        (describing("dataset", names=["a", "b", SURROGATE]), 422, "invalid-names"),
        (describing("provenance", numbers="0.0.1"), 409, "other-numbers"),
    ):
        check_problem(import_file(client, forge(content)), status, code)


def test_a_record_has_short_statements_and_the_file_has_all(client: httpx.Client, content: bytes) -> None:
    """Long lists are not in the record; the exported file still has them."""
    figures = {"constant_features": list(range(9000)), "n_points": 60}
    record = import_file(client, stating(figures=figures, notes=[note()])(content)).json()
    assert record["diagnostics"] == {"figures": {"n_points": 60}, "notes": [note()]}
    assert len(json.dumps(record)) < MAX_RECORD
    job = client.get(record["links"]["export"] + "?wait=0").json()
    tasks.fit(job["id"])
    head = json.loads(members(client.get(record["links"]["export"]).content)["head.json"].tobytes())
    assert head["diagnostics"]["figures"] == figures


def test_the_duration_of_a_file_is_not_believed(client: httpx.Client, content: bytes) -> None:
    """The seconds and the cost of draws of an import are those of its graph."""
    forged = [describing("posterior", seconds=seconds)(content) for seconds in (0, 1e12, "x", float("nan"))]
    records = [import_file(client, each).json() for each in forged]
    assert 0 < records[0]["seconds"] < 10
    assert all(record == records[0] for record in records)


def test_draws_beyond_the_limits_of_fits_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small files of a graph whose factors fill in, or of many closed classes, are 422; none is stored."""
    filled = random_graph(6000, 10)
    assert len(filled) < 2**20
    problem = check_problem(import_file(client, filled), 422, "too-much-memory")
    assert "GLLE_METHOD_BYTES" in problem["remedy"]
    assert problem["details"]["expected_bytes"] > problem["details"]["allowed_bytes"]
    check_problem(import_file(client, separate_classes(60_000, 6)), 422, "too-long")
    with serve_stores(stores, auth="off", method_bytes=2**40, job_timeout=10) as other:
        check_problem(import_file(other, filled), 422, "too-long")
    monkeypatch.setattr("service.uploads.sandbox.processes.MAX_BYTES", 2**24)
    with serve_stores(stores, auth="off") as small:  # the check itself needs more than a reader has
        check_problem(import_file(small, random_graph(20_000, 10)), 413, "reader-memory")
    monkeypatch.undo()
    assert client.get("/v1/posteriors").json()["items"] == []


def test_imports_wait_for_memory_of_the_queue_server(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """Above the mark a new import is 503 with Retry-After; a stored one is answered and repaired."""
    noted = noting()(content)
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


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
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
