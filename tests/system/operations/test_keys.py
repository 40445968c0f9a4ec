"""API keys and tenants with workers: results belong to the tenant of the request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import httpx
import pytest

from service.cli import main
from tests.conftest import until
from tests.system.conftest import fitted, synthetic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.system.conftest import Limited


@pytest.fixture
def keys(limited: Limited, capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[..., str]]:
    """Return a function that runs `glle keys` beside the service; later the service is open again."""
    data = limited.log.parent / "data"

    def run(*arguments: str) -> str:
        assert main.main(["keys", *arguments, "--data-dir", str(data)]) == 0
        return capsys.readouterr().out.strip()

    yield run
    (data / "keys.json").unlink()
    until(lambda: httpx.get(limited.url + "/v1/info").status_code == 200)


def test_results_of_workers_belong_to_the_tenant(limited: Limited, keys: Callable[..., str]) -> None:
    """The first key closes a running service, results stay invisible to another tenant, and a revoked key fails."""
    assert httpx.get(limited.url + "/v1/info").status_code == 200
    headers = [
        {"Authorization": f"Bearer {keys('create', '--tenant', tenant, '--scope', 'write')}"}
        for tenant in ("alice", "bob")
    ]
    until(lambda: httpx.get(limited.url + "/v1/info").status_code == 401, seconds=5)
    with (
        httpx.Client(base_url=limited.url, headers=headers[0], timeout=60) as alice,
        httpx.Client(base_url=limited.url, headers=headers[1], timeout=60) as bob,
    ):
        until(lambda: alice.get("/v1/info").status_code == bob.get("/v1/info").status_code == 200, seconds=5)
        posterior = fitted(alice, synthetic(alice, 200))
        until(lambda: alice.get(f"{posterior}/draws/0").status_code == 200)
        assert bob.get(f"{posterior}/draws/0").status_code == 404
        assert fitted(bob, synthetic(bob, 200)) != posterior
        for path in ("/v1/datasets", "/v1/posteriors", "/v1/jobs"):
            mine, others = ({item["id"] for item in by.get(path).json()["items"]} for by in (alice, bob))
            assert mine
            assert others
            assert not mine & others
        keys("revoke", headers[0]["Authorization"].split("_")[1])
        until(lambda: alice.get("/v1/info").status_code == 401, seconds=5)
        assert bob.get("/v1/info").status_code == 200
