"""Contracts of docker-compose.yml, the Dockerfile and the lock files, without a container engine."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service.middleware.access_policy import AccessPolicy
from tests.deploy.compose.engine import ROOT
from tests.deploy.compose.wheelhouse import requirements_for
from worker.base.settings import Settings, rows

COMPOSE = (ROOT / "docker-compose.yml").read_text()
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE)["services"]
DEFAULTS = dict(re.findall(r"\$\{(GLLE_\w+):-([^}]*)\}", COMPOSE))


def pins(lock: str) -> set[str]:
    """Return the `name==version ; marker` of every entry of a lock file."""
    return set(re.findall(r"^(\S+==.*?) \\$", (ROOT / lock).read_text(), re.MULTILINE))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_confined(name: str) -> None:
    """No service has a writable root file system, a capability, a way to gain one, or the root user."""
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"])


def test_only_the_api_is_published_on_loopback() -> None:
    """The API publishes a port, on loopback by default; the other services have the inner network alone."""
    assert [name for name, service in SERVICES.items() if "ports" in service] == ["api"]
    assert DEFAULTS["GLLE_BIND"] == "127.0.0.1"
    networks = {name: service["networks"] for name, service in SERVICES.items()}
    inner = ["inner"]
    assert networks == {"api": ["outer", "inner"], "worker": inner, "queue": inner, "cache": inner}
    assert yaml.safe_load(COMPOSE)["networks"]["inner"]["internal"] is True


def test_api_requires_keys_on_other_addresses() -> None:
    """The API receives its published address; with the unchanged file it is open on loopback."""
    assert SERVICES["api"]["environment"]["GLLE_PUBLISHED"] == "${GLLE_BIND:-127.0.0.1}"
    assert not AccessPolicy(Settings(host="0.0.0.0", published=DEFAULTS["GLLE_BIND"])).is_required  # noqa: S104 # in the container
    assert AccessPolicy(Settings(host="0.0.0.0", published="0.0.0.0")).is_required  # noqa: S104


def test_every_variable_is_documented_with_its_default() -> None:
    """The page lists every variable with its real default; the file itself has no second list."""
    page = (ROOT / "docs" / "how-to" / "deploy.md").read_text()
    listed: dict[str, str] = {}
    for names, defaults in re.findall(r"^\| (`GLLE_[^|]*) \| [^|]* \| ([^|]*) \|$", page, re.MULTILINE):
        values = [value.strip("` ") for value in defaults.split(",")]
        listed |= dict(zip(re.findall(r"GLLE_\w+", names), values, strict=True))
    words = {"0": "0.0", "none": ""}
    assert {name: words.get(value, value) for name, value in listed.items()} == DEFAULTS
    assert not re.findall(r"^# .*GLLE_", COMPOSE, re.MULTILINE)


def test_grace_period_exceeds_task_timeout() -> None:
    """A worker's stop grace period exceeds the task timeout."""
    assert int(DEFAULTS["GLLE_WORKER_GRACE"].removesuffix("s")) > int(DEFAULTS["GLLE_JOB_TIMEOUT"])
    assert SERVICES["worker"]["stop_grace_period"].startswith("${GLLE_WORKER_GRACE:-")


def test_environment_of_the_containers_has_the_default_settings() -> None:
    """Every GLLE_ variable of a container is a setting; interpolated variables have the setting's default."""
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


def test_api_and_workers_share_one_build() -> None:
    """One service builds the image of both."""
    own = [name for name, service in SERVICES.items() if service["image"] == "glle"]
    assert own == ["api", "worker"]
    assert [name for name in own if "build" in SERVICES[name]] == ["worker"]
    assert {SERVICES[name]["pull_policy"] for name in own} == {"never"}, "no registry serves this name"


def test_build_context_is_minimal() -> None:
    """.dockerignore admits exactly the files that the Dockerfile copies."""
    ignore = (ROOT / ".dockerignore").read_text().splitlines()
    let_through = {line.removeprefix("!") for line in ignore if line.startswith("!")}
    copies = re.findall(r"^COPY (?!--)(.+) \S+$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert let_through == {name for names in copies for name in names.split()}
    assert ignore[1] == "*"


def test_the_image_compiles_existing_modules() -> None:
    """The build of the image imports modules of the project that exist."""
    named = re.findall(r"\b(?:service|worker|glle_engine)(?:\.\w+)+", (ROOT / "Dockerfile").read_text())
    assert len(named) >= 3
    assert [name for name in named if importlib.util.find_spec(name) is None] == []


def test_markers_use_the_python_of_the_image() -> None:
    """Markers are evaluated for the requested Python version, not for the running one."""
    lock = "a==1 ; python_full_version < '3.11.3' \\\n    --hash=x \\\n    --hash=y\nb==2 \\\n    --hash=z\n"
    assert requirements_for(lock, "3.11.2").splitlines() == ["a==1 --hash=x --hash=y", "b==2 --hash=z"]
    assert requirements_for(lock, "3.11.3") == "b==2 --hash=z"
