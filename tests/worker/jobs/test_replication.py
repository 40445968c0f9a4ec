"""Jobs that replicas have, before they are accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.base.problems import ProblemError
from worker.jobs import replication
from worker.jobs.replication import MARK, replicated

if TYPE_CHECKING:
    from worker.stores import Stores


def test_without_a_wish_nothing_is_asked(stores: Stores) -> None:
    """By default a job is accepted by its master alone."""
    replicated(stores.client, 0, "job_1")
    assert not stores.client.exists(MARK)


def test_a_job_that_is_on_no_replica_is_not_accepted(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server without replicas: the problem says how many have it, and to come again."""
    monkeypatch.setattr(replication, "WAIT_MS", 10)
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    with pytest.raises(ProblemError, match="0 of 1 replicas") as caught:
        replicated(stores.client, 1, job.id)
    assert (caught.value.problem.code, caught.value.problem.status) == ("not-replicated", 503)
    assert 0 < int(stores.client.ttl(MARK)) <= 60


def test_a_job_that_a_master_took_along_is_not_accepted(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """All replicas have what this master has: but it has not the job, which was written to another."""
    real = stores.client.pipeline

    def on_the_next_master(**options: bool) -> object:
        made = real(**options)
        monkeypatch.setattr(made, "wait", lambda *_: made.echo(2))
        return made

    monkeypatch.setattr(stores.client, "pipeline", on_the_next_master)
    job, _ = stores.jobs.create(kind="fit", claim="c", posterior="post_1", spec={}, total=1)
    replicated(stores.client, 2, job.id)
    stores.client.delete(f"glle:job:{job.id}")
    with pytest.raises(ProblemError, match="changed its master"):
        replicated(stores.client, 2, job.id)
