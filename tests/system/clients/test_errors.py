"""User errors: each is a 4xx problem with its remedy, and the service continues."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import numpy as np

from glle_engine import manifolds
from tests.system.arrays import check, to_npy, upload
from tests.system.conftest import fit_posterior, wait_for_end

if TYPE_CHECKING:
    import httpx

    from tests.system.conftest import Up

SHEET = manifolds.make("s_curve", 150, seed=0).X


def test_disconnected_graph_names_the_k_that_connects(client: httpx.Client) -> None:
    """Every route reports the worker's problem, and the k in its remedy connects it; by default there is a bridge."""
    two = np.vstack([SHEET[:60], SHEET[:60] + 50.0])
    dataset = upload(client, to_npy(two)).json()["id"]
    body = {"dataset": dataset, "n_neighbors": 5, "disconnected": "error"}
    problem = check(client.post("/v1/posteriors?wait=30", json=body), 422, "disconnected-graph")
    job = client.post("/v1/posteriors", json=body).json()
    result = wait_for_end(client, job["id"])
    assert (result["status"], result["error"]) == ("failed", problem)
    assert check(client.get(job["links"]["posterior"]), 422, "disconnected-graph") == problem
    assert check(client.get(job["links"]["self"] + "/result"), 422, "disconnected-graph") == problem
    enough = max(value for value in problem["details"].values() if isinstance(value, int) and value > 5)
    assert str(enough) in problem["remedy"]
    fit_posterior(client, dataset, n_neighbors=enough)
    bridged = client.get(fit_posterior(client, dataset, n_neighbors=5)).json()
    assert bridged["spec"]["disconnected"] == "bridge"
    assert bridged["diagnostics"]["figures"]["n_bridges"] == 1
    assert bridged["diagnostics"]["notes"][0]["code"] == "bridged"


def test_a_body_of_ten_gigabytes_is_refused_unread(up: Up, client: httpx.Client) -> None:
    """The response is 413 without reading the body; memory stays flat, and the service continues."""
    before = {api: resident(api) for api in up.apis()}
    for path in ("/v1/datasets", "/v1/posteriors"):
        host, port = urlsplit(up.url).netloc.split(":")
        with socket.create_connection((host, int(port)), timeout=10) as raw:
            kind = "application/x-npy" if path.endswith("datasets") else "application/json"
            head = (
                f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: {kind}\r\nContent-Length: 10000000000\r\n\r\n"
            )
            raw.sendall(head.encode())
            answer = b""
            while b"body-too-large" not in answer and (piece := raw.recv(65536)):
                answer += piece
            assert answer.startswith(b"HTTP/1.1 413"), answer
            assert b"application/problem+json" in answer
    assert [api for api in before if resident(api) >= before[api] + 10 * 2**20] == []
    assert client.get("/livez").status_code == 200


def test_huge_header_allocates_nothing(up: Up, client: httpx.Client) -> None:
    """An npy header of a terabyte without data is refused by its limits; memory stays flat."""
    before = {api: resident(api) for api in up.apis()}
    header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (1000000, 10000)}\n"
    body = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
    problem = check(upload(client, body), 422, "truncated-npy")
    assert problem["details"] == {"announced": 8 * 10**10, "came": 0}
    assert [api for api in before if resident(api) >= before[api] + 10 * 2**20] == []


def resident(pid: int) -> int:
    """Return the resident memory of a process, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096
