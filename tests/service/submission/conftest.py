"""A posterior as a worker stores it, and requests that create jobs; no worker runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.service.conftest import posterior_record, upload
from worker.base.clock import now_iso

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

POST_1 = "/v1/posteriors/post_1"


@pytest.fixture
def posterior(client: httpx.Client, stores: Stores) -> str:
    """The path of a posterior as a worker stores it."""
    members: dict[str, Any] = {"dataset": upload(client), "n": 40, "arrays": {"prior_factor": {}}, "created": now_iso()}
    stores.posteriors.create(posterior_record(**members))
    return POST_1
