"""A burst of posts: bounded jobs, bounded memory, a live service."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from qa.load import burst
from tests.conftest import until
from tests.system.conftest import MAX_JOBS
from worker.execution import process_guard

if TYPE_CHECKING:
    from tests.system.conftest import Up


@pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc")
def test_a_burst_is_refused_with_retry_after_and_loses_nothing(limited: Up) -> None:
    """Posts are refused, accepted jobs succeed, memory grows with them alone, and /livez answers throughout."""
    outcome = burst.run(limited, posts=120, clients=40)
    assert outcome.faults == []
    assert outcome.answers[429, "quota-exceeded"] > 0
    assert outcome.answers[202, ""] + outcome.answers[201, ""] >= MAX_JOBS
    assert outcome.alive
    until(lambda: not burst.unfinished(limited, outcome))
