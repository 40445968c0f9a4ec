"""API keys and passwords are in no log and no answer, even with debug logs and keys in the wrong place of a request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest

from tests.conftest import until
from tests.processes import command_line
from tests.system.conftest import Up, fit_posterior, glle, run_glle, running, synthetic
from worker.execution import process_guard

if TYPE_CHECKING:
    from pathlib import Path

    import redis

pytestmark = [
    pytest.mark.drill,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not process_guard.LINUX, reason="reads /proc"),
]

LIMIT_SECONDS = 120.0  # enough for a worker to start and be refused on a busy machine
SERVERS = ("GLLE_REDIS_URL", "GLLE_CACHE_URL")


def output(data: Path, *arguments: str, **settings: str) -> str:
    """Run a `glle` command beside the service, and return its output; a worker runs until it names the password."""
    settings = {"GLLE_DATA_DIR": str(data), **settings}
    if arguments[0] != "worker":
        result = glle(*arguments, **settings)
        return result.stdout + result.stderr
    with run_glle(data.parent / "worker.log", *arguments, **settings) as worker:  # it goes on trying
        until(lambda: "password" in worker.log.read_text() or worker.process.poll() is not None, LIMIT_SECONDS)
        return worker.log.read_text()


def requests_with_key(key: str) -> list[httpx.Request]:
    """Return requests that have the key in wrong places: query, path, body, headers; each with wrong logins, too."""
    url, json_ = "http://glle", {"Content-Type": "application/json"}
    secret = key.split("_", 2)[2]
    places = [
        httpx.Request("GET", f"{url}/v1/datasets?key={key}&limit={key}"),
        httpx.Request("GET", f"{url}/v1/datasets/{key}"),
        httpx.Request("GET", f"{url}/{key}"),
        httpx.Request("GET", f"{url}/v1/jobs/{key}/result"),
        httpx.Request("POST", f"{url}/v1/posteriors", json={"dataset": key, "key": key}),
        httpx.Request("POST", f"{url}/v1/posteriors", json={"dataset": "x", "n_neighbors": key}),
        httpx.Request("POST", f"{url}/v1/posteriors", content=f'{{"dataset": {key}', headers=json_),
        httpx.Request("POST", f"{url}/v1/datasets", content=f"x,y\n1,{key}\n", headers={"Content-Type": "text/csv"}),
        httpx.Request("POST", f"{url}/v1/datasets", content="x", headers={"Content-Type": key}),
        httpx.Request("GET", f"{url}/v1/info", headers={"Accept": key, "X-Request-Id": key}),
        httpx.Request("GET", f"{url}/v1/info", headers={"Host": key}),
    ]
    logins = [f"Bearer {key}", f"Bearer {key}x", f"Bearer  {key}", f"Basic {key}", key, f"Bearer {secret}", ""]
    return [
        httpx.Request(one.method, one.url, content=one.content, headers=[*one.headers.raw, (b"Authorization", login)])
        for one in places
        for login in (text.encode() for text in logins)
    ]


def stored_text(server: redis.Redis) -> str:
    """Return all keys and values of a Redis server as one text."""
    leaks = []
    for name in server.scan_iter(count=1000):
        leaks += [name, server.dump(name) or b""]
    return b"\n".join(leaks).decode("latin-1")


def folder(data: Path) -> dict[str, str]:
    """Return the content of all files in the data folder, by path, except for the file with the servers' URLs.

    Assert that only the owner can read this file.
    """
    (addresses,) = data.rglob("servers.json")
    assert addresses.stat().st_mode & 0o077 == 0
    return {
        str(path.relative_to(data)): path.read_text(encoding="latin-1")
        for path in data.rglob("*")
        if path.is_file() and path != addresses
    }


def answers_of(up: Up, key: str) -> dict[str, str]:
    """Send good requests, bad requests and requests with a misplaced key; return heads and bodies of the answers."""
    answers = {}
    with httpx.Client(base_url=up.url, timeout=60) as client:
        for number, request in enumerate(requests_with_key(key)):
            request.url = request.url.copy_with(host=urlsplit(up.url).hostname, port=urlsplit(up.url).port)
            answer = client.send(request)
            answers[f"{number} {request.method} {answer.status_code}"] = f"{answer.headers!r} {answer.text}"
        client.headers["Authorization"] = f"Bearer {key}"
        path = fit_posterior(client, synthetic(client, 100))
        for good in ("/metrics", "/v1/info", "/v1/jobs", f"{path}/draws/0?wait=30", path, "/readyz", "/openapi.json"):
            answer = client.get(good)
            answers[good] = f"{answer.headers!r} {answer.text}"
    return answers


def where(texts: dict[str, str], secrets: dict[str, str]) -> list[tuple[str, str]]:
    """Return (name of the text, name of the secret) for each text that contains a secret."""
    return [(place, name) for place, text in texts.items() for name, secret in secrets.items() if secret in text]


@pytest.mark.parametrize("form", ["json", "text"])
def test_secrets_do_not_leak(tmp_path: Path, form: str) -> None:
    """No secret is in an answer, a log, a command line, a file, a Redis server, or the output of a command."""
    data = tmp_path / "data"
    with running(tmp_path, GLLE_AUTH="required", GLLE_LOG_FORMAT=form, GLLE_LOG_LEVEL="debug") as up:
        key = output(data, "keys", "create", "--scope", "admin").splitlines()[0]
        urls = {name: up.redis_url(name) for name in SERVERS}
        secrets = {name: str(urlsplit(url).password) for name, url in urls.items()} | {"key": key.split("_", 2)[2]}
        assert all(len(secret) >= 32 for secret in secrets.values())
        texts = answers_of(up, key)
        assert len({place.rpartition(" ")[2] for place in texts}) > 5, "answers of many kinds"
        server = up.children("valkey-server")[0]
        os.kill(server, 9)  # produces error messages and tracebacks
        with httpx.Client(base_url=up.url, headers={"Authorization": f"Bearer {key}"}, timeout=60) as client:
            answer = client.get("/v1/jobs")
            texts["while a server is away"] = f"{answer.headers!r} {answer.text}"
            until(lambda: client.get("/readyz").status_code == 200)
        texts["doctor"] = output(data, "doctor", "--url", up.url, **urls, GLLE_KEY=key)
        wrong = {name: url.replace("redis://:", "redis://:not-") for name, url in urls.items()}
        for command in (("doctor",), ("worker",), ("settings", "--current")):
            texts[f"{command[0]}, wrong passwords"] = output(data, *command, **wrong)
        texts["settings"] = output(data, "settings", "--current", **urls)
        assert "password" in texts["worker, wrong passwords"]
        assert "***@" in texts["settings"]
        texts["keys list"] = output(data, "keys", "list")
        texts |= {f"process {pid}": command_line(pid) for pid in up.tree()}
        texts |= {name: stored_text(up.redis(name)) for name in SERVERS}
        texts |= folder(data)
    texts["log"] = up.log.read_text()
    assert '"level": "debug"' in texts["log"] or " debug " in texts["log"]
    assert where(texts, secrets) == []
