"""A separate container engine, and the service composed on it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[3]
STANDIN = Path(__file__).parent / "standin"
PROJECT = "glle"
FILES = f"{ROOT / 'docker-compose.yml'}:{STANDIN / 'compose.yml'}"


def program(name: str) -> str:
    """Return the path of the program `name`.

    Raises
    ------
    FileNotFoundError
        If the program is not installed.

    """
    path = shutil.which(name)
    if path is None:
        raise FileNotFoundError(f"{name} is not installed; tests/deploy/compose/run installs it.")
    return path


@dataclass(frozen=True)
class Engine:
    """A running dockerd, used through its command-line programs."""

    socket: Path

    def run(self, *command: str, check: bool = True, stdin: str | None = None) -> str:
        """Run `command` against this engine; return its output.

        Raises
        ------
        AssertionError
            With the output, if it fails and `check` is true.

        """
        done = subprocess.run(
            [program(command[0]), *command[1:]],
            cwd=ROOT,
            env={**os.environ, "DOCKER_HOST": f"unix://{self.socket}"}
            | {"COMPOSE_FILE": FILES, "COMPOSE_PROJECT_NAME": PROJECT},
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        assert done.returncode == 0 or not check, f"{' '.join(command)}: {output}"
        return done.stdout

    def docker(self, *arguments: str, check: bool = True) -> str:
        """Run `docker` with `arguments`."""
        return self.run("docker", *arguments, check=check)

    def compose(self, *arguments: str, check: bool = True) -> str:
        """Run Compose with `arguments` on the project's file."""
        return self.run("docker", "compose", *arguments, check=check)

    def containers(self, service: str) -> list[str]:
        """Return the ids of the running containers of `service`."""
        return self.docker(
            "ps", "--quiet", "--no-trunc", "--filter", f"label=com.docker.compose.service={service}"
        ).split()

    def inspect(self, name: str) -> dict[str, Any]:
        """Return the engine's description of a container or network."""
        descriptions: list[dict[str, Any]] = json.loads(self.docker("inspect", name))
        return descriptions[0]


@contextmanager
def run_engine(folder: Path, cgroup: str) -> Iterator[Engine]:
    """Run dockerd with all of its state in `folder` until the context exits."""
    engine = Engine(folder / "docker.sock")
    command = [program("dockerd"), f"--host=unix://{engine.socket}", f"--cgroup-parent=/{cgroup}"]
    command += [
        f"--data-root={folder / 'data'}",
        f"--exec-root={folder / 'exec'}",
        f"--pidfile={folder / 'pid'}",
    ]
    command += ["--exec-opt=native.cgroupdriver=cgroupfs", "--log-level=warn"]
    log = folder / "dockerd.log"
    with log.open("w") as out:
        # A separate session: Ctrl-C reaches the tests, which then take the service down in order.
        daemon = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)

    def ready() -> bool:
        assert daemon.poll() is None, f"dockerd ended: {log.read_text()[-2000:]}"
        return bool(engine.docker("version", "--format", "{{.Server.Version}}", check=False).strip())

    try:
        until(ready)
        yield engine
    finally:
        daemon.terminate()
        daemon.wait(60)


def import_standins(engine: Engine, base: Path, wheels: Path) -> None:
    """Import the stand-ins of the images in Dockerfile and docker-compose.yml."""
    engine.docker("import", str(base), "standin")
    for name, context in (("python", wheels), ("redis", STANDIN)):
        file = str(STANDIN / f"{name}.Dockerfile")
        engine.docker("build", "--quiet", "--tag", f"standin-{name}", "--file", file, str(context))
