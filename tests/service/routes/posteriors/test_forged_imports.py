"""Imports whose file states what no fit reports, or has arrays that no fit makes: refused, or harmless."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.service.routes.posteriors.conftest import NPY, check_problem, fitted
from tests.service.routes.posteriors.forged import (
    IMPORT,
    ZIP,
    Members,
    encoded,
    members,
    random_graph,
    separate_classes,
    stating,
    written,
)
from tests.service.tenants import served
from tests.worker.storage.conftest import used
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
    return client.get(fitted(client) + "/export").content


def imported(client: httpx.Client, content: bytes) -> httpx.Response:
    """Return the response of an import."""
    return client.post(IMPORT, content=content, headers=ZIP)


def note(message: str = "A note.", code: str = CODE) -> dict[str, str]:
    """Return a note as a file has it."""
    return {"code": code, "message": message}


def describing(content: bytes, **saved: Any) -> bytes:
    """Return a file with other members of its record."""
    arrays = members(content)
    about = json.loads(arrays["export.json"].tobytes())
    return written(arrays, posterior=about["posterior"] | saved)


STATED: dict[str, Callable[[bytes], bytes]] = {
    "a long note": lambda content: stating(content, notes=[note("x" * 10_000)]),
    "many notes": lambda content: stating(content, notes=[note()] * 1000),
    "a note that is no UTF-8": lambda content: stating(content, notes=[note(SURROGATE)]),
    "a note of several lines": lambda content: stating(content, notes=[note("one\ntwo")]),
    "a code that is no UTF-8": lambda content: stating(content, notes=[note(code=SURROGATE)]),
    "a note that is no text": lambda content: stating(content, notes=[{"code": CODE, "message": 1}]),
    "a figure that is no UTF-8": lambda content: stating(content, figures={"solver": SURROGATE}),
    "a figure of a long text": lambda content: stating(content, figures={"solver": "x" * 10_000}),
    "a figure that is not finite": lambda content: stating(content, figures={"relative_gap": float("nan")}),
    "an unknown figure that is not finite": lambda content: stating(content, figures={"mine": float("inf")}),
    "a figure whose name is a sentence": lambda content: stating(content, figures={"Mine, and more": 1}),
    "many figures": lambda content: stating(
        content,
        figures={"mine" + "x" * i: 1 for i in range(40)}
        | {"yours" + "x" * i: 1 for i in range(40)}
        | {"theirs" + "x" * i: 1 for i in range(40)},
    ),
    "a large integer": lambda content: stating(content, figures={"n_points": 10**400}),
    "a nested figure": lambda content: stating(content, figures={"bridges": [[[[1]]]]}),
    "a name in a figure that is no UTF-8": lambda content: stating(content, figures={"noise": {SURROGATE: 1}}),
    "many long lists": lambda content: stating(content, figures={"bridges": [[0.123456789012345] * 90] * 90}),
    "a provenance that is no UTF-8": lambda content: describing(
        content, provenance={"numbers": _numbers(content), "host": SURROGATE}
    ),
    "a provenance of control characters": lambda content: describing(
        content, provenance={"numbers": _numbers(content), "\x1b[2J": "x"}
    ),
    "a job that is no UTF-8": lambda content: describing(content, job=SURROGATE),
}


def _numbers(content: bytes) -> str:
    about = json.loads(members(content)["export.json"].tobytes())
    return str(about["posterior"]["provenance"]["numbers"])


@pytest.mark.parametrize("forge", STATED.values(), ids=list(STATED))
def test_statements_beyond_those_of_a_fit_are_refused(
    client: httpx.Client, content: bytes, forge: Callable[[bytes], bytes]
) -> None:
    """422 with the reason; the list of the tenant has the fit alone."""
    problem = check_problem(imported(client, forge(content)), 422, "malformed-posterior")
    assert "export" in problem["remedy"]
    page = client.get("/v1/posteriors").json()
    assert (len(page["items"]), page["unreadable"]) == (1, [])


def test_names_that_are_no_text_are_refused(client: httpx.Client, content: bytes) -> None:
    """The names of features are checked like those of an upload."""
    arrays = members(content)
    dataset = json.loads(arrays["export.json"].tobytes())["dataset"]
    named = written(arrays, dataset=dataset | {"names": ["a", "b", SURROGATE]})
    check_problem(imported(client, named), 422, "invalid-names")


def test_a_record_has_short_statements_and_the_file_has_all(client: httpx.Client, content: bytes) -> None:
    """Long lists are not in the record; the exported file still has them."""
    figures = {"constant_features": list(range(9000)), "n_points": 60}
    record = imported(client, stating(content, figures=figures, notes=[note()])).json()
    assert record["diagnostics"] == {"figures": {"n_points": 60}, "notes": [note()]}
    assert len(json.dumps(record)) < MAX_RECORD
    job = client.get(record["links"]["export"] + "?wait=0").json()
    tasks.fit(job["id"])
    head = json.loads(members(client.get(record["links"]["export"]).content)["head.json"].tobytes())
    assert head["diagnostics"]["figures"] == figures


def test_the_duration_of_a_file_is_not_believed(client: httpx.Client, content: bytes) -> None:
    """The seconds and the cost of draws of an import are those of its graph."""
    records = [
        imported(client, describing(content, seconds=seconds)).json() for seconds in (0, 1e12, "x", float("nan"))
    ]
    assert 0 < records[0]["seconds"] < 10
    assert all(record == records[0] for record in records)


def test_draws_beyond_the_limits_of_fits_are_refused(client: httpx.Client, stores: Stores) -> None:
    """Small files of a graph whose factors fill in, or of many closed classes, are 422; none is stored."""
    filled = random_graph(6000, 10)
    assert len(filled) < 2**20
    problem = check_problem(imported(client, filled), 422, "too-much-memory")
    assert "GLLE_METHOD_BYTES" in problem["remedy"]
    assert problem["details"]["expected_bytes"] > problem["details"]["allowed_bytes"]
    check_problem(imported(client, separate_classes(60_000, 6)), 422, "too-long")
    with served(stores, auth="off", method_bytes=2**40, job_timeout=10) as other:
        check_problem(imported(other, filled), 422, "too-long")
    assert client.get("/v1/posteriors").json()["items"] == []
    with served(stores, auth="off", method_bytes=2**40) as other:
        assert imported(other, filled).status_code == 201


def test_the_limits_of_a_reader_bound_the_count_of_the_fill(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An import whose check needs more memory than a reader has is refused, and the next one is read."""
    large = random_graph(20_000, 10)
    monkeypatch.setattr("service.uploads.sandbox.processes.MAX_BYTES", 2**24)
    with served(stores, auth="off") as small:
        check_problem(imported(small, large), 413, "reader-memory")
    check_problem(imported(client, large), 422, "too-long")


def changed(name: str, value: Any) -> Callable[[bytes], bytes]:
    """Return a forger that sets all entries of an array."""

    def forge(content: bytes) -> bytes:
        arrays = members(content)
        arrays[name][...] = value
        return written(arrays)

    return forge


@pytest.mark.parametrize(
    "forge",
    [
        changed("embedding", 0.0),
        changed("embedding", 1.0),
        changed("embedding", 1e308),
        changed("embedding", np.inf),
        changed("eigenvalues", np.nan),
        changed("eigenvalues", [3.0, 2.0, 1.0]),
        changed("eigenvalues", 1e308),
        changed("mean", 1e308),
        changed("covariance_factor", 1e308),
        changed("prior_factor", 1e200),
    ],
)
def test_implausible_arrays_are_refused(client: httpx.Client, content: bytes, forge: Callable[[bytes], bytes]) -> None:
    """422 for arrays whose draws would be no embeddings."""
    check_problem(imported(client, forge(content)), 422, "malformed-posterior")


def test_imports_wait_for_memory_of_the_queue_server(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """Above the mark a new import is 503 with Retry-After; a stored one is answered and repaired."""
    first = imported(client, content)
    assert first.status_code == 201
    with used(stores, 0.9):
        answer = imported(client, stating(content, notes=[note()]))
        check_problem(answer, 503, "redis-full")
        assert int(answer.headers["retry-after"]) > 0
        assert imported(client, content).status_code == 200
    assert imported(client, stating(content, notes=[note()])).status_code == 201


def test_bytes_of_records_count_in_the_quota(client: httpx.Client, stores: Stores, content: bytes) -> None:
    """Beyond the bytes that the quota of posteriors allows, 429 has the bytes; a deletion makes room."""
    record = stores.posteriors.fetch(client.get("/v1/posteriors").json()["items"][0]["id"])
    long = [note("x" * 2 * RECORD_BYTES)]
    for number in range(3):
        stores.posteriors.record(replace(record, id=f"post_{number:032x}", diagnostics={"figures": {}, "notes": long}))
    with served(stores, auth="off", quotas="*=posteriors:6") as small:
        details = check_problem(imported(small, content), 429, "quota-exceeded")["details"]
        assert (details["quota"], details["allowed"]) == ("posteriors", 6 * RECORD_BYTES)
        assert details["used"] > details["allowed"]
        small.delete(f"/v1/posteriors/post_{0:032x}").raise_for_status()
        assert imported(small, content).status_code == 201


VALUES = (0.0, 1.0, -1.0, 1e-320, 1e-30, 1e30, 1e110, 1e140, -1e144, 1e154, 1e308, np.inf, np.nan)
CHANGES: dict[str, Callable[[Any, int, float], None]] = {
    "all": lambda array, _, value: array.fill(value),
    "one": lambda array, at, value: array.flat.__setitem__(at % array.size, value),
    "row": lambda array, at, value: array.__setitem__(at % len(array), value),
    "scaled": lambda array, _, value: np.multiply(array, value, out=array),
}


@pytest.fixture
def exports(client: httpx.Client) -> dict[str, bytes]:
    """The exported files of both variants."""
    paths = {variant: fitted(client, variant=variant) for variant in ("constrained", "published")}
    return {variant: client.get(path + "/export").content for variant, path in paths.items()}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    variant=st.sampled_from(["constrained", "published"]),
    name=st.sampled_from(["embedding", "eigenvalues", "mean", "covariance_factor", "prior_factor"]),
    change=st.sampled_from(sorted(CHANGES)),
    at=st.integers(0, 10_000),
    value=st.sampled_from(VALUES),
)
def test_changed_arrays_are_refused_or_drawn(
    client: httpx.Client,
    stores: Stores,
    exports: dict[str, bytes],
    variant: str,
    name: str,
    change: str,
    at: int,
    value: float,
) -> None:
    """Each change of an array is 422 at the import, or its draws answer without a 500."""
    arrays: Members = members(exports[variant])
    with np.errstate(all="ignore"):
        CHANGES[change](arrays[name], at, value)
    answer = imported(client, written(arrays))
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


def test_an_array_of_heads_is_no_head(client: httpx.Client, content: bytes) -> None:
    """A head that is a list, or of another shape, is 422."""
    arrays = members(content)
    heads: list[Any] = [[], {}, {"diagnostics": 1}]
    for head in heads:
        check_problem(imported(client, written({**arrays, "head.json": encoded(head)})), 422, "malformed-posterior")
