"""Forged files of an export: changed members, and posteriors that no fit makes."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import numpy as np

import glle_engine
from glle_engine import FitSpec
from tests.service.routes.posteriors.conftest import fit_posterior
from worker.records.ids import content_sha256

if TYPE_CHECKING:
    import httpx

ZIP = {"content-type": "application/zip"}
IMPORT = "/v1/posteriors/import"
Members = dict[str, np.ndarray[Any, Any]]


_EXPORTS: dict[str, bytes] = {}


def exported_fit(client: httpx.Client, **spec: Any) -> bytes:
    """Return the exported file of a fit that is deleted with its data; it is made once for all tests."""
    name = str(spec)
    if name not in _EXPORTS:
        path = fit_posterior(client, **spec)
        _EXPORTS[name] = client.get(path + "/export").content
        client.delete(client.get(path).json()["links"]["dataset"], params={"force": True}).raise_for_status()
    return _EXPORTS[name]


def import_file(client: httpx.Client, content: bytes, **headers: str) -> httpx.Response:
    """Return the response of an import."""
    return client.post(IMPORT, content=content, headers={**ZIP, **headers})


def pack_export(arrays: Members, **about: Any) -> bytes:
    """Return the file of changed members, with the digest of its arrays and changed members of `export.json`."""
    kept = {name: array for name, array in arrays.items() if not name.endswith(".json")}
    described = json.loads(arrays["export.json"].tobytes()) | {"arrays_sha256": content_sha256({}, kept)} | about
    file = io.BytesIO()
    np.savez_compressed(file, allow_pickle=False, **{**arrays, "export.json": json_member(described)})
    return file.getvalue()


def json_member(value: Any) -> np.ndarray[Any, Any]:
    """Return JSON as the bytes of a member."""
    return np.frombuffer(json.dumps(value).encode(), np.uint8)


def on_graph(neighbors: np.ndarray[Any, Any], pins: list[int]) -> bytes:
    """Return the file of a posterior on a graph (n, k), with equal weights, no fit and no duration."""
    n, k = neighbors.shape
    turn = 2 * np.pi * np.arange(n) / n
    arrays: Members = {
        "neighbors": np.sort(neighbors, axis=1).astype(np.int32),
        "mean": np.full((n, k), 1 / k),
        "covariance_factor": np.zeros((n, k, k)),
        "prior_factor": np.ones(n),
        "embedding": np.sqrt(2) * np.stack([np.cos(turn), np.sin(turn)], axis=1),
        "eigenvalues": np.array([0.1, 0.1, 0.2]),
        "order": np.arange(n, dtype=np.int32),
        "pins": np.array(pins, np.int32),
    }
    spec = FitSpec(n_neighbors=k).to_dict()
    head = {
        "version": "0", "data_sha256": "a" * 64, "spec": spec, "prior_mean": 1 / k,
        "diagnostics": {"figures": {}, "notes": []},
    }  # fmt: skip
    about = {
        "export": 1,
        "posterior": {"spec": spec, "seconds": 0, "provenance": {"numbers": glle_engine.NUMBERS}, "job": "job_1"},
        "dataset": {"sha256": "a" * 64, "n": n, "d": 3, "dtype": "float64", "names": None},
    }
    return pack_export({**arrays, "head.json": json_member(head), "export.json": json_member(about)})


def random_graph(n: int, k: int) -> bytes:
    """Return the file of a posterior on random neighbors, whose factors fill in: one closed class, by a ring."""
    rng = np.random.default_rng(0)
    others = np.stack([rng.choice(n - 2, k - 1, replace=False) for _ in range(n)]) + 2
    steps = np.concatenate([np.ones((n, 1), int), others], axis=1)
    return on_graph((np.arange(n)[:, None] + steps) % n, [0])


def separate_classes(n: int, size: int) -> bytes:
    """Return the file of a posterior whose graph is complete groups of points, each a closed class."""
    first = np.arange(n)[:, None] // size * size
    within = (np.arange(n)[:, None] - first + np.arange(1, size)) % size
    return on_graph(first + within, list(range(0, n, size)))
