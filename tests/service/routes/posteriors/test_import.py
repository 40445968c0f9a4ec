"""Export of a posterior as one file, and its import: equal draws without its data, refusals that leave nothing."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle_engine
from service.cli import main
from tests.conftest import evict, stored_files
from tests.service.conftest import check_problem, upload
from tests.service.routes.posteriors.conftest import JSON, NPY, NPZ, SHEET, fit_posterior, members, npz, result_of
from tests.service.routes.posteriors.forged import IMPORT, exported_fit, import_file, pack_export
from tests.service.tenants import bearer, serve_stores
from worker.execution import tasks
from worker.records.ids import content_sha256
from worker.storage.datasets import Table

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores


DRAWS = ((0, 1.0), (5, 0.3))


def draw_of(client: httpx.Client, stores: Stores, path: str, index: int, scale: float = 1.0) -> bytes:
    """Return a draw as npy, made by a task."""
    answer = client.get(f"{path}/draws/{index}?scale={scale}&wait=0")
    return client.get(result_of(stores, answer), headers=NPY).content


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"standardize": "zscore", "noise": "auto"}], ids=str)
def test_an_exported_posterior_draws_the_same_bits_without_its_data(
    client: httpx.Client, stores: Stores, tmp_path: Path, spec: dict[str, str]
) -> None:
    """Draws of the file, in Python and in a service without the data set, equal those before, also when evicted."""
    path = fit_posterior(client, **spec)
    record, answer = client.get(path).json(), client.get(path + "/export")
    before = [draw_of(client, stores, path, index, scale) for index, scale in DRAWS]
    (tmp_path / "kept.npz").write_bytes(answer.content)
    loaded = glle_engine.load(tmp_path / "kept.npz")
    for (index, scale), draw in zip(DRAWS, before, strict=True):
        np.testing.assert_array_equal(np.load(io.BytesIO(draw))[0], loaded.draw(index, scale=scale).embedding)
    np.testing.assert_array_equal(loaded.transform(SHEET, SHEET[:5]), loaded.embedding[:5])
    content = members(answer.content)
    about = json.loads(content["export.json"].tobytes())
    assert content.keys() == {"head.json", "export.json", *record["arrays"]}
    assert (about["export"], about["posterior"]["id"]) == (1, record["id"])
    assert about["arrays_sha256"] == content_sha256({}, loaded.arrays())
    assert about["dataset"]["sha256"] == client.get(record["links"]["dataset"]).json()["sha256"]
    assert answer.headers["content-disposition"] == f'attachment; filename="{record["id"]}.npz"'
    assert client.delete(record["links"]["dataset"], params={"force": True}).status_code == 204
    imported = import_file(client, answer.content)
    found = imported.json()
    assert (imported.status_code, imported.headers["location"]) == (201, found["links"]["self"])
    assert found["id"] != record["id"]
    if "noise" in spec:  # the file has what was fitted: the law that was chosen
        record["spec"]["noise"] = record["diagnostics"]["figures"]["noise"]["law"]
    for name in ("n", "d", "spec", "diagnostics", "eigenvalues", "arrays", "nbytes", "dataset"):
        assert found[name] == record[name], name
    url = found["links"]["self"]
    for _ in range(2):
        assert [draw_of(client, stores, url, index, scale) for index, scale in DRAWS] == before
        evict(stores, "")
    job = client.get(url + "/arrays?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    read = npz(client.get(url + "/arrays", headers=NPZ))
    assert read.keys() == record["arrays"].keys()
    assert all(array.tobytes() == content[name].tobytes() for name, array in read.items())
    again = import_file(client, answer.content)
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
    content = exported_fit(client)
    dataset = json.loads(members(content)["export.json"].tobytes())["dataset"]
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
    assert upload(client, SHEET) == dataset["id"]
    job = client.post(url + "/transform", json={"data": SHEET[:3].tolist()})
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
    """No draw is made of changed bits; `glle scrub` names damaged posteriors and data sets, and its exit code is 1."""
    content = exported_fit(client)
    found = import_file(client, content).json()
    (file,) = stored_files(stores)
    table = Table(values=SHEET, source={"kind": "test"})
    datasets = [stores.datasets.of(tenant).add(table)[0] for tenant in ("alice", "default")]
    for variable, value in stores.settings.to_env().items():
        monkeypatch.setenv(variable, value)
    assert main.main(["scrub"]) == 0
    assert "2 data sets read; 0 damaged." in capsys.readouterr().out
    for damaged in (file, stores.datasets.files.bucket.local_path(datasets[0].stored["values"].path)):
        raw = bytearray(damaged.read_bytes())
        raw[len(raw) // 2] ^= 1
        damaged.write_bytes(raw)
    assert main.main(["scrub"]) == 1
    printed = capsys.readouterr().out
    assert f"{found['id']} is damaged" in printed
    assert [f"{dataset.id} is damaged" in printed for dataset in datasets] == [True, False]
    job = client.get(found["links"]["arrays"] + "?wait=0", headers=NPZ).json()
    tasks.fit(job["id"])
    check_problem(client.get(job["links"]["self"] + "/result"), 500, "posterior-damaged")
    assert import_file(client, content).status_code == 200
    assert main.main(["scrub"]) == 1
    assert found["id"] not in capsys.readouterr().out


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
    check_problem(client.get(path + "/export", headers=NPY), 406, "not-acceptable")
