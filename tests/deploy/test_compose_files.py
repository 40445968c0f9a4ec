"""Contracts of docker-compose.yml, the Dockerfile and the lock files, without a container engine."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.deploy.compose.engine import ROOT
from worker.base.settings import rows

COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
DEFAULTS = dict(re.findall(r"\$\{(GLLE_\w+):-([^}]*)\}", COMPOSE))


def pins(lock: str) -> set[str]:
    """Return the `name==version ; marker` of every entry of a lock file."""
    return set(re.findall(r"^(\S+==.*?) \\$", (ROOT / lock).read_text(), re.MULTILINE))


def test_every_variable_is_documented_with_its_default() -> None:
    """The page lists every variable of docker-compose.yml with its default; the file itself has no second list."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    listed: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`GLLE_[^|]*) \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE):
        values = [value.strip("` ") for value in defaults.split(",")]
        listed |= dict(zip(re.findall(r"GLLE_\w+", names), values, strict=True))
    words = {"0": "0.0", "none": ""}
    assert {name: words.get(value, value) for name, value in listed.items()} == DEFAULTS
    assert not re.findall(r"^# .*GLLE_", COMPOSE, re.MULTILINE)


def test_environment_of_the_containers_has_the_default_settings() -> None:
    """Every GLLE_ variable of a container is a setting, and its default is the setting's."""
    settings = {row.variable: str(row.default) for row in rows()}
    fields = {*SERVICES["api"]["environment"], *SERVICES["worker"]["environment"]}
    assert {name for name in fields if name.startswith("GLLE_")} <= settings.keys()
    shared = DEFAULTS.keys() & settings.keys()
    assert {name: settings[name] for name in shared} == {name: DEFAULTS[name] for name in shared}
    assert "GLLE_JOB_TIMEOUT" in shared


def test_image_pins_match_the_development_lock() -> None:
    """Every pin of the server's lock is in the development lock, and the lock has all dependencies."""
    lock = pins("requirements/server.lock")
    assert lock <= pins("requirements/dev.lock")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    server = tomllib.loads((ROOT / "deploy" / "server" / "pyproject.toml").read_text())
    wanted = project["project"]["dependencies"] + project["project"]["optional-dependencies"]["client"]
    wanted += [text for text in server["project"]["dependencies"] if not text.startswith("glle[")]
    locked = {canonicalize_name(Requirement(pin).name) for pin in lock}
    assert {canonicalize_name(Requirement(text).name) for text in wanted} <= locked
    backend = pins("requirements/build.lock")
    assert backend <= pins("requirements/dev.lock")
    assert {Requirement(text).name for text in project["build-system"]["requires"]} <= {
        Requirement(pin).name for pin in backend
    }
