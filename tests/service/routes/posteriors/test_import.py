"""Import of an exported posterior: equal draws without its data, and refusals that leave nothing behind."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from service.cli import main
from tests.conftest import evict, stored_files
from tests.service.routes.posteriors.conftest import JSON, NPY, NPZ, check_problem, drawn, fitted, result_of
from tests.service.routes.posteriors.forged import IMPORT, ZIP, Members, members, written
from tests.service.tenants import bearer, served
from worker.execution import tasks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import httpx

    from worker.stores import Stores


def exported(client: httpx.Client, **spec: Any) -> tuple[str, bytes]:
    """Return the path and the exported file of a posterior."""
    path = fitted(client, **spec)
    return path, client.get(path + "/export").content


def draw_of(client: httpx.Client, stores: Stores, path: str, index: int, scale: float = 1.0) -> bytes:
    """Return a draw as npy, made by a task."""
    answer = client.get(f"{path}/draws/{index}?scale={scale}&wait=0")
    return client.get(drawn(stores, answer), headers=NPY).content


def files(stores: Stores) -> list[Path]:
    """Return the stored files of imported posteriors."""
    return [path for path in stored_files(stores) if path.suffix == ".npz"]


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"standardize": "zscore"}], ids=str)
def test_an_imported_posterior_draws_the_same_bits_without_its_data(
    client: httpx.Client, stores: Stores, spec: dict[str, str]
) -> None:
    """Draws equal those before, in a service without the data set, and again after an eviction of everything."""
    path, content = exported(client, **spec)
    record = client.get(path).json()
    before = [draw_of(client, stores, path, index, scale) for index, scale in ((0, 1.0), (5, 0.3))]
    assert client.delete(record["links"]["dataset"], params={"force": True}).status_code == 204
    answer = client.post(IMPORT, content=content, headers=ZIP)
    imported = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, imported["links"]["self"])
    assert imported["id"] != record["id"]
    for name in ("n", "d", "spec", "diagnostics", "eigenvalues", "arrays", "nbytes", "dataset"):
        assert imported[name] == record[name], name
    url = imported["links"]["self"]
    for _ in range(2):
        assert [draw_of(client, stores, url, index, scale) for index, scale in ((0, 1.0), (5, 0.3))] == before
        evict(stores, "")
    job = client.get(url + "/arrays?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    read = members(client.get(url + "/arrays", headers=NPZ).content)
    assert all(read[name].tobytes() == array.tobytes() for name, array in members(content).items() if name in read)
    assert set(read) == set(record["arrays"])
    again = client.post(IMPORT, content=content, headers=ZIP)
    assert (again.status_code, again.json()) == (200, imported)


def test_the_export_of_an_import_is_the_same_posterior(client: httpx.Client, stores: Stores) -> None:
    """It needs no data set, names the same data, and imports under the same id."""
    path, content = exported(client)
    assert client.delete(client.get(path).json()["links"]["dataset"], params={"force": True}).status_code == 204
    imported = client.post(IMPORT, content=content, headers=ZIP).json()
    job = client.get(imported["links"]["export"]).json()
    tasks.fit(job["id"])
    again = client.get(imported["links"]["export"]).content
    about = [json.loads(members(file)["export.json"].tobytes()) for file in (content, again)]
    assert about[0]["dataset"] == about[1]["dataset"]
    assert client.post(IMPORT, content=again, headers=ZIP).json()["id"] == imported["id"]
    assert len(files(stores)) == 1


def test_analyses_on_the_data_name_the_missing_data_set(client: httpx.Client, stores: Stores) -> None:
    """They are 404 with its digest and size; after its upload they equal those of the fit, also if it is deleted."""
    path, content = exported(client)
    dataset = client.get(client.get(path).json()["links"]["dataset"]).json()
    rows = np.load(io.BytesIO(client.get(f"/v1/datasets/{dataset['id']}/data", headers=NPY).content))
    assert client.delete(f"/v1/datasets/{dataset['id']}", params={"force": True}).status_code == 204
    url = client.post(IMPORT, content=content, headers=ZIP).json()["links"]["self"]
    for answer in (
        client.get(url + "/summary?count=4"),
        client.get(url + "/draws/0?scale=auto"),
        client.post(url + "/transform", json={"data": [[0.0, 0.0, 0.0]]}),
        client.post(url + "/reconstructions", json={"count": 1}),
        client.post(url + "/calibration", json={}),
    ):
        problem = check_problem(answer, 404, "dataset-not-found")
        assert dataset["sha256"] in problem["detail"]
        details = problem["details"]
        assert (details["sha256"], details["n"], details["d"]) == (dataset["sha256"], 60, 3)
        assert "POST /v1/datasets" in problem["remedy"]
    file = io.BytesIO()
    np.save(file, rows)
    again = client.post("/v1/datasets", content=file.getvalue(), headers={"content-type": "application/x-npy"})
    assert again.json()["id"] == dataset["id"]
    job = client.post(url + "/transform", json={"data": rows[:3].tolist()})
    places = client.get(result_of(stores, job), headers=NPY).content
    np.testing.assert_array_equal(np.load(io.BytesIO(places)), members(content)["embedding"][:3])
    assert client.delete(f"/v1/datasets/{dataset['id']}").status_code == 204  # the import does not hold it
    assert client.get(url).status_code == 200


def test_other_data_under_the_named_digest_are_refused(client: httpx.Client, stores: Stores) -> None:
    """A file that names another data set of the tenant reaches compiled code with no data but its own."""
    _, content = exported(client)
    other = client.post("/v1/datasets", json={"data": np.random.default_rng(1).normal(size=(60, 3)).tolist()}).json()
    about = {name: other[name] for name in ("id", "sha256", "n", "d", "dtype", "names")}
    url = client.post(IMPORT, content=written(members(content), dataset=about), headers=ZIP).json()["links"]["self"]
    job = client.post(url + "/transform", json={"data": [[0.0, 0.0, 0.0]]}, headers=JSON).json()
    tasks.analyse(job["id"], 0)
    check_problem(client.get(job["links"]["self"] + "/result"), 422, "data-mismatch")


def _forged(change: Callable[[Members], object]) -> Callable[[bytes], bytes]:
    def forge(content: bytes) -> bytes:
        arrays = members(content)
        change(arrays)
        return written(arrays)

    return forge


def _describing(**about: Any) -> Callable[[bytes], bytes]:
    return lambda content: written(members(content), **about)


FORGED: dict[str, Callable[[bytes], bytes]] = {
    "an index beyond the points": _forged(lambda arrays: arrays["neighbors"].__setitem__((0, -1), 60)),
    "a negative index": _forged(lambda arrays: arrays["neighbors"].__setitem__((0, 0), -1)),
    "no permutation": _forged(lambda arrays: arrays["order"].__setitem__(0, arrays["order"][1])),
    "pins beyond the points": _forged(lambda arrays: arrays.__setitem__("pins", np.array([60], np.int32))),
    "NaN": _forged(lambda arrays: arrays["mean"].__setitem__((0, 0), np.nan)),
    "another type": _forged(lambda arrays: arrays.__setitem__("mean", arrays["mean"].astype(np.float32))),
    "a missing array": _forged(lambda arrays: arrays.pop("order")),
    "no head": _forged(lambda arrays: arrays.pop("head.json")),
    "a head that is no JSON": _forged(lambda arrays: arrays.__setitem__("head.json", np.zeros(3, np.uint8))),
    "another digest": _describing(arrays_sha256="0" * 64),
    "another format": _describing(export=2),
    "no data set": _describing(dataset=None),
    "features of another data set": _describing(dataset={"sha256": "a" * 64, "n": 61, "d": 3}),
    "no record": _describing(posterior=[]),
    "cut off": lambda content: content[: len(content) // 2],
    "no zip": lambda _: b"x,y\n1,2\n",
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=list(FORGED))
def test_forged_files_are_refused_and_leave_nothing(
    client: httpx.Client, stores: Stores, forge: Callable[[bytes], bytes]
) -> None:
    """422 with the reason and the remedy; no posterior, no file, and the next import works."""
    path, content = exported(client)
    problem = check_problem(client.post(IMPORT, content=forge(content), headers=ZIP), 422, "malformed-posterior")
    assert "export" in problem["remedy"]
    assert [item["links"]["self"] for item in client.get("/v1/posteriors").json()["items"]] == [path]
    assert files(stores) == []
    assert client.post(IMPORT, content=content, headers=ZIP).status_code == 201


def test_other_numbers_are_refused(client: httpx.Client, stores: Stores) -> None:
    """Draws of another version have other bits: 409; a text that is no version is 422."""
    _, content = exported(client)
    arrays = members(content)
    saved = json.loads(arrays["export.json"].tobytes())["posterior"]
    for numbers, status, code in (("0.0.1", 409, "other-numbers"), ("glle:x", 422, "malformed-posterior")):
        changed = {**saved, "provenance": {**saved["provenance"], "numbers": numbers}}
        check_problem(client.post(IMPORT, content=written(arrays, posterior=changed), headers=ZIP), status, code)
    assert files(stores) == []


def test_large_files_and_other_media_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """413 by the bytes sent and unpacked, 415 by the header, 422 beyond the limits of parameters."""
    _, content = exported(client)
    check_problem(client.post(IMPORT, content=content, headers=JSON), 415, "unsupported-media-type")
    packed = {**ZIP, "content-encoding": "gzip"}
    check_problem(client.post(IMPORT, content=content, headers=packed), 415, "unsupported-media-type")
    for settings, status, code in (
        ({"max_body": 10_000}, 413, "body-too-large"),
        ({"max_points": 50}, 422, "too-many-points"),
    ):
        with served(stores, **settings) as other:
            problem = check_problem(other.post(IMPORT, content=content, headers=ZIP), status, code)
            assert "GLLE_MAX" in problem["remedy"]
    monkeypatch.setattr("service.submission.validation.MAX_NEIGHBORS", 5)
    check_problem(client.post(IMPORT, content=content, headers=ZIP), 422, "over-the-limit")
    monkeypatch.setattr("service.uploads.limits.INFLATION", 0)
    problem = check_problem(client.post(IMPORT, content=content, headers=ZIP), 413, "inflated-too-large")
    assert "GLLE_MAX_BODY" in problem["remedy"]
    assert files(stores) == []


def test_another_tenant_gets_another_id(client: httpx.Client, guarded: httpx.Client, stores: Stores) -> None:
    """Tenants neither share nor read each other's imports; a key to read cannot import."""
    _, content = exported(client)
    alice, bob = (bearer(stores, tenant) for tenant in ("alice", "bob"))
    ids = [guarded.post(IMPORT, content=content, headers={**ZIP, **by}).json()["id"] for by in (alice, bob)]
    assert len({*ids}) == 2
    for by, own, other in ((alice, *ids), (bob, *ids[::-1])):
        assert guarded.get(f"/v1/posteriors/{own}", headers=by).status_code == 200
        check_problem(guarded.get(f"/v1/posteriors/{other}/export", headers=by), 404, "posterior-not-found")
        check_problem(guarded.delete(f"/v1/posteriors/{other}", headers=by), 404, "posterior-not-found")
    reader = bearer(stores, "alice", "read")
    check_problem(guarded.post(IMPORT, content=content, headers={**ZIP, **reader}), 403, "scope-missing")
    assert guarded.get("/v1/usage", headers=alice).json()["quotas"]["bytes"]["used"] > 10_000


def test_an_import_is_repeated_with_its_key(client: httpx.Client) -> None:
    """The repeat with an Idempotency-Key has the first answer, 201; another body is refused."""
    _, content = exported(client)
    keyed = {**ZIP, "idempotency-key": "monday"}
    answers = [client.post(IMPORT, content=content, headers=keyed) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    check_problem(client.post(IMPORT, content=content + b"x", headers=keyed), 422, "idempotency-key-reused")


def test_imports_count_in_the_quotas(client: httpx.Client, stores: Stores) -> None:
    """429 beyond the bytes or the posteriors of the tenant."""
    path, content = exported(client)
    assert client.delete(client.get(path).json()["links"]["dataset"], params={"force": True}).status_code == 204
    with served(stores, quotas=f"*=bytes:{len(content) // 2}") as small:
        check_problem(small.post(IMPORT, content=content, headers=ZIP), 429, "quota-exceeded")
    assert files(stores) == []
    assert client.post(IMPORT, content=content, headers=ZIP).status_code == 201
    with served(stores, quotas=f"*=bytes:{len(content) + 1000}") as full:
        answer = full.post("/v1/datasets", json={"data": np.eye(40).tolist()})
        check_problem(answer, 429, "quota-exceeded")
    changed = members(content)
    changed["mean"][:, :2] += [1e-3, -1e-3]
    with served(stores, quotas="*=posteriors:1") as full:
        check_problem(full.post(IMPORT, content=written(changed), headers=ZIP), 429, "quota-exceeded")


def test_a_deleted_import_leaves_nothing(client: httpx.Client, stores: Stores) -> None:
    """DELETE removes record and file; the file can be imported again."""
    _, content = exported(client)
    url = client.post(IMPORT, content=content, headers=ZIP).json()["links"]["self"]
    assert client.delete(url).status_code == 204
    assert (client.get(url).status_code, files(stores)) == (404, [])
    assert client.post(IMPORT, content=content, headers=ZIP).status_code == 201


def test_a_damaged_file_is_a_problem_and_repaired_by_an_import(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No draw is made of changed bits; `glle scrub` names the posterior, and its exit code is 1."""
    _, content = exported(client)
    imported = client.post(IMPORT, content=content, headers=ZIP).json()
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)
    scrub = ["scrub"]
    assert main.main(scrub) == 0
    assert "1 data sets read; 0 damaged." in capsys.readouterr().out
    (file,) = files(stores)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    assert main.main(scrub) == 1
    assert f"{imported['id']} is damaged" in capsys.readouterr().out
    job = client.get(imported["links"]["arrays"] + "?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    check_problem(client.get(job["links"]["self"] + "/result"), 500, "posterior-damaged")
    assert client.post(IMPORT, content=content, headers=ZIP).status_code == 200
    assert main.main(scrub) == 0
