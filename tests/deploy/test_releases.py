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
    """A tag of an action can move; a commit cannot. All workflows use one commit, whose version is in a comment."""
    used = {one for path in WORKFLOWS for one in re.findall(r"^ *(?:- )?uses: (.+)$", path.read_text(), re.MULTILINE)}
    actions = {action for action in used if not action.startswith("./")}
    assert all((ROOT / own).exists() for own in used - actions)
    assert [one for one in actions if not re.fullmatch(r"[\w.-]+/[\w.-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", one)] == []
    assert len(actions) == len({action.partition("@")[0] for action in actions}) > 0


def test_jobs_write_only_what_they_publish() -> None:
    """Workflows read the contents at most; each job of a release has only the permissions for its own result."""
    for path in WORKFLOWS:
        assert yaml.safe_load(path.read_text())["permissions"] in ({}, {"contents": "read"}), path.name
    written = {
        name: {scope for scope, value in job["permissions"].items() if value == "write"}
        for name, job in RELEASE.items()
    }
    assert written == {
        "version": set(),
        "tests": set(),
        "compose": set(),
        "wheels": {"id-token", "attestations"},
        "image": {"packages"},
        "publish-image": {"packages", "id-token", "attestations"},
        "publish-wheels": {"id-token"},
    }
    assert "secrets." not in (ROOT / ".github" / "workflows" / "release.yml").read_text()


def test_a_release_builds_targets_of_the_bake_file_for_its_platforms() -> None:
    """The workflow builds existing targets, and one image for each platform that the target names."""
    assert {inputs["targets"] for _, inputs in steps("docker/bake-action")} == {"release"} <= TARGETS.keys()
    built = {one["platform"]: one["runner"] for one in RELEASE["image"]["strategy"]["matrix"]["include"]}
    assert built.keys() == set(PLATFORMS) == {"linux/amd64", "linux/arm64"}
    assert [platform for platform, runner in built.items() if runner.endswith("-arm")] == ["linux/arm64"]


def test_a_release_publishes_after_all_tests() -> None:
    """Nothing is built for publication before tests, lint, the newest dependencies, the image and an upgrade passed."""
    called = {name: job["uses"].rpartition("/")[2] for name, job in RELEASE.items() if "uses" in job}
    assert called == {"tests": "tests.yml", "compose": "image.yml"}
    for name in ("wheels", "image"):
        assert set(RELEASE[name]["needs"]) == {"version", *called}
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "tests.yml").read_text())["jobs"]
    assert {"test", "lint", "unlocked"} <= jobs.keys()


def test_results_are_attested() -> None:
    """The image has a provenance, an SBOM and a signed attestation, the wheels an attestation; PyPI comes last."""
    assert re.search(r'attest\s+= \["type=provenance,mode=max", "type=sbom"\]', TARGETS["release"])
    assert [job for job, _ in steps("actions/attest")] == ["wheels", "publish-image"]
    (publish,) = steps("pypa/gh-action-pypi-publish")
    assert publish[0] == "publish-wheels"
    assert {"wheels", "publish-image"} <= set(RELEASE["publish-wheels"]["needs"])
    assert RELEASE["publish-wheels"]["environment"] == "pypi"


def test_every_file_has_the_version_of_the_project() -> None:
    """The distributions, the bake file and the manifests have the version of the engine."""
    for folder in (ROOT, ROOT / "deploy" / "server"):
        assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["version"] == __version__
    assert re.search(r'variable "VERSION" \{\n  default = "(.+)"', BAKE)[1] == __version__  # type: ignore[index] # else a failure
    base = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml").read_text())
    assert [image["newTag"] for image in base["images"]] == [__version__]
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == __version__


def test_targets_are_stages_of_the_dockerfile() -> None:
    """Stages that the bake file names exist, and the image contains the wheels of the released stage."""
    stages = set(re.findall(r"^FROM .+ AS ([\w-]+)$", DOCKERFILE, re.MULTILINE))
    assert set(re.findall(r'target\s+= "(.+)"', BAKE)) == {"wheels"} <= stages
    assert "COPY --from=wheels / /dist\n" in DOCKERFILE


def test_every_download_has_the_secrets_of_the_bake_file() -> None:
    """Each step of the build that asks the package index gets both secrets; none is an argument or a layer."""
    declared = set(re.findall(r"type=file,id=([\w.]+),", BAKE))
    steps = re.findall(r"^RUN (.+?[^\\])$", DOCKERFILE, re.MULTILINE | re.DOTALL)
    downloads = [step for step in steps if "--requirement" in step]
    assert len(downloads) == 2
    for step in downloads:
        assert set(re.findall(r"--mount=type=secret,id=([\w.]+)", step)) == declared == {"pip.conf", "ca.pem"}


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
