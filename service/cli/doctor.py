"""`glle doctor`: check a deployment from the outside and the inside, and print remedies."""

from __future__ import annotations

import json
import secrets
import socket
import time
from typing import TYPE_CHECKING

import httpx
import numpy as np

import glle_engine
from glle.cli import VARIABLES
from glle.client import Client, GlleServiceError, JobTimeoutError, Retries
from glle.transport.session import http_options
from glle_engine import manifolds
from service.middleware.access_policy import AccessPolicy
from service.server.listening import answers, connectable
from worker.base.settings import SettingsError, unknown_variables
from worker.operations import doctor
from worker.operations.health import Check

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from glle.types import FitOptions
    from worker.base.settings import Settings

RESPONSE_SECONDS = 60.0
PORT_SECONDS = 2.0
DRAW_SECONDS = 30.0
FIT_SECONDS = 90.0  # includes three retries of a task whose worker died
# So many that a worker forks a process for the task. It takes some seconds, because a shorter task may end before its
# dying worker; the posterior has 25 MB.
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
    try:
        socket.create_connection((connectable(host), number), PORT_SECONDS).close()
    except OSError:
        return Check(name, "ok", f"Nothing listens on {host}:{number}.")
    if answers(host, number, "/livez", PORT_SECONDS):
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
    try:
        with httpx.Client(**http_options(url, key or None, RESPONSE_SECONDS)) as http:
            if (status := http.get("/livez").status_code) != httpx.codes.OK:
                remedy = "Check the URL and the proxies: another program may answer."
                yield Check("service", "problem", f"/livez answers {status}.", remedy)
                return
            yield Check("service", "ok", f"It is alive at {url}.")
            yield _readiness(http.get("/readyz"))
        with Client(url, key, progress=False, retries=Retries(deadline=0.0), timeout=RESPONSE_SECONDS) as client:
            yield from _end_to_end(client)
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:  # of another program
        remedy = "Check the URL, the log of the API, and the network."
        yield Check("service", "problem", f"{url} does not answer: {type(error).__name__}: {error}.", remedy)


def _readiness(response: httpx.Response) -> Check:
    state = response.json()
    if response.status_code != httpx.codes.OK:
        return Check("ready", "problem", f"{response.status_code}: {state['detail']}", state["remedy"])
    if "workers" not in state:
        return Check("ready", "ok", "It is ready. Set GLLE_KEY for details.")
    waiting = f"{state['queue_length']} tasks and draws wait"
    return Check("ready", "ok", f"It is ready: {state['workers']} workers, {waiting}.")


def _end_to_end(client: Client) -> Iterator[Check]:
    """Yield whether the version matches, and whether a fit and a draw match the local engine."""
    name, work = "version", ""
    try:
        info = client.info()
        remote, local = info["versions"]["glle"], glle_engine.__version__
        remedy = "" if remote == local else "Check which version the service should run."
        yield Check(name, "ok" if remote == local else "warning", f"Service {remote}, local {local}.", remedy)
        seed = secrets.randbelow(2**31)  # no result is cached
        points = min(POINTS, int(info["limits"]["max_points"]))
        name, work = "long task", f"A fit of {points:,} points failed. "
        spec: FitOptions = {"n_neighbors": min(NEIGHBORS, int(info["limits"]["max_neighbors"])), "noise": "auto"}
        dataset = client.synthetic("s_curve", points, seed=seed)
        try:
            started = time.perf_counter()
            posterior = client.fit(dataset, timeout=FIT_SECONDS, **spec)
            yield Check(name, "ok", f"Fitted {points:,} points in {time.perf_counter() - started:.2f} s.")
            name, work, started = "end to end", "A draw failed. ", time.perf_counter()
            draw = posterior.draw(0, timeout=DRAW_SECONDS)
            seconds = time.perf_counter() - started
        finally:
            dataset.delete(force=True)
    except JobTimeoutError as error:
        remedy = "Check the workers and their log: the queue may be long, or no worker runs."
        yield Check(name, "problem", f"{work}{error.detail}", remedy)
        return
    except GlleServiceError as error:
        yield Check(name, "problem", f"{work}{error.status}: {error.detail}", error.remedy)
        return
    local_draw = glle_engine.fit(manifolds.make("s_curve", points, seed=seed).X, **spec).draw(0).embedding
    tolerance = 1e-4 * float(np.abs(local_draw).max())
    if draw.shape == local_draw.shape and np.allclose(draw, local_draw, rtol=1e-4, atol=tolerance):
        yield Check(name, "ok", f"Drew in {seconds:.2f} s; the draw is correct.")
    else:
        remedy = "Compare the versions of glle, numpy and scipy: the same draw is equal everywhere."
        yield Check(name, "problem", "Its draw differs from the local engine's.", remedy)


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
