"""`glle doctor`: check a deployment from the outside and the inside, and print remedies."""

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
from service.middleware.access_policy import AccessPolicy
from worker.base.settings import SettingsError, unknown_variables
from worker.operations import doctor
from worker.operations.health import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from worker.base.settings import Settings

RESPONSE_SECONDS = 60.0
WAIT_SECONDS = 30  # of one request; a service may wait for less
PAUSE_SECONDS = 0.5  # between two requests
FIT_SECONDS = 90.0  # includes three retries of a task whose worker died
# More than a quick fit has (worker/records/job.py), so that a worker forks a process for the task. It takes some
# seconds, because a shorter task may end before its dying worker; the posterior has 25 MB.
POINTS, NEIGHBORS = 5000, 25
_MARKS = {"ok": "ok", "warning": "warning", "problem": "PROBLEM"}


def examine(settings: Settings, environ: Mapping[str, str], url: str | None) -> Iterator[Check]:
    """Yield all checks; with a URL also those of the service at it."""
    misspelt = sorted(set(unknown_variables(environ)) - VARIABLES)
    if misspelt:
        remedy = "Correct or remove them. `glle settings` lists the settings."
        yield Check("settings", "warning", f"Not settings: {', '.join(misspelt)}.", remedy)
    else:
        yield Check("settings", "ok", "All GLLE_* variables are settings.")
    yield access(settings)
    yield from doctor.deployment(settings)
    if url is None:
        yield port(settings.host, settings.port)
    else:
        yield from service(url, environ.get("GLLE_KEY", ""))


def access(settings: Settings) -> Check:
    """Check that the service would start, and not admit every web page."""
    try:
        warning = AccessPolicy(settings).page_warning
    except SettingsError as error:
        return Check("access", "problem", str(error), "Correct that setting: the service does not start with it.")
    if warning:
        return Check("access", "warning", warning, "Name the origins, or set GLLE_AUTH=required.")
    return Check("access", "ok", "Web pages of other origins have no access without a key, except the named ones.")


def port(host: str, number: int) -> Check:
    """Check that the port is free or belongs to glle."""
    name = f"port {number}"
    if number == 0:
        return Check(name, "ok", "The service will take a free port.")
    target = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 # compared, not bound
    try:
        status, _ = _Http(f"http://{f'[{target}]' if ':' in target else target}:{number}", 2.0).request("GET", "/livez")
    except ConnectionRefusedError:
        return Check(name, "ok", f"Nothing listens on {host}:{number}.")
    except (OSError, http.client.HTTPException):
        status = 0
    if status == http.HTTPStatus.OK:
        return Check(name, "ok", f"glle answers on {host}:{number}.")
    remedy = "Choose another port with GLLE_PORT, or stop that program."
    return Check(name, "problem", f"Another program listens on {host}:{number}.", remedy)


def service(url: str, key: str = "") -> Iterator[Check]:
    """Yield checks that a service is alive, ready, of this version, and completes a small job.

    Parameters
    ----------
    key
        API key, if the service needs one.

    """
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        yield Check("service", "problem", f"{url} is not the URL of a service.", "Use one such as http://host:8000.")
        return
    server = _Http(url, RESPONSE_SECONDS, key)
    try:
        status, _ = server.request("GET", "/livez")
        if status != http.HTTPStatus.OK:
            remedy = "Check the URL and the proxies: another program may answer."
            yield Check("service", "problem", f"/livez answers {status}.", remedy)
            return
        yield Check("service", "ok", f"It is alive at {url}.")
        yield _readiness(*server.request("GET", "/readyz"))
        yield from _end_to_end(server)
    except (OSError, http.client.HTTPException, ValueError) as error:
        remedy = "Check the URL, the log of the API, and the network."
        yield Check("service", "problem", f"{url} does not answer: {type(error).__name__}: {error}.", remedy)


def _readiness(status: int, body: bytes) -> Check:
    if status == http.HTTPStatus.OK:
        state = json.loads(body)
        if "workers" not in state:
            return Check("ready", "ok", "It is ready. Set GLLE_KEY for details.")
        waiting = f"{state['queue_length']} tasks and draws wait"
        return Check("ready", "ok", f"It is ready: {state['workers']} workers, {waiting}.")
    return _failure("ready", status, body)


def _end_to_end(server: _Http) -> Iterator[Check]:
    """Yield whether the version matches, and whether a fit and a draw match the local engine."""
    status, body = server.request("GET", "/v1/info")
    if status != http.HTTPStatus.OK:
        yield _failure("version", status, body)
        return
    remote, local = json.loads(body)["versions"]["glle"], glle_engine.__version__
    same = remote == local
    remedy = "" if same else "Check which version the service should run."
    yield Check("version", "ok" if same else "warning", f"Service {remote}, local {local}.", remedy)

    # A random seed, so that no result is cached.
    limits, seed = json.loads(body)["limits"], secrets.randbelow(2**31)
    points = min(POINTS, limits["max_points"])
    spec = {"n_neighbors": min(NEIGHBORS, limits["max_neighbors"]), "noise": "auto"}
    recipe = {"name": "s_curve", "n": points, "seed": seed}
    status, body = server.request("POST", "/v1/datasets/synthetic", recipe)
    if status != http.HTTPStatus.CREATED:
        yield _failure("end to end", status, body)
        return
    dataset = json.loads(body)["id"]
    try:
        yield from _fit_and_draw(server, dataset, manifolds.make("s_curve", points, seed=seed).X, spec)
    finally:
        server.request("DELETE", f"/v1/datasets/{dataset}?force=true")


def _fit_and_draw(server: _Http, dataset: str, X: NDArray[np.float64], spec: dict[str, Any]) -> Iterator[Check]:
    """Yield whether a long fit succeeds, and whether a draw of its posterior is the local engine's."""
    started = time.perf_counter()
    status, body = _fit(server, {"dataset": dataset, **spec})
    if status not in {http.HTTPStatus.OK, http.HTTPStatus.CREATED}:
        yield _failure("long task", status, body, f"A fit of {len(X):,} points failed. ")
        return
    yield Check("long task", "ok", f"Fitted {len(X):,} points in {time.perf_counter() - started:.2f} s.")
    name, started = "end to end", time.perf_counter()
    path = f"/v1/posteriors/{json.loads(body)['id']}/draws/0?wait={WAIT_SECONDS}"
    status, body = server.request("GET", path, accept="application/x-npy")
    if status != http.HTTPStatus.OK:
        yield _failure(name, status, body)
        return
    seconds = time.perf_counter() - started
    remote = np.load(io.BytesIO(body), allow_pickle=False)
    local = glle_engine.fit(X, **spec).draw(0).embedding
    if remote.shape != local.shape or not np.allclose(remote, local, rtol=1e-4, atol=1e-4 * float(np.abs(local).max())):
        remedy = "Compare the versions of glle, numpy and scipy: the same draw is equal everywhere."
        yield Check(name, "problem", "Its draw differs from the local engine's.", remedy)
        return
    yield Check(name, "ok", f"Drew in {seconds:.2f} s; the draw is correct.")


def _fit(server: _Http, command: dict[str, Any]) -> tuple[int, bytes]:
    """Return the response with the posterior of a fit, or with what prevents it."""
    until = time.monotonic() + FIT_SECONDS
    status, body = server.request("POST", f"/v1/posteriors?wait={WAIT_SECONDS}", command)
    while status == http.HTTPStatus.ACCEPTED and time.monotonic() < until:
        time.sleep(PAUSE_SECONDS)
        path = f"/v1/posteriors/{json.loads(body)['posterior']}?wait={WAIT_SECONDS}"
        status, body = server.request("GET", path)
    return status, body


def _failure(name: str, status: int, body: bytes, what: str = "") -> Check:
    """Return the check of an unexpected response: what failed, and the service's own detail and remedy."""
    try:
        answer = json.loads(body)
        if status == http.HTTPStatus.ACCEPTED:
            remedy = "Check the workers and their log: the queue may be long, or no worker runs."
            return Check(name, "problem", f"{what}Job {answer['id']} did not end in time ({answer['status']}).", remedy)
        return Check(name, "problem", f"{what}{status}: {answer['detail']}", answer["remedy"])
    except (ValueError, KeyError, TypeError):
        remedy = "Check the proxies: this is not a response of glle."
        return Check(name, "problem", f"{what}It answers {status} with a body that glle does not know.", remedy)


@dataclass(frozen=True)
class _Http:
    """HTTP client for one service, by the standard library alone."""

    url: str
    seconds: float
    key: str = ""

    def request(self, method: str, path: str, body: Any = None, accept: str = "application/json") -> tuple[int, bytes]:
        """Return status and body of a response."""
        parts = urlsplit(self.url)
        connection_type = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        assert parts.hostname is not None
        connection = connection_type(parts.hostname, parts.port, timeout=self.seconds)
        try:
            headers = {"Accept": accept, **({} if body is None else {"Content-Type": "application/json"})}
            if self.key:
                headers["Authorization"] = f"Bearer {self.key}"
            content = None if body is None else json.dumps(body)
            connection.request(method, parts.path.rstrip("/") + path, content, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()


def lines(check: Check) -> list[str]:
    """Return a check as text, with its remedy on a second line."""
    text = [f"{_MARKS[check.state]:<8} {check.name}: {check.detail}"]
    return [*text, f"{'':<8} -> {check.remedy}"] if check.remedy else text


def summary(checks: Sequence[Check]) -> str:
    """Return the number of checks in each state, as a sentence."""
    counts = _counts(checks)
    return f"{counts['ok']} ok, {counts['warning']} warnings, {counts['problem']} problems."


def as_json(checks: Sequence[Check]) -> str:
    """Return the report as a JSON object: the checks and the number in each state."""
    return json.dumps({"counts": _counts(checks), "checks": [check.to_dict() for check in checks]}, indent=1)


def _counts(checks: Sequence[Check]) -> dict[str, int]:
    return {state: sum(check.state == state for check in checks) for state in _MARKS}
