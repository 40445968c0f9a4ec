"""A client of the API, as any user would write one: upload, fit, draw, wait, fetch."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import httpx
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

OnProgress = Callable[[int, int, str], None]


class Client:
    """Talks to one service.

    Parameters
    ----------
    url
        Such as http://127.0.0.1:8000.

    """

    def __init__(self, url: str) -> None:
        self._http = httpx.Client(base_url=url + "/v1", timeout=120, trust_env=False)

    def upload(self, X: NDArray[Any]) -> str:
        """Post a matrix as npy; return the data set's id."""
        body = io.BytesIO()
        np.save(body, X)
        response = self._http.post("/datasets", content=body.getvalue(), headers={"Content-Type": "application/x-npy"})
        return str(self._checked(response).json()["id"])

    def synthetic(self, name: str, n: int) -> str:
        """Have the service make a sheet; return the data set's id."""
        return str(self._checked(self._http.post("/datasets/synthetic", json={"name": name, "n": n})).json()["id"])

    def data(self, dataset: str) -> dict[str, NDArray[Any]]:
        """Fetch a data set: `data`, and `coordinates` where they are known."""
        return self._npz(f"/datasets/{dataset}/data")

    def fit(self, dataset: str, on_progress: OnProgress | None = None, **spec: Any) -> dict[str, Any]:
        """Fit a posterior, or find it fitted; return its description."""
        response = self._checked(self._http.post("/posteriors", json={"dataset": dataset, **spec}))
        if response.status_code == httpx.codes.ACCEPTED:
            self._wait(response, on_progress)
            response = self._checked(self._http.get(f"/posteriors/{response.json()['posterior']}"))
        described: dict[str, Any] = response.json()
        return described

    def arrays(self, posterior: str) -> dict[str, NDArray[Any]]:
        """Fetch a posterior's arrays."""
        return self._npz(f"/posteriors/{posterior}/arrays")

    def draws(self, posterior: str, on_progress: OnProgress | None = None, **spec: Any) -> dict[str, NDArray[Any]]:
        """Draw embeddings; return `embeddings` and `eigenvalues`."""
        response = self._checked(self._http.post(f"/posteriors/{posterior}/draws", json=spec))
        job = response.json()
        if response.status_code == httpx.codes.ACCEPTED:
            self._wait(response, on_progress)
        return self._npz(f"/jobs/{job['id']}/result")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _wait(self, response: httpx.Response, on_progress: OnProgress | None) -> None:
        """Follow a job to its end by long polls short enough for a smooth bar."""
        job = response.json()
        while job["status"] in {"queued", "running", "cancelling"}:
            job = self._checked(self._http.get(f"/jobs/{job['id']}", params={"wait": 0.2})).json()
            if on_progress is not None:
                on_progress(job["progress"]["done"], job["progress"]["total"], job["progress"]["stage"])
        if job["status"] != "succeeded":
            raise RuntimeError(f"Job {job['id']} {job['status']}: {job['error']}")

    def _npz(self, path: str) -> dict[str, NDArray[Any]]:
        response = self._checked(self._http.get(path, headers={"Accept": "application/zip"}))
        with np.load(io.BytesIO(response.content), allow_pickle=False) as file:
            return {name: file[name] for name in file.files}

    @staticmethod
    def _checked(response: httpx.Response) -> httpx.Response:
        """Return the response, or raise with the problem's own words."""
        if response.is_error:
            problem = response.json()
            raise RuntimeError(f"{problem['title']}: {problem['detail']} {problem.get('remedy', '')}")
        return response
