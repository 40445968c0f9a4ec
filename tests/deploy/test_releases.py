"""The release workflow, the bake file, the Dockerfile and the versions agree; actions and base images are pinned."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import yaml

from glle_engine import __version__
from tests.deploy.compose.engine import ROOT

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
RELEASE: dict[str, Any] = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text())["jobs"]
BAKE = (ROOT / "docker-bake.hcl").read_text()
DOCKERFILE = (ROOT / "Dockerfile").read_text()
TARGETS = dict(re.findall(r'^target "(\w+)" \{\n(.*?)^\}', BAKE, re.MULTILINE | re.DOTALL))
PLATFORMS = re.findall(r'"(linux/\w+)"', TARGETS["release"])


def steps(action: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the job and the inputs of every step of the release that uses an action."""
    return [
        (name, step.get("with", {}))
        for name, job in RELEASE.items()
        for step in job.get("steps", ())
        if step.get("uses", "").partition("@")[0] == action
    ]


def test_every_action_is_pinned_by_its_commit() -> None:
    """Workflows name each action by a commit, which unlike a tag cannot move, with its version in a comment."""
    used = {one for path in WORKFLOWS for one in re.findall(r"^ *(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE)}
    actions = {action for action in used if not action.startswith("./")}
    assert all((ROOT / local_action).exists() for local_action in used - actions)
    assert [one for one in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
    assert len(actions) == len({action.partition("@")[0] for action in actions}) > 0


def test_every_file_has_the_version_of_the_project() -> None:
    """The distributions, the bake file and the manifests have the version of the engine."""
    for folder in (ROOT, ROOT / "deploy" / "server"):
        assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert re.search(r'variable "VERSION" \{\n  default = "(.+)"', BAKE)[1] == __version__  # type: ignore[index] # else a failure
    base = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in base["images"]] == [__version__]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_base_images_are_pinned_by_digest() -> None:
    """The Dockerfile, docker-compose.yml and the manifests name their images with a digest, and Redis with one."""
    (python,) = re.findall(r"^ARG PYTHON_IMAGE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"python:3\.11-slim-bookworm@sha256:[0-9a-f]{64}", python)
    assert set(re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)) == {
        "${PYTHON_IMAGE}",
        "tools",
        "libraries",
        "scratch",
    }
    files = [ROOT / "docker-compose.yml", *(ROOT / "deploy" / "kubernetes" / "base").glob("*.yaml")]
    redis = {image for path in files for image in re.findall(r"image: (redis:\S+)$", path.read_text(), re.MULTILINE)}
    assert len(redis) == 1
    assert re.fullmatch(r"redis:7\.2-alpine@sha256:[0-9a-f]{64}", redis.pop())
