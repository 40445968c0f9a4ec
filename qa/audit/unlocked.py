"""`make -C qa unlocked`: try both distributions with the newest dependencies that their bounds allow.

They are installed without a lock file into a new environment outside the repository: first `glle[client]` alone, with
which the quickstart page runs against a service of the repository, then the server. Then a service starts from this
environment, a client fits 5,000 points and draws, and `glle doctor` finds no problem. Without a package index nothing
is checked: the program says so and exits with 0, or with 1 if UNLOCKED=required.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from qa.inputs.clients.npm import UnavailableError
from tests.docs.pages import blocks
from tests.system.conftest import ONE_EACH, ROOT, run_glle, running

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.system.conftest import Up

PAGE = ROOT / "docs" / "tutorials" / "quickstart.md"
EXAMPLE = Path("docs", "examples", "sheet.csv")
PLOTTING = ("matplotlib", "pandas")  # of the Python blocks
SERVER = ("fastapi", "redis", "rq", "uvicorn", "pydantic", "service", "worker")
SECONDS = 600
CHECKS = """
assert draws.shape == (100, 300, 2), draws.shape
assert placed.embedding.shape == (5, 2), placed.embedding.shape
assert list(table.columns) == ["y1", "y2"], table.columns
"""
UV = ROOT / ".venv-audit" / "bin" / "uv"
DISTRIBUTIONS = (ROOT, ROOT / "deploy" / "server")
# Errors of pip and uv that say that the index, or the way to it, is down.
NETWORK = re.compile(
    r"NewConnectionError|ConnectTimeout|ReadTimeout|Max retries|name resolution|ProxyError|SSLError"
    r"|error sending request|Could not connect|dns error|timed out|tcp connect error"
)
# Of a worker's child that died; RQ catches some errors, and another child does the work.
BROKEN = re.compile(r"^(?:.*(?:unhandled exception|is replaced)|\w*Error\b).*$", re.MULTILINE)
# A fit of so many points is a long task, for which a worker forks a process.
PROGRAM = """
import sys
import numpy as np
from glle import Client
from glle_engine import manifolds, ranks

X = manifolds.make("swiss_roll", 5000, seed=1).X
with Client(sys.argv[1], progress=False) as client:
    posterior = client.fit(X, n_neighbors=25, noise="auto")
    draws = posterior.draws(8)
    again = posterior.draw(3)
assert draws.shape == (8, 5000, 2), draws.shape
assert np.isfinite(draws).all()
assert np.array_equal(draws[3], again), "a single draw differs from that of a draws job"
assert not np.array_equal(draws[0], draws[1]), "two draws are equal"
trustworthiness = ranks.trustworthiness(X, draws[0])
assert trustworthiness > 0.9, trustworthiness
print(f"Fitted 5,000 points and drew 8 embeddings; trustworthiness {trustworthiness:.3f}.")
"""


def run_page(python: Path, folder: Path, url: str, install: Callable[..., object]) -> None:
    """Run the quickstart's commands in the environment of the client, and then its Python blocks.

    `install` installs packages: the Python blocks also need matplotlib and pandas.
    """
    require_client_only(python, folder)
    here = folder / "user"
    (here / EXAMPLE.parent).mkdir(parents=True)
    shutil.copy(ROOT / EXAMPLE, here / EXAMPLE)
    posterior = "post_..."
    for line in commands():
        words = shlex.split(line.replace("post_...", posterior), comments=True)
        printed = run(python.with_name(words[0]), *words[1:], cwd=here, GLLE_URL=url)
        posterior = printed.split()[0] if words[1] == "fit" else posterior
    for name in ("draws.npy", "spread.csv"):
        if not (here / name).is_file():
            raise RuntimeError(f"The commands of {PAGE.name} wrote no {name}.")
    install(python, *PLOTTING)
    program = here / "quickstart.py"
    program.write_text("\n".join([*blocks(PAGE, "python"), CHECKS]), encoding="utf-8")
    run(python, "-I", str(program), cwd=here, GLLE_URL=url, MPLBACKEND="Agg")
    require_client_only(python, folder)


def commands() -> list[str]:
    """Return the lines of the quickstart that are `glle` commands."""
    return [line for block in blocks(PAGE, "sh") for line in block.splitlines() if line.startswith("glle ")]


def require_client_only(python: Path, folder: Path) -> None:
    """Raise RuntimeError if an interpreter finds a package of the server, or no client."""
    program = f"from importlib.util import find_spec; print(*[n for n in {('glle', *SERVER)!r} if find_spec(n)])"
    if (packages := run(python, "-I", "-c", program, cwd=folder).split()) != ["glle"]:
        raise RuntimeError(
            f"The environment of the client has {', '.join(packages) or 'nothing'}; glle alone is right."
        )


def run(python: Path, *words: str, cwd: Path, **environment: str) -> str:
    """Run a program in the folder `cwd` and return its output; raise RuntimeError with its errors if it fails.

    Variables of this process that would change the result, such as PYTHONPATH, are left out.
    """
    kept = {name: value for name, value in os.environ.items() if name not in {"PYTHONPATH", "GLLE_KEY", "GLLE_URL"}}
    command = [str(python), *words]
    variables = {**kept, **environment}
    done = subprocess.run(command, cwd=cwd, env=variables, capture_output=True, text=True, timeout=SECONDS, check=False)
    if done.returncode:
        raise RuntimeError(f"{python.name} {' '.join(words)[:200]} failed:\n{done.stdout[-2000:]}{done.stderr[-6000:]}")
    return done.stdout


def main() -> int:
    """Run all steps of the check; return 0, or 1 for a failure."""
    is_required = os.environ.get("UNLOCKED") == "required"
    with tempfile.TemporaryDirectory(prefix="glle-unlocked-") as name:
        folder = Path(name)
        python = folder / "venv" / "bin" / "python"
        try:
            run(Path(sys.executable), "-m", "venv", str(folder / "venv"), cwd=folder)
            install(python, f"glle[client] @ {ROOT.as_uri()}")
            with running(folder, **ONE_EACH) as up:
                run_page(python, folder, up.url, install)
            install(python, *map(str, DISTRIBUTIONS))
            run(python, "-m", "pip", "check", cwd=folder)
        except UnavailableError as error:
            sys.stderr.write(f"SKIPPED: {error} The newest versions are unchecked.\n")
            return int(is_required)
        sys.stdout.write(f"Installed: {', '.join(versions(python, folder))}.\n")
        log = folder / "newest" / "up.log"
        log.parent.mkdir()
        failure = ""
        try:
            with service(python, log) as up:
                sys.stdout.write(run(python, "-I", "-c", PROGRAM, up.url, cwd=folder))
                report = run(python.with_name("glle"), "doctor", "--url", up.url, cwd=folder)
            sys.stdout.write(report.splitlines()[-1] + "\n")
        except (AssertionError, RuntimeError) as error:
            failure = f"{error}\n"
        if broken := BROKEN.findall(log.read_text(encoding="utf-8")):
            failure += "\n".join(["Processes of the service failed:", *broken, ""])
        if failure:
            sys.stderr.write(failure)
            return 1
    sys.stdout.write("Both distributions work with the newest versions that their bounds allow.\n")
    return 0


def install(python: Path, *requirements: str) -> None:
    """Install packages into an environment without a lock file; raise `UnavailableError` without an index."""
    try:
        if UV.exists():
            run(UV, "pip", "install", "--quiet", "--upgrade", "--python", str(python), *requirements, cwd=python.parent)
        else:
            options = ("--quiet", "--disable-pip-version-check")
            run(python, "-m", "pip", "install", *options, *requirements, cwd=python.parent)
    except RuntimeError as error:
        if match := NETWORK.search(str(error)):
            raise UnavailableError(f"The package index cannot be reached: {match[0]}.") from error
        raise


def versions(python: Path, folder: Path) -> list[str]:
    """Return the installed direct dependencies of the server, each with its version."""
    with (DISTRIBUTIONS[1] / "pyproject.toml").open("rb") as file:
        requirements = tomllib.load(file)["project"]["dependencies"]
    names = [match[0] for one in requirements if (match := re.match(r"[\w-]+", one))]
    program = f"from importlib.metadata import version\nfor name in {names!r}: print(name, version(name))"
    return run(python, "-I", "-c", program, cwd=folder).splitlines()


def service(python: Path, log: Path) -> AbstractContextManager[Up]:
    """Return a context that runs the `glle up` of an environment on a free port; the output goes to the file `log`."""
    options = ("--host", "127.0.0.1", "--port", "0", "--data-dir", str(log.parent / "data"))
    return run_glle(log, "up", *options, program=[str(python.with_name("glle"))], **ONE_EACH, PYTHONPATH="")


if __name__ == "__main__":
    sys.exit(main())
