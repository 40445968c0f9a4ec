"""A posterior as a worker stores it, and requests that create jobs; no worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import NUMBERS, FitSpec
from tests.service.conftest import upload
from worker.base.clock import now_iso
from worker.storage.posteriors import ARRAYS, PosteriorRecord

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

POST_1 = "/v1/posteriors/post_1"
CREATING: dict[str, tuple[str, dict[str, Any]]] = {
    "draws": (POST_1 + "/draws", {"count": 8}),
    "transform": (POST_1 + "/transform", {"data": [[1.0, 2.0, 3.0]]}),
    "reconstructions": (POST_1 + "/reconstructions", {"count": 2}),
    "calibration": (POST_1 + "/calibration", {}),
    "fit": ("/v1/posteriors", {"n_neighbors": 5}),
    "advice": ("/v1/advice", {"n_neighbors": [5, 7]}),
}


@pytest.fixture
def posterior(client: httpx.Client, stores: Stores) -> str:
    """The path of a posterior as a worker stores it."""
    stores.posteriors.record(
        PosteriorRecord(
            draw_cost={"seconds": 0.01, "each_seconds": 0.004, "bytes": 1e7},
            id="post_1", dataset=upload(client), n=40, d=3,
            spec=FitSpec(n_neighbors=10).to_dict(), diagnostics={"notes": []},
            eigenvalues=[], seconds=0.1, arrays={"prior_factor": {}}, nbytes=0, job="job_1",
            provenance={"numbers": NUMBERS, ARRAYS: "0" * 64},
            created=now_iso(),
        )
    )  # fmt: skip
    return POST_1
