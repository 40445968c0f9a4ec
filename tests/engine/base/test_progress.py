"""What `on_progress` raises leaves a long computation, and the clock of its stages."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from glle_engine import fit, manifolds
from glle_engine.base.progress import StageClock
from glle_engine.eigen.leading import leading_eigenpairs
from glle_engine.methods import method
from glle_engine.posterior.summary import summarize
from tests.engine.conftest import bent_sheet

SHEET, CURVE = bent_sheet(200), manifolds.make("s_curve", 400, seed=1).X
Stop = Callable[[int, int, str], None]


def embedding(name: str, n: int = 400) -> Callable[[Stop], Any]:
    """Return the embedding of a curve as a function of `on_progress`."""
    return lambda stop: method(name).embed(CURVE[:n], on_progress=stop)


def summary(stop: Stop) -> Any:
    """Summarize draws."""
    posterior = fit(SHEET)
    return summarize(list(posterior.draws(5)), posterior.embedding, on_progress=stop)


@pytest.mark.parametrize(
    ("call", "stage", "number"),
    [
        *((lambda stop: fit(SHEET, landmarks=90, on_progress=stop), stage, 1) for stage in ("landmarks", "placing")),
        (lambda stop: fit(SHEET, on_progress=stop), "weights", 1),
        (summary, "stability", 2),
        (
            lambda stop: leading_eigenpairs(np.cov(np.random.default_rng(0).random((700, 900))), 3, stop),
            "eigenvectors",
            3,
        ),
        (embedding("isomap"), "shortest paths", 1),
        (embedding("ltsa"), "patches", 1),
        (embedding("hessian-lle"), "embedding", 1),
        *((embedding(name, 100), "descent", 2) for name in ("sne", "t-sne")),
    ],
)
def test_on_progress_can_cancel(call: Callable[[Stop], Any], stage: str, number: int) -> None:
    """The report of a stage with this number is the last one, before the stage has ended."""
    reports: list[tuple[int, int]] = []

    def stop(done: int, total: int, now: str) -> None:
        if now == stage:
            reports.append((done, total))
            if len(reports) == number:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        call(stop)
    assert len(reports) == number
    assert stage != "descent" or 0 < reports[-1][0] < reports[-1][1]


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
