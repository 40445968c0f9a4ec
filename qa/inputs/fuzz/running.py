"""Run schemathesis against a service that already has a data set, a posterior and a job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from string import Template

from glle import Client
from service.cli.data_folder import connect_stores
from worker.base.settings import Settings

ROOT = Path(__file__).resolve().parents[3]
CONFIG = Path(__file__).with_name("schemathesis.toml.in")

# Small limits, so that no random request takes long.
LIMITS = {
    "GLLE_MAX_POINTS": "1000",
    "GLLE_CACHE_BYTES": "4MiB",  # bounds the draws of a job
    "GLLE_METHOD_BYTES": "64MiB",
    "GLLE_JOB_TIMEOUT": "20",
    "GLLE_AUTH": "required",  # so that requests without a key occur, too
}


def make_key(folder: Path) -> str:
    """Create an admin key of the service whose data folder is below `folder`, and return the key."""
    with connect_stores(Settings(data_dir=str(folder / "data"))) as stores:
        return stores.keys.create("default", ("admin",), "fuzz", None)[1]


def fuzz(url: str, folder: Path, key: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Create a data set, a posterior and a job, and run schemathesis against the service at `url`.

    Parameters
    ----------
    folder
        Folder for temporary files.
    key
        An admin key of the service.
    options
        Options of `schemathesis run`.

    """
    with Client(url, key=key) as glle:
        dataset = glle.synthetic("swiss_roll", 200)
        posterior = glle.fit(dataset)
        job = posterior.start_draws(2).wait()
        embedding = glle.embed(dataset, "pca", scores=()).id
        written = Template(CONFIG.read_text(encoding="utf-8"))
        config = folder / "schemathesis.toml"
        text = written.substitute(dataset=dataset.id, posterior=posterior.id, job=job.id, embedding=embedding)
        config.write_text(text, encoding="utf-8")
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "qa.inputs.fuzz.checks", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"{url}/openapi.json"]
    command += ["--header", f"Authorization: Bearer {key}"]
    return subprocess.run(
        [*command, "--no-color", *options], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def broken(url: str, key: str) -> list[str]:
    """Return the errors of the jobs that failed with status 500, which is a fault of the service."""
    with Client(url, key=key) as glle:
        errors = [job.metadata["error"] for job in glle.jobs(status="failed")]
    return [f"{error['detail']} {error['details']}" for error in errors if error and error["status"] == 500]
