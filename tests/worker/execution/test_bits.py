"""Bits of results: a machine with other bits starts no worker, and an id never has two contents."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import glle_engine
from glle_engine import NUMBERS
from glle_engine.posterior.fingerprint import PINNED
from tests.conftest import error_of
from tests.worker.execution.workers import draws_job, fit_job
from worker.base.settings import Settings, SettingsError
from worker.base.versions import numbers_of
from worker.execution import tasks, worker
from worker.records.draws import DrawAddress
from worker.stores import Stores

if TYPE_CHECKING:
    from glle_engine import Posterior

OTHER = "0123456789abcdef"
KEY = DrawAddress(0, 0, 1.0, "posterior", "none")
pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize(
    ("own", "allowed", "starts"),
    [(PINNED, "", True), (OTHER, OTHER, True), (OTHER, "", False), (PINNED, OTHER, False), ("f" * 16, OTHER, False)],
)
def test_a_worker_with_other_bits_than_its_deployment_does_not_start(
    monkeypatch: pytest.MonkeyPatch, own: str, allowed: str, *, starts: bool
) -> None:
    """It names its fingerprint, the expected one and the remedy."""
    monkeypatch.setattr(worker, "fingerprint", lambda: own)
    settings = Settings(allow_other_bits=allowed)
    if starts:
        worker.require_bits(settings)
        return
    with pytest.raises(SettingsError, match=f"fingerprint {own}, those of the deployment {allowed or PINNED}") as error:
        worker.require_bits(settings)
    assert ("without GLLE_ALLOW_OTHER_BITS" if own == PINNED else f"GLLE_ALLOW_OTHER_BITS={own}") in str(error.value)


@pytest.mark.parametrize("value", ["0123", "0123456789ABCDEF", OTHER + "0"])
def test_a_value_that_is_no_fingerprint_is_refused(stores: Stores, value: str) -> None:
    """No process connects with it, so that it reaches no id."""
    with pytest.raises(SettingsError, match="is no fingerprint"):
        Stores.connect(replace(stores.settings, allow_other_bits=value))


def test_results_of_other_bits_have_other_numbers(stores: Stores) -> None:
    """Jobs and posteriors carry the fingerprint; one without it neither draws from them nor runs the jobs."""
    with_other_bits = Stores.connect(replace(stores.settings, allow_other_bits=OTHER))
    numbers = numbers_of(with_other_bits.settings)
    assert (stores.numbers, numbers) == (NUMBERS, f"{NUMBERS}+{OTHER}")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tasks, "process_stores", lambda: with_other_bits)
        job = fit_job(with_other_bits)
        tasks.fit(job.id)
        record = with_other_bits.posteriors.fetch(job.subject)
        assert (job.numbers, record.numbers) == (numbers, numbers)
        again = fit_job(with_other_bits)
    with_other_bits.close()
    tasks.fit(again.id)
    drawing, _ = draws_job(stores, record.id, count=3)
    tasks.draw(drawing.id, 0)
    for id_ in (again.id, drawing.id):
        error = error_of(stores, id_)
        assert (error.code, error.details) == ("other-numbers", {"numbers": numbers, "own": NUMBERS})


def test_a_fit_with_other_bits_is_refused_under_the_old_id(
    stores: Stores, posterior_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Drawing from an evicted posterior with a new digest fails with the remedy and caches nothing."""
    original = glle_engine.fit

    def fit_other_bits(*args: Any, **more: Any) -> Posterior:
        posterior = original(*args, **more)
        return replace(posterior, embedding=np.nextafter(posterior.embedding, np.inf))

    monkeypatch.setattr(glle_engine, "fit", fit_other_bits)
    stores.cache.client.flushall()
    job, _ = draws_job(stores, posterior_id, count=1)
    tasks.draw(job.id, 0)
    error = error_of(stores, job.id)
    assert (error.code, error.status) == ("other-bits", 409)
    assert f"DELETE /v1/posteriors/{posterior_id}" in error.remedy
    assert stores.posteriors.load(posterior_id) is None
    again = fit_job(stores)
    tasks.fit(again.id)
    error = error_of(stores, again.id)
    assert error.code == "other-bits"


def test_arrays_of_another_digest_count_as_evicted(stores: Stores, posterior_id: str) -> None:
    """Arrays of a concurrent fit with other bits are never read for the recorded fit."""
    record = stores.posteriors.fetch(posterior_id)
    other_record = replace(record, provenance={**record.provenance, "arrays_sha256": "0" * 64})
    assert stores.posteriors.arrays(record) is not None
    assert stores.posteriors.entry_sha256(record) is not None
    assert stores.posteriors.arrays(other_record) is None
    assert stores.posteriors.entry_sha256(other_record) is None
    assert stores.posteriors.load(posterior_id, "0" * 64) is None
    assert stores.posteriors.load(posterior_id, record.arrays_sha256) is not None
