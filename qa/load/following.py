"""Job follower: it polls jobs to their end and enters their results into the ledger."""

from __future__ import annotations

import io
import zipfile
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from qa.load.content import Artifact, Content, Embedding, Fit, Summary, dataset_of
from qa.load.ledger import ENDED, Accepted
from tests.system.arrays import from_npy

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import httpx

    from qa.load.client import Requester
    from qa.load.ledger import Ledger

NPY, NPZ, JSON = "application/x-npy", "application/zip", "application/json"
MAX_OPEN = 12  # limit of followed jobs
IN_ARRAYS = ("mean", "neighbors", "embedding", "eigenvalues")  # limit of compared arrays of a posterior


@dataclass
class ServerDataset:
    """An existing data set, with the ids of its posteriors and embeddings."""

    id: str
    fits: dict[Fit, str] = field(default_factory=dict)
    embeddings: dict[Embedding, str] = field(default_factory=dict)


@dataclass
class Follower:
    """Follows accepted jobs to their end and records their results.

    Parameters
    ----------
    own, shared
        Temporary data sets of this user, and permanent shared ones.

    """

    requester: Requester
    ledger: Ledger
    rng: random.Random
    own: list[Content]
    shared: list[Content]
    datasets: dict[Content, ServerDataset] = field(default_factory=dict)
    jobs: dict[str, Accepted] = field(default_factory=dict)  # followed jobs
    about: dict[Content, list[Accepted]] = field(default_factory=dict)  # jobs on this user's data sets

    def _fitted(self, artifact: Fit, result: dict[str, Any]) -> None:
        id_ = result["id"]
        dataset = self.datasets[artifact.content]
        if result["dataset"] != dataset.id or result["spec"]["n_neighbors"] != artifact.n_neighbors:
            self.ledger.fault(f"{id_} is not what was asked for: {artifact}")
        dataset.fits[artifact] = id_
        self.ledger.record_created(f"/v1/posteriors/{id_}", artifact)

    def _follow(self) -> None:
        """Poll a job, and fetch its result once it has ended."""
        if not self.jobs:
            return
        job = self.jobs[self.rng.choice(list(self.jobs))]
        answer = self.requester.ask("GET job", f"/v1/jobs/{job.id}?wait={self.rng.choice([0, 1])}")
        if answer is None or self._has_expired(answer, job) or not self._is(answer, job.artifact, 200):
            return
        body = answer.json()
        self.ledger.record(job, body, answer.extensions["requested_at"])
        if body["status"] not in ENDED:
            return
        if body["status"] == "succeeded" and not job.is_doomed:
            self.fetch(job)
        self.judge(job)
        self.jobs.pop(job.id, None)

    def fetch(self, job: Accepted) -> bool:
        """Fetch a job's result; return False if the service has to compute it again."""
        media = {Summary: NPZ, Fit: JSON}.get(type(job.artifact), NPY)
        answer = self.requester.ask("GET result", f"/v1/jobs/{job.id}/result", headers={"Accept": media})
        if answer is None or self._has_expired(answer, job) or not self._is(answer, job.artifact, 200, 202):
            return False
        if answer.status_code == 202:
            return False
        if isinstance(job.artifact, Fit):
            if job.artifact.content in self.datasets:
                self._fitted(job.artifact, answer.json())
        elif isinstance(job.artifact, Summary):
            self.arrays(answer, job.artifact)
        else:
            self.array(answer, job.artifact, "embedding")
        return True

    def judge(self, job: Accepted) -> None:
        """Check the end of a job; a failure is allowed only if its workers were killed."""
        if job.status == "cancelled" and not (job.is_cancelled or job.is_doomed):
            self.ledger.fault(f"{job.id} was cancelled without a request")
        is_right = job.is_doomed or job.error.endswith("worker-lost")
        if job.status == "failed" and not is_right:
            self.ledger.fault(f"{job.id} failed with {job.error}: {job.artifact}")

    def _doom(self, is_about: Callable[[Artifact], bool]) -> None:
        """Record that jobs may fail because their subject is being deleted."""
        for content in list(self.about):
            for job in self.about[content]:
                job.is_doomed = job.is_doomed or is_about(job.artifact)
            if content not in self.datasets:  # the data set itself is deleted
                del self.about[content]

    def _follow_later(self, answer: httpx.Response, artifact: Artifact) -> None:
        body = answer.json()
        job = self.ledger.accepted(body["id"], artifact)
        self.ledger.record(job, body, answer.extensions["requested_at"])
        self.jobs[job.id] = job
        if dataset_of(artifact) in self.own:
            self.about.setdefault(dataset_of(artifact), []).append(job)
        if len(self.jobs) > MAX_OPEN:
            self.jobs.pop(next(iter(self.jobs)))

    def _maybe_follow(self, answer: httpx.Response, artifact: Artifact, fit: Fit) -> None:
        """Follow the job of a 202 answer, or the fit that must be repeated first."""
        artifact = fit if answer.json()["kind"] == "fit" else artifact
        self._follow_later(answer, artifact)

    def _has_expired(self, answer: httpx.Response, job: Accepted) -> bool:
        """Return whether a job's record has expired; expired jobs are not followed."""
        if not is_missing(answer, "job") or self.ledger.is_retained(job.open_at):
            return False
        self.jobs.pop(job.id, None)
        return True

    def _is(self, answer: httpx.Response, artifact: Artifact, *statuses: int) -> bool:
        """Return whether an answer has an expected status; any other status but 503 is a fault."""
        if answer.status_code in statuses or answer.extensions.get("deleted_before"):
            return answer.status_code in statuses or 204 in statuses
        if answer.status_code != 503:
            request = f"{answer.request.method} {answer.request.url.raw_path.decode()}"
            self.ledger.fault(f"{request}: {answer.status_code} {answer.text[:300]} ({artifact})")
        return False

    def array(self, answer: httpx.Response, artifact: Artifact, name: str) -> None:
        """Record the array of an npy or JSON answer."""
        if answer.headers["content-type"] == NPY:
            array = from_npy(answer.content)
        else:
            body = answer.json()
            array = np.array(body["data"], body["dtype"]).reshape(body["shape"])
        self.ledger.received_array(artifact, name, array)

    def arrays(self, answer: httpx.Response, artifact: Artifact) -> None:
        """Record the arrays of an npz answer."""
        with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
            for member in archive.namelist():
                name = member.removesuffix(".npy")
                if not isinstance(artifact, Fit) or name in IN_ARRAYS:
                    self.ledger.received_array(artifact, name, from_npy(archive.read(member)))


def is_missing(answer: httpx.Response, what: str) -> bool:
    """Return whether the job or embedding does not exist."""
    return answer.status_code == 404 and str(answer.json()["type"]).endswith(f":{what}-not-found")
