"""A burst of posts: bounded jobs, bounded memory, a live service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qa.load import burst
from tests.conftest import until
from tests.system.conftest import ONE_EACH, running
from worker.execution import process_guard

if TYPE_CHECKING:
    from pathlib import Path

MAX_JOBS = 20


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_a_burst_is_refused_with_retry_after_and_loses_nothing(tmp_path: Path) -> None:
    """Posts are refused, accepted jobs succeed, memory grows with them alone, and /livez answers throughout."""
    with running(tmp_path, **ONE_EACH, GLLE_MAX_JOBS=str(MAX_JOBS)) as up:
        outcome = burst.run(up, posts=300, clients=60)
        assert outcome.faults == []
        assert outcome.answers[503, "too-many-jobs"] > 0
        assert outcome.answers[202, ""] + outcome.answers[201, ""] >= MAX_JOBS
        assert outcome.alive
        until(lambda: not burst.unfinished(up, outcome))
