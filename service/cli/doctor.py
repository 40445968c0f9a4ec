"""`glle doctor`: checks a deployment, from the outside and the inside, and says what to do."""

from __future__ import annotations

import http.client
import io
import json
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import numpy as np

import glle_engine
from glle.cli import VARIABLES
from glle_engine import manifolds
from worker.base.settings import unknown_variables
from worker.operations import doctor
from worker.operations.health import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from worker.base.settings import Settings

REPLY_SECONDS = 60.0
POINTS = 150
_MARKS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}


def examine(settings: Settings, environ: Mapping[str, str], url: str | None) -> Iterator[Check]:
    """Yield all checks; with a URL also those of the service there."""
    misspelt = sorted(set(unknown_variables(environ)) - VARIABLES)
    if misspelt:
        remedy = "Correct or remove them; `glle settings` lists what there is."
        yield Check("settings", "warning", f"No settings: {', '.join(misspelt)}.", remedy)
    else:
        yield Check("settings", "ok", "All GLLE_* variables are settings.")
    yield from doctor.deployment(settings)
    if url is None:
        yield port(settings.host, settings.port)
    else:
        yield from service(url, environ.get("GLLE_KEY", ""))


def port(host: str, number: int) -> Check:
    """Check that the port is free, or that glle has it."""
    name = f"port {number}"
    if number == 0:
        return Check(name, "ok", "A free one is taken when it starts.")
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    try:
        status, _ = _Http(f"http://{f'[{target}]' if ':' in target else target}:{number}", 2.0).ask("GET", "/livez")
    except ConnectionRefusedError:
        return Check(name, "ok", f"Nothing listens on {host}:{number}.")
    except (OSError, http.client.HTTPException):
        status = 0
    if status == http.HTTPStatus.OK:
        return Check(name, "ok", f"glle answers on {host}:{number}.")
    remedy = "Choose another with GLLE_PORT, or stop the program that has it."
    return Check(name, "problem", f"Another program listens on {host}:{number}.", remedy)


def service(url: str, key: str = "") -> Iterator[Check]:
    """Yield whether a service is alive, ready, of this version, and does a small job from end to end.

    Parameters
    ----------
    key
        What the service lets in with, if it asks for one.

    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield Check("service", "problem", f"{url} is no address of a service.", "Give one such as http://host:8000.")
        return
    asks = _Http(url, REPLY_SECONDS, key)
    try:
        status, _ = asks.ask("GET", "/livez")
        if status != http.HTTPStatus.OK:
            remedy = "Look at the address, and at what is between: another program may answer there."
            yield Check("service", "problem", f"/livez answers {status}.", remedy)
            return
        yield Check("service", "ok", f"It is alive at {url}.")
        yield _readiness(*asks.ask("GET", "/readyz"))
        yield from _end_to_end(asks)
    except (OSError, http.client.HTTPException, ValueError) as error:
        remedy = "Look at the address, at the API's log, and at the network between."
        yield Check("service", "problem", f"{url} does not answer: {type(error).__name__}: {error}.", remedy)


def _readiness(status: int, body: bytes) -> Check:
    if status == http.HTTPStatus.OK:
        state = json.loads(body)
        if "workers" not in state:
            return Check("ready", "ok", "It can work; with a key in GLLE_KEY it says more.")
        return Check("ready", "ok", f"It can work: {state['workers']} workers, {state['queue_length']} tasks wait.")
    return _refused("ready", status, body)


def _end_to_end(asks: _Http) -> Iterator[Check]:
    """Yield whether its version is ours, and whether it fits and draws what the engine here does."""
    status, body = asks.ask("GET", "/v1/info")
    if status != http.HTTPStatus.OK:
        yield _refused("version", status, body)
        return
    theirs, ours = json.loads(body)["versions"]["glle"], glle_engine.__version__
    same = theirs == ours
    remedy = "" if same else "Compare with the version that is meant to run there."
    yield Check("version", "ok" if same else "warning", f"There {theirs}, here {ours}.", remedy)

    started, seed = time.perf_counter(), secrets.randbelow(2**31)  # data that nobody fitted yet
    sheet = {"name": "s_curve", "n": POINTS, "seed": seed}
    status, body = asks.ask("POST", "/v1/datasets/synthetic", sheet)
    if status != http.HTTPStatus.CREATED:
        yield _refused("end to end", status, body)
        return
    dataset = json.loads(body)["id"]
    try:
        yield _fit_and_draw(asks, dataset, seed, started)
    finally:
        asks.ask("DELETE", f"/v1/datasets/{dataset}?force=true")


def _fit_and_draw(asks: _Http, dataset: str, seed: int, started: float) -> Check:
    name = "end to end"
    status, body = asks.ask("POST", "/v1/posteriors?wait=30", {"dataset": dataset})
    if status not in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}:
        return _refused(name, status, body)
    path = f"/v1/posteriors/{json.loads(body)['id']}/draws/0?wait=30"
    status, body = asks.ask("GET", path, accept="application/x-npy")
    if status != http.HTTPStatus.OK:
        return _refused(name, status, body)
    theirs = np.load(io.BytesIO(body), allow_pickle=False)
    ours = glle_engine.fit(manifolds.make("s_curve", POINTS, seed=seed).X).draw(0).embedding
    if theirs.shape != ours.shape or not np.allclose(theirs, ours, rtol=1e-4, atol=1e-4 * float(np.abs(ours).max())):
        remedy = "Look at the versions of glle, numpy and scipy there: the same draw is the same everywhere."
        return Check(name, "problem", "Its draw is another than the engine's here.", remedy)
    return Check(name, "ok", f"Uploaded, fitted and drew in {time.perf_counter() - started:.2f} s; the draw is right.")


def _refused(name: str, status: int, body: bytes) -> Check:
    """Return the check of an answer that is not what was asked for, in the service's own words."""
    try:
        told = json.loads(body)
        if status == http.HTTPStatus.ACCEPTED:
            remedy = "Look at the workers and their log: the queue may be long, or nothing works on it."
            return Check(name, "problem", f"The job {told['id']} did not end within 30 s ({told['status']}).", remedy)
        return Check(name, "problem", f"{status}: {told['detail']}", told["remedy"])
    except (ValueError, KeyError, TypeError):
        remedy = "Look at what is between: this is no answer of glle."
        return Check(name, "problem", f"It answers {status}, without a word that glle knows.", remedy)


@dataclass(frozen=True)
class _Http:
    """Asks one service; what it needs is in the standard library."""

    url: str
    seconds: float
    key: str = ""

    def ask(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> tuple[int, bytes]:
        """Return status and body of an answer."""
        parts = urlsplit(self.url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname is not None
        connection = kind(parts.hostname, parts.port, timeout=self.seconds)
        try:
            headers = {"Accept": accept, **({} if body is None else {"Content-Type": "application/json"})}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            sent = None if body is None else json.dumps(body)
            connection.request(method, parts.path.rstrip("/") + path, sent, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


def lines(check: Check) -> list[str]:
    """Return a check in words, its remedy below it."""
    told = [f"{_MARKS[check.state]:<8} {check.name}: {check.detail}"]
    return [*told, f"{'':<8} -> {check.remedy}"] if check.remedy else told


def summary(checks: Sequence[Check]) -> str:
    """Return how many checks are in which state."""
    counts = _counts(checks)
    return f"{counts['ok']} ok, {counts['warning']} to look at, {counts['problem']} to repair."


def as_json(checks: Sequence[Check]) -> str:
    """Return the report as an object: the checks, and how many are in each state."""
    return json.dumps({"counts": _counts(checks), "checks": [check.to_dict() for check in checks]}, indent=1)


def _counts(checks: Sequence[Check]) -> dict[str, int]:
    return {state: sum(check.state == state for check in checks) for state in _MARKS}
