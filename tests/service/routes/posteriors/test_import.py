"""Export of a posterior as one file, and its import: equal draws without its data, refusals that leave nothing."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from service.cli import main
from tests.conftest import evict, stored_files
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import JSON, NPY, NPZ, SHEET, fit_posterior, result_of, run_draws
from tests.service.routes.posteriors.forged import IMPORT, exported_fit, import_file, members, pack_export
from tests.service.tenants import bearer, serve_stores
from worker.execution import tasks
from worker.records.ids import content_sha256

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores


def draw_of(client: httpx.Client, stores: Stores, path: str, index: int, scale: float = 1.0) -> bytes:
    """Return a draw as npy, made by a task."""
    answer = client.get(f"{path}/draws/{index}?scale={scale}&wait=0")
    return client.get(run_draws(stores, answer), headers=NPY).content


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"standardize": "zscore"}], ids=str)
def test_an_imported_posterior_draws_the_same_bits_without_its_data(
    client: httpx.Client, stores: Stores, spec: dict[str, str]
) -> None:
    """Draws equal those before, in a service without the data set, and again after an eviction of everything."""
    path, content = exported_from(client, **spec)
    record = client.get(path).json()
    before = [draw_of(client, stores, path, index, scale) for index, scale in ((0, 1.0), (5, 0.3))]
    assert client.delete(record["links"]["dataset"], params={"force": True}).status_code == 204
    answer = import_file(client, content)
    found = answer.json()
    assert (answer.status_code, answer.headers["location"]) == (201, found["links"]["self"])
    assert found["id"] != record["id"]
    for name in ("n", "d", "spec", "diagnostics", "eigenvalues", "arrays", "nbytes", "dataset"):
        assert found[name] == record[name], name
    url = found["links"]["self"]
    for _ in range(2):
        assert [draw_of(client, stores, url, index, scale) for index, scale in ((0, 1.0), (5, 0.3))] == before
        evict(stores, "")
    job = client.get(url + "/arrays?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    read = members(client.get(url + "/arrays", headers=NPZ).content)
    assert all(read[name].tobytes() == array.tobytes() for name, array in members(content).items() if name in read)
    assert set(read) == set(record["arrays"])
    again = import_file(client, content)
    assert (again.status_code, again.json()) == (200, found)


def test_the_export_of_an_import_is_the_same_posterior(client: httpx.Client, stores: Stores) -> None:
    """It names the same data, and imports under the same id; a deletion leaves no file, and can be followed by both."""
    content = exported_fit(client)
    first = import_file(client, content).json()
    job = client.get(first["links"]["export"]).json()
    tasks.fit(job["id"])
    again = client.get(first["links"]["export"]).content
    about = [json.loads(members(file)["export.json"].tobytes()) for file in (content, again)]
    assert about[0]["dataset"] == about[1]["dataset"]
    assert import_file(client, again).json()["id"] == first["id"]
    assert len(stored_files(stores)) == 1
    assert client.delete(first["links"]["self"]).status_code == 204
    assert (client.get(first["links"]["self"]).status_code, stored_files(stores)) == (404, [])
    assert import_file(client, content).status_code == 201


def test_analyses_on_the_data_name_the_missing_data_set(client: httpx.Client, stores: Stores) -> None:
    """They are 404 with its digest and size; after its upload they equal those of the fit, also if it is deleted."""
    path, content = exported_from(client)
    dataset = client.get(client.get(path).json()["links"]["dataset"]).json()
    rows = np.load(io.BytesIO(client.get(f"/v1/datasets/{dataset['id']}/data", headers=NPY).content))
    assert client.delete(f"/v1/datasets/{dataset['id']}", params={"force": True}).status_code == 204
    url = import_file(client, content).json()["links"]["self"]
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


def test_other_data_under_the_named_digest_are_refused(client: httpx.Client) -> None:
    """A file that names another data set of the tenant reaches compiled code with no data but its own."""
    other = client.post("/v1/datasets", json={"data": np.random.default_rng(1).normal(size=(60, 3)).tolist()}).json()
    about = {name: other[name] for name in ("id", "sha256", "n", "d", "dtype", "names")}
    url = import_file(client, pack_export(members(exported_fit(client)), dataset=about)).json()["links"]["self"]
    job = client.post(url + "/transform", json={"data": [[0.0, 0.0, 0.0]]}, headers=JSON).json()
    tasks.analyse(job["id"], 0)
    check_problem(client.get(job["links"]["self"] + "/result"), 422, "data-mismatch")


def test_large_files_and_other_media_are_refused(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """413 by the bytes sent and unpacked, 415 by the header, 422 beyond the limits of parameters."""
    content = exported_fit(client)
    check_problem(client.post(IMPORT, content=content, headers=JSON), 415, "unsupported-media-type")
    check_problem(import_file(client, content, **{"content-encoding": "gzip"}), 415, "unsupported-media-type")
    for settings, status, code in (
        ({"max_body": 10_000}, 413, "body-too-large"),
        ({"max_points": 50}, 422, "too-many-points"),
    ):
        with serve_stores(stores, **settings) as other:
            assert "GLLE_MAX" in check_problem(import_file(other, content), status, code)["remedy"]
    monkeypatch.setattr("service.submission.validation.MAX_NEIGHBORS", 5)
    check_problem(import_file(client, content), 422, "over-the-limit")
    monkeypatch.setattr("service.uploads.limits.INFLATION", 0)
    assert "GLLE_MAX_BODY" in check_problem(import_file(client, content), 413, "inflated-too-large")["remedy"]
    assert stored_files(stores) == []


def test_another_tenant_gets_another_id(client: httpx.Client, guarded_client: httpx.Client, stores: Stores) -> None:
    """Tenants neither share nor read each other's imports; a key to read cannot import."""
    content = exported_fit(client)
    alice, bob = (bearer(stores, tenant) for tenant in ("alice", "bob"))
    ids = [import_file(guarded_client, content, **by).json()["id"] for by in (alice, bob)]
    assert len({*ids}) == 2
    for by, own, other in ((alice, *ids), (bob, *ids[::-1])):
        assert guarded_client.get(f"/v1/posteriors/{own}", headers=by).status_code == 200
        check_problem(guarded_client.get(f"/v1/posteriors/{other}/export", headers=by), 404, "posterior-not-found")
    check_problem(import_file(guarded_client, content, **bearer(stores, "alice", "read")), 403, "scope-missing")
    assert guarded_client.get("/v1/usage", headers=alice).json()["quotas"]["bytes"]["used"] > 10_000


def test_an_import_is_repeated_with_its_key(client: httpx.Client) -> None:
    """The repeat with an Idempotency-Key has the first answer, 201; another body is refused."""
    content, key = exported_fit(client), {"idempotency-key": "monday"}
    answers = [import_file(client, content, **key) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json() == answers[1].json()
    check_problem(import_file(client, content + b"x", **key), 422, "idempotency-key-reused")


def test_imports_count_in_the_quotas(client: httpx.Client, stores: Stores) -> None:
    """429 beyond the bytes or the posteriors of the tenant."""
    content = exported_fit(client)
    with serve_stores(stores, quotas=f"*=bytes:{len(content) // 2}") as small:
        check_problem(import_file(small, content), 429, "quota-exceeded")
    assert stored_files(stores) == []
    assert import_file(client, content).status_code == 201
    changed = members(content)
    changed["mean"][:, :2] += [1e-3, -1e-3]
    with serve_stores(stores, quotas=f"*=bytes:{len(content) + 1000},posteriors:1") as full:
        check_problem(full.post("/v1/datasets", json={"data": np.eye(40).tolist()}), 429, "quota-exceeded")
        check_problem(import_file(full, pack_export(changed)), 429, "quota-exceeded")


def test_a_damaged_file_is_a_problem_and_repaired_by_an_import(
    client: httpx.Client, stores: Stores, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No draw is made of changed bits; `glle scrub` names the posterior, and its exit code is 1."""
    content = exported_fit(client)
    found = import_file(client, content).json()
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)
    assert main.main(["scrub"]) == 0
    assert "0 data sets read; 0 damaged." in capsys.readouterr().out
    (file,) = stored_files(stores)
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)
    assert main.main(["scrub"]) == 1
    assert f"{found['id']} is damaged" in capsys.readouterr().out
    job = client.get(found["links"]["arrays"] + "?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    check_problem(client.get(job["links"]["self"] + "/result"), 500, "posterior-damaged")
    assert import_file(client, content).status_code == 200
    assert main.main(["scrub"]) == 0


def exported_from(client: httpx.Client, **spec: Any) -> tuple[str, bytes]:
    """Return the path and the exported file of a posterior that stays."""
    path = fit_posterior(client, **spec)
    return path, client.get(path + "/export").content


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"noise": "tangent"}], ids=str)
def test_an_exported_posterior_draws_the_same_bits(
    client: httpx.Client, stores: Stores, tmp_path: Path, spec: dict[str, str]
) -> None:
    """Draws of the loaded file equal those of the service; the file names its data and the digest of its arrays."""
    path = fit_posterior(client, **spec)
    answer = client.get(path + "/export")
    (tmp_path / "kept.npz").write_bytes(answer.content)
    loaded = glle_engine.load(tmp_path / "kept.npz")
    for index, scale in ((3, 1.0), (4, 0.3)):
        draw = client.get(run_draws(stores, client.get(f"{path}/draws/{index}?scale={scale}&wait=0")), headers=NPY)
        np.testing.assert_array_equal(np.load(io.BytesIO(draw.content))[0], loaded.draw(index, scale=scale).embedding)
    np.testing.assert_array_equal(loaded.transform(SHEET, SHEET[:5]), loaded.embedding[:5])
    record = client.get(path).json()
    with np.load(tmp_path / "kept.npz", allow_pickle=False) as file:
        about = json.loads(file["export.json"].tobytes())
        names = set(file.files)
    assert names == {"head.json", "export.json", *record["arrays"]}
    assert about["export"] == 1
    assert about["arrays_sha256"] == content_sha256({}, loaded.arrays())
    assert about["posterior"]["id"] == record["id"]
    assert about["dataset"]["sha256"] == client.get(record["links"]["dataset"]).json()["sha256"]
    assert answer.headers["content-disposition"] == f'attachment; filename="{record["id"]}.npz"'


def test_an_export_is_revalidated_and_refitted(client: httpx.Client, stores: Stores) -> None:
    """304 for its ETag, also under another name; 202 with the job if the arrays were evicted, and then equal bytes."""
    path = fit_posterior(client)
    first = client.get(path + "/export")
    assert client.patch(path, json={"name": "kept"}).status_code == 200
    assert client.get(path + "/export", headers={"if-none-match": first.headers["etag"]}).status_code == 304
    evict(stores, "posterior:")
    again = client.get(path + "/export")
    assert again.status_code == 202
    tasks.fit(again.json()["id"])
    assert client.get(path + "/export?wait=5").content == first.content


def test_impossible_exports_are_refused(client: httpx.Client) -> None:
    """An unknown posterior, and another media type."""
    check_problem(client.get("/v1/posteriors/post_none/export"), 404, "posterior-not-found")
    check_problem(client.get(fit_posterior(client) + "/export", headers=NPY), 406, "not-acceptable")
