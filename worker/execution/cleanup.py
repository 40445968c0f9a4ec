"""What a task leaves of a posterior, or of a data set, that was deleted while it was at work: nothing.

A deletion takes the record first, then all that is kept about it; a task looks for the record last. So whoever of
the two comes second takes what the task has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.stores import Stores


def forget_gone(here: Stores, job_id: str) -> None:
    """Forget what is kept about the posterior and the data set of a job, where they are not there any more."""
    if (job := here.jobs.get(job_id)) is None:
        return
    if job.posterior is not None and not here.posteriors.exists(job.posterior):
        here.posteriors.forget(job.posterior, is_drawn=job.kind != "fit")  # a fit draws nothing
    if job.dataset is not None and not job.is_inline and here.datasets.get(job.dataset) is None:
        here.cache.forget(job.dataset)
