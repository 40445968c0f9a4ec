"""Expired records and retained records, by the ledger's clock."""

from __future__ import annotations

import random
import threading
import time
from datetime import UTC, datetime

import httpx
import pytest

from qa.load.client import Requester
from qa.load.content import Content, Fit
from qa.load.following import ServerDataset
from qa.load.ledger import Ledger
from qa.load.user import User

TTL = 60.0
DATA = Content(1)


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> User:
    """Return a user of a service without records."""

    def gone(_: Requester, operation: str, path: str, **_options: object) -> httpx.Response:
        what = "embedding" if "coordinates" in operation else "job"
        fields = {"type": f"urn:glle:problem:{what}-not-found"}
        return httpx.Response(404, json=fields, request=httpx.Request("GET", f"http://127.0.0.1{path}"))

    monkeypatch.setattr(Requester, "ask", gone)
    ledger, rng = Ledger(ttl=TTL), random.Random(0)  # noqa: S311 # not for secrets
    requester = Requester(["http://127.0.0.1"], ledger, rng, 0.0, threading.Event())
    return User(requester, ledger, rng, [], [], {DATA: ServerDataset("ds_1")})


def _ago(seconds: float) -> str:
    return datetime.fromtimestamp(time.time() - seconds, UTC).isoformat()


@pytest.mark.parametrize(
    ("result", "requested", "faults"),
    [
        ({"status": "running"}, TTL + 1, 0),
        ({"status": "running"}, TTL - 1, 1),
        ({"status": "succeeded", "finished": TTL + 1}, TTL - 1, 0),
        ({"status": "succeeded", "finished": TTL - 1}, TTL - 1, 1),
    ],
)
@pytest.mark.parametrize("action", ["_follow", "fetch", "_cancel"])
def test_job_record_may_expire_after_its_end(
    user: User, action: str, result: dict[str, object], requested: float, faults: int
) -> None:
    """A record may expire one retention after the last open state, not before."""
    user.own = [DATA]
    job = user.ledger.accepted("job_1", Fit(DATA, 8))
    finished = result.get("finished")
    body = {**result, "finished": None if finished is None else _ago(float(str(finished)))}
    user.ledger.record(job, body, time.time() - requested)
    user.jobs = {job.id: job}
    getattr(user, action)(*([job] if action == "fetch" else []))
    assert len(user.ledger.faults) == faults
    assert (job.id in user.jobs) == bool(faults)


def test_without_retention_limit_records_must_exist(user: User) -> None:
    """With a retention of days, a job must be kept."""
    user.ledger.ttl = float("inf")
    job = user.ledger.accepted("job_1", Fit(DATA, 8))
    user.jobs = {job.id: job}
    user._follow()
    assert len(user.ledger.faults) == 1
