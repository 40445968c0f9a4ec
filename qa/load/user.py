"""A user of the load: performs random operations on data sets, and follows the accepted jobs to their end.

The ledger records all answers.
"""

from __future__ import annotations

import io
import zipfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from qa.load.content import METHODS, Artifact, Content, Draws, Embedding, Fit, Summary, dataset_of, fit_of
from qa.load.ledger import ENDED, Accepted
from tests.system.arrays import from_npy

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    import httpx

    from qa.load.client import Requester
    from qa.load.ledger import Ledger

NPY, NPZ, JSON = "application/x-npy", "application/zip", "application/json"
MAX_OPEN = 12  # maximum number of jobs that a user follows
IN_ARRAYS = ("mean", "neighbors", "embedding", "eigenvalues")  # the arrays of a posterior that are compared
NEIGHBORS = (8, 10)
SCALES = (1.0, 0.5)
MAX_OWN = 4  # maximum number of small data sets that a user has at a time
TOGETHER = 6  # number of draws that are requested at once
FRESH_SEEDS = 2**31  # number of seeds from which an uncached draw is chosen
WAITS = (0, 1, 5, 30)  # seconds for which a request for a draw may wait
# Operations, which are methods of `User`, and their relative frequencies.
MIX = {
    "upload": 6, "fit": 10, "fit_large": 2, "draw": 24, "draws_at_once": 4, "draws": 8, "summary": 6, "embed": 6,
    "follow": 18, "cancel": 3, "delete_dataset": 2, "delete_posterior": 2, "read_dataset": 6, "read_posterior": 6,
    "read_embedding": 3, "lists": 2,
}  # fmt: skip


@dataclass
class ServerDataset:
    """A data set that the service has, with the ids of its posteriors and the paths of its embeddings."""

    id: str
    fits: dict[Fit, str] = field(default_factory=dict)
    embeddings: dict[Embedding, str] = field(default_factory=dict)


@dataclass
class User:
    """A user, who performs one operation after the other, and follows accepted jobs to their end.

    Parameters
    ----------
    own, shared
        Data sets that this user alone uploads and deletes, and data sets of all users, which stay.
    only
        Names of the operations in `MIX` to perform; empty: all.

    """

    requester: Requester
    ledger: Ledger
    rng: random.Random
    own: list[Content]
    shared: list[Content]
    only: tuple[str, ...] = ()
    datasets: dict[Content, ServerDataset] = field(default_factory=dict)
    jobs: dict[str, Accepted] = field(default_factory=dict)  # followed jobs
    about: dict[Content, list[Accepted]] = field(default_factory=dict)  # jobs on this user's data sets

    def _record_fit(self, artifact: Fit, result: dict[str, Any]) -> None:
        id_ = result["id"]
        dataset = self.datasets[artifact.content]
        if result["dataset"] != dataset.id or result["spec"]["n_neighbors"] != artifact.n_neighbors:
            self.ledger.fault(f"{id_} is not what was asked for: {artifact}")
        dataset.fits[artifact] = id_
        self.ledger.record_created(f"/v1/posteriors/{id_}", artifact)

    def _ask(
        self, operation: str, path: str, artifact: Artifact, *statuses: int, **request: Any
    ) -> httpx.Response | None:
        """Send a request, and return the answer if it has one of the expected `statuses`, otherwise None.

        Another answer is a fault in the ledger, unless its status is 503 or 507.
        """
        answer = self.requester.ask(operation, path, **request)
        return answer if answer is not None and self._is(answer, artifact, *statuses) else None

    def _ask_about(self, job: Accepted, operation: str, path: str, *statuses: int, **request: Any) -> Any:
        """Send a request about a job, as `_ask` does; also return None if the record of the job has expired."""
        answer = self.requester.ask(operation, path, **request)
        if answer is None or self._has_expired(answer, job) or not self._is(answer, job.artifact, *statuses):
            return None
        return answer

    def _follow(self) -> None:
        """Ask for a random followed job; if the job has ended, fetch its result and follow it no longer."""
        if not self.jobs:
            return
        job = self.jobs[self.rng.choice(list(self.jobs))]
        answer = self._ask_about(job, "GET job", f"/v1/jobs/{job.id}?wait={self.rng.choice([0, 1])}", 200)
        if answer is None:
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
        """Fetch the result of a job that has succeeded; return False if there is none, or if it is computed again."""
        media = {Summary: NPZ, Fit: JSON}.get(type(job.artifact), NPY)
        answer = self._ask_about(job, "GET result", f"/v1/jobs/{job.id}/result", 200, 202, headers={"Accept": media})
        if answer is None or answer.status_code == 202:
            return False
        if isinstance(job.artifact, Fit):
            if job.artifact.content in self.datasets:
                self._record_fit(job.artifact, answer.json())
        else:
            self.receive(answer, job.artifact)
        return True

    def judge(self, job: Accepted) -> None:
        """Record a fault if a job should not have ended as it did.

        A job may be cancelled only on request, and may fail only if its workers were killed or its data were deleted.
        """
        if job.status == "cancelled" and not (job.is_cancelled or job.is_doomed):
            self.ledger.fault(f"{job.id} was cancelled without a request")
        is_right = job.is_doomed or job.error.endswith("worker-lost")
        if job.status == "failed" and not is_right:
            self.ledger.fault(f"{job.id} failed with {job.error}: {job.artifact}")

    def _doom(self, is_about: Callable[[Artifact], bool]) -> None:
        """Record that jobs may fail, because what they are about is being deleted; `is_about` selects the jobs."""
        for content in list(self.about):
            for job in self.about[content]:
                job.is_doomed = job.is_doomed or is_about(job.artifact)
            if content not in self.datasets:  # the data set itself is deleted
                del self.about[content]

    def _follow_later(self, answer: httpx.Response, artifact: Artifact) -> None:
        body = answer.json()
        job = self.ledger.record_accepted(body["id"], artifact)
        self.ledger.record(job, body, answer.extensions["requested_at"])
        self.jobs[job.id] = job
        if dataset_of(artifact) in self.own:
            self.about.setdefault(dataset_of(artifact), []).append(job)
        if len(self.jobs) > MAX_OPEN:
            self.jobs.pop(next(iter(self.jobs)))

    def _has_expired(self, answer: httpx.Response, job: Accepted) -> bool:
        """Return whether an answer says that the record of a job has expired; if so, follow the job no longer."""
        is_missing = answer.status_code == 404 and answer.json()["type"].endswith(":job-not-found")
        if not is_missing or self.ledger.is_retained(job.open_at):
            return False
        self.jobs.pop(job.id, None)
        return True

    def _is(self, answer: httpx.Response, artifact: Artifact, *statuses: int) -> bool:
        """Return whether an answer has an expected status; other answers are faults, except for 503 and 507."""
        if answer.status_code in statuses or answer.extensions.get("deleted_before"):
            return answer.status_code in statuses or 204 in statuses
        if answer.status_code not in {503, 507}:
            request = f"{answer.request.method} {answer.request.url.raw_path.decode()}"
            self.ledger.fault(f"{request}: {answer.status_code} {answer.text[:300]} ({artifact})")
        return False

    def receive(self, answer: httpx.Response, artifact: Artifact) -> None:
        """Record the arrays in an answer with status 200: one array as npy or JSON, or several as npz."""
        media = answer.headers["content-type"]
        if media == NPZ:
            with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
                for member in archive.namelist():
                    name = member.removesuffix(".npy")
                    if not isinstance(artifact, Fit) or name in IN_ARRAYS:
                        self.ledger.received_array(artifact, name, from_npy(archive.read(member)))
            return
        if media == NPY:
            array = from_npy(answer.content)
        else:
            body = answer.json()
            array = np.array(body["data"], body["dtype"]).reshape(body["shape"])
        self.ledger.received_array(artifact, "data" if isinstance(artifact, Content) else "embedding", array)

    def act(self) -> None:
        """Perform a random operation, which sends one or more requests."""
        mix = {what: share for what, share in MIX.items() if not self.only or what in self.only}
        what = self.rng.choices(list(mix), list(mix.values()))[0]
        action: Callable[[], None] = getattr(self, "_" + what)
        action()

    def _upload(self) -> None:
        """Upload a data set: a shared one or a new one; a user with `MAX_OWN` uploads one of them again instead."""
        uploaded = [content for content in self._small() if content in self.own]
        fresh = [content for content in self.own if content not in self.datasets and not content.is_large]
        pool = self.shared + (fresh * 3 if len(uploaded) < MAX_OWN else uploaded)
        self._make(self.rng.choice(pool))

    def _make(self, content: Content) -> None:
        self.ledger.record_request(content)
        if content.is_synthetic:
            answer = self._ask("POST synthetic", "/v1/datasets/synthetic", content, 200, 201, json=content.synthetic)
        else:
            body: dict[str, Any] = {"content": content.npy(), "headers": {"Content-Type": NPY}}
            answer = self._ask("POST dataset", "/v1/datasets", content, 200, 201, **body)
        if answer is None:
            return
        body = answer.json()
        if body["n"] != content.n:
            self.ledger.fault(f"{content} has {body['n']} points")
        if content in self.datasets and self.datasets[content].id != body["id"]:
            self.ledger.fault(f"{content} was {self.datasets[content].id} and is {body['id']}")
        self.datasets.setdefault(content, ServerDataset(body["id"]))
        self.ledger.record_created(f"/v1/datasets/{body['id']}", content)

    def _fit(self) -> None:
        """Fit a posterior to one of the small data sets."""
        if (content := self._some()) is not None:
            self._fit_to(content)

    def _fit_large(self) -> None:
        """Fit a posterior to a large data set, after deleting those of earlier calls, whose fits may still run."""
        for content in [content for content in self.datasets if content.is_large]:
            self._delete(content)
        if not (pool := [content for content in self.own if content.is_large]):
            return
        content = self.rng.choice(pool)
        self._make(content)
        if content in self.datasets:
            self._fit_to(content)

    def _fit_to(self, content: Content) -> None:
        artifact = Fit(content, self.rng.choice(NEIGHBORS))
        self.ledger.record_request(artifact)
        body = {"dataset": self.datasets[content].id, "n_neighbors": artifact.n_neighbors}
        path = f"/v1/posteriors?wait={self.rng.choice([0, 0, 2])}"
        answer = self._ask("POST posterior", path, artifact, 200, 201, 202, json=body)
        if answer is not None and answer.status_code == 202:
            self._follow_later(answer, artifact)
        elif answer is not None:
            self._record_fit(artifact, answer.json())

    def _draw(self) -> None:
        """Request one draw, which is often cached, as npy or JSON."""
        if (fit := self._some_fit()) is None:
            return
        artifact = self._single(fit, 2)
        media = self.rng.choice([NPY, NPY, JSON])
        self._record_draw(self._ask_for(media, 5, artifact), artifact)

    def _draws_at_once(self) -> None:
        """Request several uncached draws of one posterior at the same time, as separate clients do."""
        fits = self._fits()
        shared = [fit for fit in fits if fit.content in self.shared]
        if not fits:
            return
        fit = self.rng.choice(shared if shared and self.rng.random() < 0.5 else fits)
        artifacts = [self._single(fit, FRESH_SEEDS) for _ in range(TOGETHER)]
        ask = partial(self._ask_for, NPY, self.rng.choice(WAITS))
        with ThreadPoolExecutor(TOGETHER) as clients:
            answers = list(clients.map(ask, artifacts))
        for artifact, answer in zip(artifacts, answers, strict=True):
            self._record_draw(answer, artifact)

    def _single(self, fit: Fit, seeds: int) -> Draws:
        """Choose a random draw of a posterior; its seed is less than `seeds`."""
        index, seed = self.rng.randrange(40), self.rng.randrange(seeds)
        return Draws(fit, index, 1, seed, self.rng.choice(SCALES), is_single=True)

    def _ask_for(self, media: str, wait: int, draw: Draws) -> httpx.Response | None:
        query = f"seed={draw.seed}&scale={draw.scale}&wait={wait}"
        path = f"/v1/posteriors/{self._id(draw.fit)}/draws/{draw.first}?{query}"
        return self.requester.ask("GET draw", path, headers={"Accept": media})

    def _record_draw(self, answer: httpx.Response | None, artifact: Draws) -> None:
        """Record the answer to a request for one draw: the draw, or a job that makes it."""
        if answer is None or not self._is(answer, artifact, 200, 202):
            return
        job = Draws(artifact.fit, artifact.first, 1, artifact.seed, artifact.scale)
        self._receive_or_follow(answer, artifact, job, artifact.fit)

    def _receive_or_follow(self, answer: httpx.Response, artifact: Artifact, job: Artifact, fit: Fit) -> None:
        """Record the arrays of an answer with status 200, or else follow the job in the answer.

        This is the job that makes the result, or a fit of the posterior that must come first.
        """
        if answer.status_code == 200:
            self.receive(answer, artifact)
        else:
            self._follow_later(answer, fit if answer.json()["kind"] == "fit" else job)

    def _draws(self) -> None:
        """Request up to 24 draws as one job."""
        if (fit := self._some_fit()) is None:
            return
        first, count = self.rng.randrange(0, 32, 8), self.rng.randint(1, 24)
        artifact = Draws(fit, first, count, self.rng.randrange(2), self.rng.choice(SCALES))
        body = {"first": artifact.first, "n_draws": artifact.count, "seed": artifact.seed, "scale": artifact.scale}
        answer = self._ask("POST draws", f"/v1/posteriors/{self._id(fit)}/draws", artifact, 200, 202, json=body)
        if answer is not None:
            self._follow_later(answer, artifact)

    def _summary(self) -> None:
        """Request the summary of ten draws."""
        if (fit := self._some_fit()) is None:
            return
        artifact = Summary(fit, 10, self.rng.randrange(2))
        path = f"/v1/posteriors/{self._id(fit)}/summary?scale=1&n_draws={artifact.count}&seed={artifact.seed}&wait=2"
        answer = self._ask("GET summary", path, artifact, 200, 202, headers={"Accept": NPZ})
        if answer is not None:
            self._receive_or_follow(answer, artifact, artifact, fit)

    def _embed(self) -> None:
        """Request an embedding of a data set by one of the fast `METHODS`."""
        if (content := self._some()) is None:
            return
        artifact = Embedding(content, self.rng.choice(list(METHODS)))
        body = {"dataset": self.datasets[content].id, "method": artifact.method, "parameters": METHODS[artifact.method]}
        answer = self._ask("POST embedding", "/v1/embeddings", artifact, 200, 202, json={**body, "scores": []})
        if answer is None:
            return
        self._follow_later(answer, artifact)
        path = answer.json()["links"]["embedding"]
        self.datasets[content].embeddings[artifact] = path
        self.ledger.record_created(path, artifact)

    def _cancel(self) -> None:
        """Cancel a followed job about one of this user's own data sets, which no other user waits for."""
        jobs = [job for job in self.jobs.values() if dataset_of(job.artifact) in self.own]
        if not jobs:
            return
        job = self.rng.choice(jobs)
        job.is_cancelled = True
        if (answer := self._ask_about(job, "DELETE job", f"/v1/jobs/{job.id}", 200, 202)) is not None:
            self.ledger.record(job, answer.json(), answer.extensions["requested_at"])

    def _delete_dataset(self) -> None:
        """Delete one of this user's own data sets, with its posteriors and embeddings."""
        if contents := [content for content in self._small() if content in self.own]:
            self._delete(self.rng.choice(contents))

    def _delete(self, content: Content) -> None:
        dataset = self.datasets.pop(content)
        self._doom(lambda artifact: dataset_of(artifact) == content)
        paths = {f"/v1/posteriors/{id_}": artifact for artifact, id_ in dataset.fits.items()}
        path = f"/v1/datasets/{dataset.id}"
        answer = self._ask("DELETE dataset", f"{path}?force=true", content, 204)
        for other in (path, *paths, *dataset.embeddings.values()):
            self.ledger.stored.pop(other, None)  # unknown without an answer
        if answer is not None:
            gone: dict[str, Artifact] = {path: content, **paths}
            for other, artifact in gone.items():
                self.ledger.record_deleted(other, artifact)
            self._ask("GET dataset", path, content, 404)

    def _delete_posterior(self) -> None:
        """Delete a posterior of one of this user's own data sets."""
        fits = [fit for fit in self._fits() if fit.content in self.own]
        if not fits:
            return
        fit = self.rng.choice(fits)
        path = f"/v1/posteriors/{self._id(fit)}"
        del self.datasets[fit.content].fits[fit]
        self._doom(lambda artifact: fit_of(artifact) == fit)
        answer = self._ask("DELETE posterior", path, fit, 204)
        self.ledger.stored.pop(path, None)  # unknown without an answer
        if answer is not None:
            self.ledger.record_deleted(path, fit)
            self._ask("GET posterior", path, fit, 404, 409)

    def _read_dataset(self) -> None:
        """Read the values of a data set, as npy or JSON."""
        if (content := self._some()) is None:
            return
        path, headers = f"/v1/datasets/{self.datasets[content].id}/data", {"Accept": self.rng.choice([NPY, JSON])}
        if (answer := self._ask("GET data", path, content, 200, headers=headers)) is not None:
            self.receive(answer, content)

    def _read_posterior(self) -> None:
        """Read a posterior's record, or its arrays."""
        if (fit := self._some_fit()) is None:
            return
        path = f"/v1/posteriors/{self._id(fit)}"
        if self.rng.random() < 0.5:
            if (answer := self._ask("GET posterior", path, fit, 200)) is not None:
                self._record_fit(fit, answer.json())
        elif (answer := self._ask("GET arrays", path + "/arrays", fit, 200, 202, headers={"Accept": NPZ})) is not None:
            self._receive_or_follow(answer, fit, fit, fit)

    def _read_embedding(self) -> None:
        """Read the coordinates of an embedding."""
        choices = [entry for dataset in self.datasets.values() for entry in dataset.embeddings.items()]
        if not choices:
            return
        embedding, path = self.rng.choice(choices)
        # 409: the job of this embedding was cancelled during the wait.
        path, headers = f"{path}/coordinates?wait=2", {"Accept": NPY}
        answer = self._ask("GET coordinates", path, embedding, 200, 202, 409, headers=headers)
        if answer is not None and answer.status_code == 200:
            self.receive(answer, embedding)

    def _lists(self) -> None:
        """Request a list of data sets, posteriors, or jobs."""
        name = self.rng.choice(["datasets", "posteriors", "jobs"])
        answer = self.requester.ask(f"GET {name}", f"/v1/{name}?limit=10")
        if answer is not None and answer.status_code not in {200, 503}:
            self.ledger.fault(f"GET /v1/{name}: {answer.status_code} {answer.text[:200]}")

    def _small(self) -> list[Content]:
        return [content for content in self.datasets if not content.is_large]

    def _some(self) -> Content | None:
        small = self._small()
        return self.rng.choice(small) if small else None

    def _fits(self) -> list[Fit]:
        """Return the posteriors of small data sets, whose draws are computed again quickly."""
        return [fit for content in self._small() for fit in self.datasets[content].fits]

    def _some_fit(self) -> Fit | None:
        fits = self._fits()
        return self.rng.choice(fits) if fits else None

    def _id(self, fit: Fit) -> str:
        return self.datasets[fit.content].fits[fit]
