"""A user of the load: separate data sets, and the operations on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from qa.load.content import METHODS, Content, Draws, Embedding, Fit, Summary, content_of, fit_of
from qa.load.following import JSON, NPY, NPZ, Follower, Known, is_missing

if TYPE_CHECKING:
    from collections.abc import Callable


NEIGHBORS = (8, 10)
SCALES = (1.0, 0.5)
MOST_OWN = 4  # limit of data sets at a time

# Operations and their relative frequencies.
MIX = {
    "upload": 6, "fit": 10, "draw": 24, "draws": 8, "summary": 4, "embed": 6, "follow": 18, "cancel": 3,
    "delete_dataset": 2, "delete_posterior": 2, "read_dataset": 6, "read_posterior": 6, "read_embedding": 3, "lists": 2,
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
        mine = [content for content in self.known if content in self.own]
        fresh = [content for content in self.own if content not in self.known]
        pool = self.shared + (fresh * 3 if len(mine) < MOST_OWN else mine)
        self._make(self.rng.choice(pool))

    def _make(self, content: Content) -> None:
        self.ledger.asked_for(content)
        if content.is_synthetic:
            answer = self.asker.ask("POST synthetic", "/v1/datasets/synthetic", json=content.synthetic)
        else:
            headers = {"Content-Type": NPY}
            answer = self.asker.ask("POST dataset", "/v1/datasets", content=content.npy(), headers=headers)
        if answer is None or not self._is(answer, content, 200, 201):
            return
        body = answer.json()
        if body["n"] != content.n:
            self.ledger.fault(f"{content} has {body['n']} points")
        if content in self.known and self.known[content].id != body["id"]:
            self.ledger.fault(f"{content} was {self.known[content].id} and is {body['id']}")
        self.known.setdefault(content, Known(body["id"]))
        self.ledger.came(f"/v1/datasets/{body['id']}", content)

    def _fit(self) -> None:
        """Fit a posterior, with or without a wait."""
        if (content := self._some()) is None:
            return
        made = Fit(content, self.rng.choice(NEIGHBORS))
        self.ledger.asked_for(made)
        body = {"dataset": self.known[content].id, "n_neighbors": made.n_neighbors}
        answer = self.asker.ask("POST posterior", f"/v1/posteriors?wait={self.rng.choice([0, 0, 2])}", json=body)
        if answer is None or not self._is(answer, made, 200, 201, 202):
            return
        if answer.status_code == 202:
            self._follow_later(answer, made)
        else:
            self._fitted(made, answer.json())

    def _draw(self) -> None:
        """Request one draw, as npy or JSON."""
        if (fit := self._some_fit()) is None:
            return
        made = Draws(fit, self.rng.randrange(40), 1, self.rng.randrange(2), self.rng.choice(SCALES), is_single=True)
        path = f"/v1/posteriors/{self._id(fit)}/draws/{made.first}?seed={made.seed}&scale={made.scale}&wait=5"
        media = self.rng.choice([NPY, NPY, JSON])
        answer = self.asker.ask("GET draw", path, headers={"Accept": media})
        if answer is None or not self._is(answer, made, 200, 202):
            return
        if answer.status_code == 200:
            self.array(answer, made, "embedding")
        else:
            self._maybe_follow(answer, Draws(fit, made.first, 1, made.seed, made.scale), fit)

    def _draws(self) -> None:
        """Request many draws."""
        if (fit := self._some_fit()) is None:
            return
        first, count = self.rng.randrange(0, 32, 8), self.rng.randint(1, 24)
        made = Draws(fit, first, count, self.rng.randrange(2), self.rng.choice(SCALES))
        body = {"first": made.first, "count": made.count, "seed": made.seed, "scale": made.scale}
        answer = self.asker.ask("POST draws", f"/v1/posteriors/{self._id(fit)}/draws", json=body)
        if answer is not None and self._is(answer, made, 200, 202):
            self._follow_later(answer, made)

    def _summary(self) -> None:
        """Request a summary."""
        if (fit := self._some_fit()) is None:
            return
        made = Summary(fit, 10, self.rng.randrange(2))
        path = f"/v1/posteriors/{self._id(fit)}/summary?count={made.count}&seed={made.seed}&wait=2"
        answer = self.asker.ask("GET summary", path, headers={"Accept": NPZ})
        if answer is None or not self._is(answer, made, 200, 202):
            return
        if answer.status_code == 200:
            self.arrays(answer, made)
        else:
            self._maybe_follow(answer, made, fit)

    def _embed(self) -> None:
        """Embed a data set by one of the cheap methods."""
        if (content := self._some()) is None:
            return
        made = Embedding(content, self.rng.choice(list(METHODS)))
        body = {"dataset": self.known[content].id, "method": made.method, "parameters": METHODS[made.method]}
        answer = self.asker.ask("POST embedding", "/v1/embeddings", json={**body, "scores": []})
        if answer is None or not self._is(answer, made, 200, 202):
            return
        self._follow_later(answer, made)
        path = answer.json()["links"]["embedding"]
        self.known[content].embeddings[made] = path
        self.known[content].embeddings_at[made] = answer.extensions["asked_at"]
        self.ledger.came(path, made)

    def _cancel(self) -> None:
        """Cancel a job on this user's data, which no other user shares."""
        mine = [job for job in self.jobs.values() if content_of(job.made) in self.own]
        if not mine:
            return
        job = self.rng.choice(mine)
        job.is_cancelled = True
        answer = self.asker.ask("DELETE job", f"/v1/jobs/{job.id}")
        if answer is None or self._has_expired(answer, job):
            return
        if self._is(answer, job.made, 200, 202):
            self.ledger.record(job, answer.json(), answer.extensions["asked_at"])

    def _delete_dataset(self) -> None:
        """Delete a data set with its posteriors and embeddings."""
        mine = [content for content in self.known if content in self.own]
        if not mine:
            return
        content = self.rng.choice(mine)
        known = self.known.pop(content)
        self._doom(lambda made: content_of(made) == content)
        answer = self.asker.ask("DELETE dataset", f"/v1/datasets/{known.id}?force=true")
        paths = {f"/v1/posteriors/{id_}": made for made, id_ in known.fits.items()}
        path = f"/v1/datasets/{known.id}"
        if answer is None or not self._is(answer, content, 204):
            self.ledger.there.pop(path, None)  # unknown without an answer
            for other in (*paths, *known.embeddings.values()):
                self.ledger.there.pop(other, None)
            return
        self.ledger.left(path, content)
        for other, made in paths.items():
            self.ledger.left(other, made)
        for other in known.embeddings.values():
            self.ledger.there.pop(other, None)
        answer = self.asker.ask("GET dataset", path)
        if answer is not None:
            self._is(answer, content, 404)

    def _delete_posterior(self) -> None:
        """Delete a posterior."""
        fits = [fit for fit in self._fits() if fit.content in self.own]
        if not fits:
            return
        fit = self.rng.choice(fits)
        path = f"/v1/posteriors/{self._id(fit)}"
        del self.known[fit.content].fits[fit]
        self._doom(lambda made: fit_of(made) == fit)
        answer = self.asker.ask("DELETE posterior", path)
        if answer is None or not self._is(answer, fit, 204):
            self.ledger.there.pop(path, None)  # unknown without an answer
            return
        self.ledger.left(path, fit)
        answer = self.asker.ask("GET posterior", path)
        if answer is not None:
            self._is(answer, fit, 404, 409)

    def _read_dataset(self) -> None:
        """Read the values of a data set."""
        if (content := self._some()) is None:
            return
        headers = {"Accept": self.rng.choice([NPY, JSON])}
        answer = self.asker.ask("GET data", f"/v1/datasets/{self.known[content].id}/data", headers=headers)
        if answer is not None and self._is(answer, content, 200):
            self.array(answer, content, "data")

    def _read_posterior(self) -> None:
        """Read a posterior's record, or its arrays."""
        if (fit := self._some_fit()) is None:
            return
        path = f"/v1/posteriors/{self._id(fit)}"
        if self.rng.random() < 0.5:
            answer = self.asker.ask("GET posterior", path)
            if answer is not None and self._is(answer, fit, 200):
                self._fitted(fit, answer.json())
            return
        answer = self.asker.ask("GET arrays", path + "/arrays", headers={"Accept": NPZ})
        if answer is None or not self._is(answer, fit, 200, 202):
            return
        if answer.status_code == 200:
            self.arrays(answer, fit)
        else:
            self._maybe_follow(answer, fit, fit)

    def _read_embedding(self) -> None:
        """Read an embedding's coordinates."""
        made = [(known, made, path) for known in self.known.values() for made, path in known.embeddings.items()]
        if not made:
            return
        known, embedding, path = self.rng.choice(made)
        # 409: the job of this embedding was cancelled during the wait.
        answer = self.asker.ask("GET coordinates", f"{path}/coordinates?wait=2", headers={"Accept": NPY})
        if answer is None:
            return
        if is_missing(answer, "embedding") and not self.ledger.must_be_kept(known.embeddings_at[embedding]):
            del known.embeddings[embedding], known.embeddings_at[embedding]
            self.ledger.there.pop(path, None)
        elif self._is(answer, embedding, 200, 202, 409):
            known.embeddings_at[embedding] = answer.extensions["asked_at"]
            if answer.status_code == 200:
                self.array(answer, embedding, "embedding")

    def _lists(self) -> None:
        """List data sets, posteriors, or jobs."""
        name = self.rng.choice(["datasets", "posteriors", "jobs"])
        answer = self.asker.ask(f"GET {name}", f"/v1/{name}?limit=10")
        if answer is not None and answer.status_code != 200:
            self.ledger.fault(f"GET /v1/{name}: {answer.status_code} {answer.text[:200]}")

    def _some(self) -> Content | None:
        return self.rng.choice(list(self.known)) if self.known else None

    def _fits(self) -> list[Fit]:
        return [fit for known in self.known.values() for fit in known.fits]

    def _some_fit(self) -> Fit | None:
        fits = self._fits()
        return self.rng.choice(fits) if fits else None

    def _id(self, fit: Fit) -> str:
        return self.known[fit.content].fits[fit]
