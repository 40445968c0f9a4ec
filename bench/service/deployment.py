"""A running `glle up` for the benchmarks, and an HTTP client of low cost."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from tests.system.arrays import to_npy
from tests.system.conftest import Up, running

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

HEARTBEAT = 60  # seconds; rare, so that maintenance is not counted as commands of a draw
NPY = "application/x-npy"


class Http:
    """HTTP client with one open connection, over `http.client`, which takes a tenth of a millisecond for a request."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        assert parts.hostname
        self._connection = HTTPConnection(parts.hostname, parts.port, timeout=600)

    def npy(self, path: str) -> bytes:
        """Return the npy body that a GET is answered with."""
        return self._answer("GET", path, None, {"Accept": NPY}, {200})

    def get(self, path: str) -> dict[str, Any]:
        """Return the JSON that a GET is answered with."""
        body: dict[str, Any] = json.loads(self._answer("GET", path, None, {}, {200, 202}))
        return body

    def post(self, path: str, body: dict[str, Any] | bytes) -> dict[str, Any]:
        """Post a JSON body, or the bytes of an npy file, and return the JSON answer."""
        media = NPY if isinstance(body, bytes) else "application/json"
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        answer: dict[str, Any] = json.loads(self._answer("POST", path, sent, {"Content-Type": media}, {200, 201, 202}))
        return answer

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _answer(self, method: str, path: str, body: bytes | None, headers: dict[str, str], good: set[int]) -> bytes:
        self._connection.request(method, "/v1" + path, body, headers)
        with self._connection.getresponse() as answer:
            received = answer.read()
            if answer.status not in good:
                raise RuntimeError(f"{method} {path}: {answer.status} {received[:500].decode(errors='replace')}")
            return received


@dataclass
class Service:
    """A running service.

    Attributes
    ----------
    http : Http
        Client with an open connection.
    urls : dict
        URLs of both Redis servers by name.
    up : Up
        Its processes.

    """

    http: Http
    urls: dict[str, str]
    up: Up

    @property
    def apis(self) -> int:
        """Number of API processes."""
        return len(self.up.apis())

    def fit_synthetic(self, name: str, n: int, seed: int = 0) -> str:
        """Fit a posterior to a synthetic data set of n points, and return its URL path."""
        dataset = self.http.post("/datasets/synthetic", {"name": name, "n": n, "seed": seed})
        return self.posterior(dataset["id"])

    def upload(self, X: NDArray[np.float64]) -> str:
        """Upload points; return the id of the data set."""
        return str(self.http.post("/datasets", to_npy(X))["id"])

    def posterior(self, dataset: str) -> str:
        """Fit a data set, and return the path of the posterior."""
        record = self.http.post("/posteriors?wait=60", {"dataset": dataset, "n_neighbors": 10})
        if "eigenvalues" not in record:
            raise RuntimeError(f"the fit did not succeed: {record}")
        return f"/posteriors/{record['id']}"


@contextmanager
def running_service(workers: int, apis: int, heartbeat: int = HEARTBEAT) -> Iterator[Service]:
    """Run `glle up` with embedded servers until the end of the block."""
    with tempfile.TemporaryDirectory(prefix="glle-bench-") as folder:
        settings = {"GLLE_WORKERS": str(workers), "GLLE_API_PROCESSES": str(apis)}
        with running(Path(folder), **settings, GLLE_HEARTBEAT=str(heartbeat), GLLE_LOG_LEVEL="warning") as up:
            urls = {"queue": up.redis_url("GLLE_REDIS_URL"), "cache": up.redis_url("GLLE_CACHE_URL")}
            http = Http(up.url)
            yield Service(http, urls, up)
            http.close()
