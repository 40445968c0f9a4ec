"""One run of schemathesis against a running service that has a data set, a posterior and a job already."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from string import Template

from service.client import Client

ROOT = Path(__file__).resolve().parents[2]
CONFIG = Path(__file__).with_name("schemathesis.toml.in")

# Small enough that nothing which is asked by chance takes long.
LIMITS = {
    "GLLE_MAX_POINTS": "1000",
    "GLLE_MAX_FEATURES": "20",
    "GLLE_MAX_NEIGHBORS": "20",
    "GLLE_MAX_COMPONENTS": "5",
    "GLLE_MAX_DRAWS": "20",
    "GLLE_MAX_WAIT": "0.2",
    "GLLE_JOB_TIMEOUT": "20",
}


def fuzz(url: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Fuzz the service at `url`; return what schemathesis said, and its exit code.

    Parameters
    ----------
    folder
        Where it may leave files.
    more
        Options of `schemathesis run`.

    """
    with Client(url) as glle:
        dataset = glle.synthetic("swiss_roll", 200)
        posterior = glle.fit(dataset)
        job = posterior.start_draws(2).wait()
        written = Template(CONFIG.read_text(encoding="utf-8"))
        config = folder / "schemathesis.toml"
        text = written.substitute(dataset=dataset.id, posterior=posterior.id, job=job.id)
        config.write_text(text, encoding="utf-8")
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "tests.fuzz.checks", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run", f"{url}/openapi.json"]
    return subprocess.run(
        [*command, "--no-color", *more], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def broken(url: str) -> list[str]:
    """Return what jobs failed with that is the service's own fault."""
    with Client(url) as glle:
        errors = [job.told["error"] for job in glle.jobs(status="failed")]
    return [f"{error['detail']} {error['details']}" for error in errors if error and error["status"] == 500]
