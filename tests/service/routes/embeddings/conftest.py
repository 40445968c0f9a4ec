"""A data set to embed, and the tasks of its jobs run in the test process, without workers."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any

import pytest

from glle_engine import manifolds
from glle_engine.methods import METHODS

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx


N = 80
SHEET = manifolds.make("s_curve", N, seed=2)
PCA = METHODS["pca"]


@pytest.fixture
def sheet(client: httpx.Client) -> str:
    """A synthetic data set with its true coordinates."""
    body = {"name": "s_curve", "n": N, "seed": 2}
    return str(client.post("/v1/datasets/synthetic", json=body).json()["id"])


@pytest.fixture
def replace_method(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Register a changed PCA under a name."""

    def register(name: str, **changes: Any) -> None:
        changed = copy(PCA)
        vars(changed).update({"name": name, **changes})
        monkeypatch.setitem(METHODS, name, changed)

    return register


def embed(client: httpx.Client, dataset: str, method: str = "pca", query: str = "", **body: Any) -> httpx.Response:
    """Post an embedding."""
    return client.post(f"/v1/embeddings{query}", json={"dataset": dataset, "method": method, **body})
