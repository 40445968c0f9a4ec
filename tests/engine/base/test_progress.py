"""The clock of the stages."""

from __future__ import annotations

from glle_engine.base.progress import StageClock


def test_each_stage_gets_its_own_time() -> None:
    """A call ends a block of its stage; one with nothing done begins it, and the rest goes to the last."""
    now = iter([0.0, 1.0, 3.0, 3.5, 7.0, 8.0])
    reports: list[tuple[int, int, str]] = []
    clock = StageClock(lambda *call: reports.append(call), lambda: next(now))
    clock(1, 2, "neighbors")
    clock(2, 2, "neighbors")
    clock(0, 1, "embedding")
    clock(1, 1, "embedding")
    assert clock.stop() == {"neighbors": 3.5, "embedding": 4.5}
    assert reports == [(1, 2, "neighbors"), (2, 2, "neighbors"), (0, 1, "embedding"), (1, 1, "embedding")]
