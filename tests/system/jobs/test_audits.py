"""An audit while a worker computes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from glle import Client
from tests.conftest import until
from tests.system.conftest import synthetic

if TYPE_CHECKING:
    import httpx

    from tests.system.conftest import Up


def test_a_running_audit_states_what_it_has_found(up: Up, client: httpx.Client) -> None:
    """Statements of a running audit are marked as preliminary, and their level is "unknown"; the final ones are not."""
    dataset = synthetic(client, 900, seed=32)
    body = {"dataset": dataset, "method": "isomap", "parameters": {"n_neighbors": 12}}
    job = client.post("/v1/audits", json=body).json()
    with Client(up.url) as glle_client:
        running = glle_client.job(job["id"])
        seen: list[Any] = [None]

        def has_stated() -> bool:
            seen.append(running.statements())
            return seen[-1] is not None

        until(has_stated)
        first = seen[-1]
        assert (first.is_preliminary, first.level) == (True, "unknown")
        assert first.verdict.startswith("Preliminary: ")
        final = running.result()
        last: Any = running.statements()
        assert last.verdict == final.verdict
    path = f"{job['links']['self']}/result?points=0"
    stated = client.get(path).json()
    assert (stated["level"], stated["verdict"]) == (final.level, final.verdict)
    assert (stated["is_preliminary"], final.is_preliminary) == (False, False)
    assert "Preliminary" not in final.verdict
    assert final.level != "unknown"
