"""Fits with `noise="auto"` over HTTP: the record keeps the request, the figures name the law."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np

import glle_engine
from tests.conftest import evict
from tests.service.conftest import upload
from tests.service.routes.posteriors.conftest import NPY, SHEET, drawn, fitted
from worker.execution import tasks

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores


def test_the_answer_names_the_chosen_law(client: httpx.Client, stores: Stores) -> None:
    """The same bits as the engine's, also after an eviction; the same request has the same posterior."""
    path = fitted(client, noise="auto")
    record, expected = client.get(path).json(), glle_engine.fit(SHEET, noise="auto")
    assert record["spec"] == {**expected.spec.to_dict(), "noise": "auto"}
    figures = record["diagnostics"]["figures"]
    assert figures["noise"] == expected.diagnostics.figures["noise"]
    assert figures["noise"]["law"] == expected.spec.noise
    assert [note["code"] for note in record["diagnostics"]["notes"]].count("noise-chosen") == 1
    body = {"dataset": upload(client, SHEET), "noise": "auto"}
    assert client.post("/v1/posteriors", json=body).json()["id"] == record["id"]
    law = client.post("/v1/posteriors", json={**body, "noise": expected.spec.noise}).json()
    assert law["links"]["posterior"] != path
    before = client.get(path + "/arrays?name=embedding", headers=NPY).content
    np.testing.assert_array_equal(np.load(io.BytesIO(before)), expected.embedding)
    evict(stores, "posterior:")
    again = client.get(path + "/arrays?name=embedding", headers=NPY)
    tasks.fit(again.json()["id"])
    assert client.get(path + "/arrays?name=embedding", headers=NPY).content == before
    draw = client.get(drawn(stores, client.get(f"{path}/draws/3?wait=0")), headers=NPY)
    np.testing.assert_array_equal(np.load(io.BytesIO(draw.content))[0], expected.draw(3).embedding)


def test_an_import_has_the_chosen_law(client: httpx.Client) -> None:
    """A file holds what was fitted, so that the law is its noise and the figures of the choice stay."""
    path = fitted(client, noise="auto")
    record = client.get(path).json()
    content = client.get(path + "/export").content
    imported = client.post("/v1/posteriors/import", content=content, headers={"content-type": "application/zip"}).json()
    law = record["diagnostics"]["figures"]["noise"]["law"]
    assert imported["spec"] == {**record["spec"], "noise": law}
    assert imported["diagnostics"] == record["diagnostics"]
