"""Export of a posterior as one file: `glle.load` reads it, and its draws have the same bits."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
import pytest

import glle
from tests.service.conftest import check_problem
from tests.service.routes.posteriors.conftest import NPY, SHEET, fit_posterior, members, result_of

if TYPE_CHECKING:
    from pathlib import Path

    import httpx

    from worker.stores import Stores


@pytest.mark.parametrize("spec", [{}, {"method": "direct"}, {"standardize": "zscore", "noise": "auto"}], ids=str)
def test_an_exported_posterior_draws_the_same_bits_without_a_service(
    client: httpx.Client, stores: Stores, tmp_path: Path, spec: dict[str, str]
) -> None:
    """The loaded posterior has the arrays of the service, and equal draws; it places new points, given the data."""
    path = fit_posterior(client, **spec)
    record, answer = client.get(path).json(), client.get(path + "/export")
    assert answer.headers["content-disposition"] == f'attachment; filename="{record["id"]}.npz"'
    assert members(answer.content).keys() == {"head.json", *record["arrays"]}
    (tmp_path / "kept.npz").write_bytes(answer.content)
    loaded = glle.load(tmp_path / "kept.npz")
    for index, scale in ((0, 1.0), (5, 0.3)):
        drawn = client.get(result_of(stores, client.get(f"{path}/draws/{index}?scale={scale}&wait=0")), headers=NPY)
        np.testing.assert_array_equal(np.load(io.BytesIO(drawn.content))[0], loaded.draw(index, scale=scale).embedding)
    np.testing.assert_array_equal(loaded.transform(SHEET, SHEET[:5]), loaded.embedding[:5])


def test_an_export_is_revalidated(client: httpx.Client) -> None:
    """The ETag of an export gives 304, also after the posterior was renamed; npz is the only form."""
    path = fit_posterior(client)
    first = client.get(path + "/export")
    assert client.patch(path, json={"name": "kept"}).status_code == 200
    assert client.get(path + "/export", headers={"if-none-match": first.headers["etag"]}).status_code == 304
    check_problem(client.get(path + "/export", headers=NPY), 406, "not-acceptable")
