"""Export of a posterior as one file, which the engine reads without a service."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle_engine
from tests.conftest import evict
from tests.service.routes.posteriors.conftest import NPY, SHEET, check_problem, drawn, fitted
from worker.execution import tasks
from worker.records.ids import content_sha256

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"noise": "tangent"}], ids=str)
def test_an_exported_posterior_draws_the_same_bits(
    client: httpx.Client, stores: Stores, tmp_path: Path, spec: dict[str, str]
) -> None:
    """Draws of the loaded file equal those of the service; the file names its data and the digest of its arrays."""
    path = fitted(client, **spec)
    answer = client.get(path + "/export")
    (tmp_path / "kept.npz").write_bytes(answer.content)
    loaded = glle_engine.load(tmp_path / "kept.npz")
    for index, scale in ((3, 1.0), (4, 0.3)):
        draw = client.get(drawn(stores, client.get(f"{path}/draws/{index}?scale={scale}&wait=0")), headers=NPY)
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
    path = fitted(client)
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
    check_problem(client.get(fitted(client) + "/export", headers=NPY), 406, "not-acceptable")
