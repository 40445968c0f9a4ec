"""A user of the load: separate data sets, and the operations on them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from qa.load.content import METHODS, Content, Draws, Embedding, Fit, Summary, dataset_of, fit_of
from qa.load.following import JSON, NPY, NPZ, Follower, ServerDataset

if TYPE_CHECKING:
    from collections.abc import Callable

    import httpx

NEIGHBORS = (8, 10)
SCALES = (1.0, 0.5)
MAX_OWN = 4  # limit of data sets at a time
TOGETHER = 6  # draws requested at once
FRESH_SEEDS = 2**31
WAITS = (0, 1, 5, 30)  # seconds

# Operations and their relative frequencies.
MIX = {
    "upload": 6, "fit": 10, "fit_large": 2, "draw": 24, "draws_at_once": 4, "draws": 8, "summary": 6, "embed": 6,
    "follow": 18, "cancel": 3, "delete_dataset": 2, "delete_posterior": 2, "read_dataset": 6, "read_posterior": 6,
    "read_embedding": 3, "lists": 2,
}  # fmt: skip


class User(Follower):
    """Client that performs one operation after the other."""

    def act(self) -> None:
        """Perform one operation, which is one or more requests."""
        what = self.rng.choices(list(MIX), list(MIX.values()))[0]
        action: Callable[[], None] = getattr(self, "_" + what)
        action()

    def _upload(self) -> None:
        """Upload a data set: a new one, a shared one, or an existing one."""
        own = [content for content in self._small() if content in self.own]
        fresh = [content for content in self.own if content not in self.datasets and not content.is_large]
        pool = self.shared + (fresh * 3 if len(own) < MAX_OWN else own)
        self._make(self.rng.choice(pool))

    def _make(self, content: Content) -> None:
        self.ledger.record_request(content)
        if content.is_synthetic:
            answer = self.requester.ask("POST synthetic", "/v1/datasets/synthetic", json=content.synthetic)
        else:
            headers = {"Content-Type": NPY}
            answer = self.requester.ask("POST dataset", "/v1/datasets", content=content.npy(), headers=headers)
        if answer is None or not self._is(answer, content, 200, 201):
            return
        body = answer.json()
        if body["n"] != content.n:
            self.ledger.fault(f"{content} has {body['n']} points")
        if content in self.datasets and self.datasets[content].id != body["id"]:
            self.ledger.fault(f"{content} was {self.datasets[content].id} and is {body['id']}")
        self.datasets.setdefault(content, ServerDataset(body["id"]))
        self.ledger.record_created(f"/v1/datasets/{body['id']}", content)

    def _fit(self) -> None:
        """Fit a posterior, with or without a wait."""
        if (content := self._some()) is not None:
            self._fit_to(content)

    def _fit_large(self) -> None:
        """Fit a large data set, and delete those of earlier calls, whose fits may be running."""
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
        answer = self.requester.ask("POST posterior", f"/v1/posteriors?wait={self.rng.choice([0, 0, 2])}", json=body)
        if answer is None or not self._is(answer, artifact, 200, 201, 202):
            return
        if answer.status_code == 202:
            self._follow_later(answer, artifact)
        else:
            self._fitted(artifact, answer.json())

    def _draw(self) -> None:
        """Request one draw, as npy or JSON."""
        if (fit := self._some_fit()) is None:
            return
        artifact = self._single(fit, 2)
        media = self.rng.choice([NPY, NPY, JSON])
        self._drawn(self._ask_for(media, 5, artifact), artifact)

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
            self._drawn(answer, artifact)

    def _single(self, fit: Fit, seeds: int) -> Draws:
        """Return a random draw, with one of a number of seeds."""
        index, seed = self.rng.randrange(40), self.rng.randrange(seeds)
        return Draws(fit, index, 1, seed, self.rng.choice(SCALES), is_single=True)

    def _ask_for(self, media: str, wait: int, draw: Draws) -> httpx.Response | None:
        query = f"seed={draw.seed}&scale={draw.scale}&wait={wait}"
        path = f"/v1/posteriors/{self._id(draw.fit)}/draws/{draw.first}?{query}"
        return self.requester.ask("GET draw", path, headers={"Accept": media})

    def _drawn(self, answer: httpx.Response | None, artifact: Draws) -> None:
        """Record the answer to a request for one draw."""
        if answer is None or not self._is(answer, artifact, 200, 202):
            return
        fit = artifact.fit
        if answer.status_code == 200:
            self.array(answer, artifact, "embedding")
        else:
            self._maybe_follow(answer, Draws(fit, artifact.first, 1, artifact.seed, artifact.scale), fit)

    def _draws(self) -> None:
        """Request many draws."""
        if (fit := self._some_fit()) is None:
            return
        first, count = self.rng.randrange(0, 32, 8), self.rng.randint(1, 24)
        artifact = Draws(fit, first, count, self.rng.randrange(2), self.rng.choice(SCALES))
        body = {"first": artifact.first, "count": artifact.count, "seed": artifact.seed, "scale": artifact.scale}
        answer = self.requester.ask("POST draws", f"/v1/posteriors/{self._id(fit)}/draws", json=body)
        if answer is not None and self._is(answer, artifact, 200, 202):
            self._follow_later(answer, artifact)

    def _summary(self) -> None:
        """Request a summary."""
        if (fit := self._some_fit()) is None:
            return
        artifact = Summary(fit, 10, self.rng.randrange(2))
        path = f"/v1/posteriors/{self._id(fit)}/summary?scale=1&count={artifact.count}&seed={artifact.seed}&wait=2"
        answer = self.requester.ask("GET summary", path, headers={"Accept": NPZ})
        if answer is None or not self._is(answer, artifact, 200, 202):
            return
        if answer.status_code == 200:
            self.arrays(answer, artifact)
        else:
            self._maybe_follow(answer, artifact, fit)

    def _embed(self) -> None:
        """Embed a data set by one of the cheap methods."""
        if (content := self._some()) is None:
            return
        artifact = Embedding(content, self.rng.choice(list(METHODS)))
        body = {"dataset": self.datasets[content].id, "method": artifact.method, "parameters": METHODS[artifact.method]}
        answer = self.requester.ask("POST embedding", "/v1/embeddings", json={**body, "scores": []})
        if answer is None or not self._is(answer, artifact, 200, 202):
            return
        self._follow_later(answer, artifact)
        path = answer.json()["links"]["embedding"]
        self.datasets[content].embeddings[artifact] = path
        self.ledger.record_created(path, artifact)

    def _cancel(self) -> None:
        """Cancel a job on this user's data, which no other user shares."""
        own = [job for job in self.jobs.values() if dataset_of(job.artifact) in self.own]
        if not own:
            return
        job = self.rng.choice(own)
        job.is_cancelled = True
        answer = self.requester.ask("DELETE job", f"/v1/jobs/{job.id}")
        if answer is None or self._has_expired(answer, job):
            return
        if self._is(answer, job.artifact, 200, 202):
            self.ledger.record(job, answer.json(), answer.extensions["requested_at"])

    def _delete_dataset(self) -> None:
        """Delete a data set with its posteriors and embeddings."""
        own = [content for content in self._small() if content in self.own]
        if not own:
            return
        self._delete(self.rng.choice(own))

    def _delete(self, content: Content) -> None:
        dataset = self.datasets.pop(content)
        self._doom(lambda artifact: dataset_of(artifact) == content)
        answer = self.requester.ask("DELETE dataset", f"/v1/datasets/{dataset.id}?force=true")
        paths = {f"/v1/posteriors/{id_}": artifact for artifact, id_ in dataset.fits.items()}
        path = f"/v1/datasets/{dataset.id}"
        if answer is None or not self._is(answer, content, 204):
            self.ledger.stored.pop(path, None)  # unknown without an answer
            for other in (*paths, *dataset.embeddings.values()):
                self.ledger.stored.pop(other, None)
            return
        self.ledger.record_deleted(path, content)
        for other, artifact in paths.items():
            self.ledger.record_deleted(other, artifact)
        for other in dataset.embeddings.values():
            self.ledger.stored.pop(other, None)
        answer = self.requester.ask("GET dataset", path)
        if answer is not None:
            self._is(answer, content, 404)

    def _delete_posterior(self) -> None:
        """Delete a posterior."""
        fits = [fit for fit in self._fits() if fit.content in self.own]
        if not fits:
            return
        fit = self.rng.choice(fits)
        path = f"/v1/posteriors/{self._id(fit)}"
        del self.datasets[fit.content].fits[fit]
        self._doom(lambda artifact: fit_of(artifact) == fit)
        answer = self.requester.ask("DELETE posterior", path)
        if answer is None or not self._is(answer, fit, 204):
            self.ledger.stored.pop(path, None)  # unknown without an answer
            return
        self.ledger.record_deleted(path, fit)
        answer = self.requester.ask("GET posterior", path)
        if answer is not None:
            self._is(answer, fit, 404, 409)

    def _read_dataset(self) -> None:
        """Read the values of a data set."""
        if (content := self._some()) is None:
            return
        headers = {"Accept": self.rng.choice([NPY, JSON])}
        answer = self.requester.ask("GET data", f"/v1/datasets/{self.datasets[content].id}/data", headers=headers)
        if answer is not None and self._is(answer, content, 200):
            self.array(answer, content, "data")

    def _read_posterior(self) -> None:
        """Read a posterior's record, or its arrays."""
        if (fit := self._some_fit()) is None:
            return
        path = f"/v1/posteriors/{self._id(fit)}"
        if self.rng.random() < 0.5:
            answer = self.requester.ask("GET posterior", path)
            if answer is not None and self._is(answer, fit, 200):
                self._fitted(fit, answer.json())
            return
        answer = self.requester.ask("GET arrays", path + "/arrays", headers={"Accept": NPZ})
        if answer is None or not self._is(answer, fit, 200, 202):
            return
        if answer.status_code == 200:
            self.arrays(answer, fit)
        else:
            self._maybe_follow(answer, fit, fit)

    def _read_embedding(self) -> None:
        """Read an embedding's coordinates."""
        choices = [(dataset, *entry) for dataset in self.datasets.values() for entry in dataset.embeddings.items()]
        if not choices:
            return
        _, embedding, path = self.rng.choice(choices)
        # 409: the job of this embedding was cancelled during the wait.
        answer = self.requester.ask("GET coordinates", f"{path}/coordinates?wait=2", headers={"Accept": NPY})
        if answer is None:
            return
        if self._is(answer, embedding, 200, 202, 409) and answer.status_code == 200:
            self.array(answer, embedding, "embedding")

    def _lists(self) -> None:
        """List data sets, posteriors, or jobs."""
        name = self.rng.choice(["datasets", "posteriors", "jobs"])
        answer = self.requester.ask(f"GET {name}", f"/v1/{name}?limit=10")
        if answer is not None and answer.status_code != 200:
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
