"""The alerts fire at faults and are silent otherwise, by promtool; each has a section in the runbook."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy.compose.engine import ROOT

if TYPE_CHECKING:
    from pathlib import Path

MONITORING = ROOT / "deploy" / "kubernetes" / "components" / "monitoring"
RULES: dict[str, Any] = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
ALERTS = [rule["alert"] for group in RULES["groups"] for rule in group["rules"]]
RUNBOOK = (ROOT / "docs" / "how-to" / "runbook.md").read_text()
DRAWS = 'glle_http_seconds_bucket{{method="GET",route="/v1/posteriors/{{id}}/draws/{{index}}",le="{}"}}'
AWAY = "_x180"  # no sample
# Series of three hours in the notation of promtool: a value each minute, `1+2x3` is 1, 3, 5, 7.
HEALTHY = {
    "glle_redis_up": "1x180",
    "glle_cache_up": "1x180",
    'glle_data_lost{reason="records-lost"}': "0x180",
    'glle_data_lost{reason="files-lost"}': "0x180",
    "glle_admin_keys": "2x180",
    "glle_workers": "4x180",
    'glle_tasks_killed_total{queue="glle-batch"}': "0x180",
    'glle_queue_oldest_seconds{queue="glle-batch"}': "3x180",
    'glle_queue_oldest_seconds{queue="draws"}': "0.02x180",
    DRAWS.format("0.05"): "0+990x180",
    DRAWS.format("0.2"): "0+1000x180",
    DRAWS.format("2.0"): "0+1000x180",
    DRAWS.format("+Inf"): "0+1000x180",
    'glle_http_requests_total{route="/v1/jobs",status="200"}': "0+1000x180",
    'glle_http_requests_total{route="/v1/jobs",status="503"}': "0+1x180",
    'glle_http_requests_total{route="/readyz",status="503"}': "0+100x180",
    'glle_jobs_entered_total{kind="fit",status="queued"}': "0+100x180",
    'glle_jobs_entered_total{kind="fit",status="failed"}': "0+1x180",
    "glle_redis_bytes": "1e8x180",
    "glle_redis_max_bytes": "2e8x180",
    "glle_redis_log_ok": "1x180",
    'glle_store_requests_total{result="error",what="read"}': "0x180",
    "glle_data_free_bytes": "5e10x180",
    "glle_data_disk_bytes": "2e11x180",
    "glle_clock_skew_seconds": "0.01x180",
    'glle_draws_total{solver="lanes"}': "0+1000x180",
    'glle_draws_total{solver="dense"}': "0+1x180",
}
FAULTS: dict[str, tuple[dict[str, str], set[str]]] = {
    "none": ({}, set()),
    "the queue's Redis is away": (
        {name: AWAY for name in HEALTHY if not name.startswith(("glle_cache_up", "glle_data_disk", "glle_data_free"))}
        | {"glle_redis_up": "0x180"},
        {"GlleRedisAway"},
    ),
    "the cache's Redis is away": ({"glle_cache_up": "1x90 0x90"}, {"GlleRedisAway"}),
    "no scrape": (dict.fromkeys(HEALTHY, AWAY), {"GlleSilent"}),
    "the queue's Redis was emptied": ({'glle_data_lost{reason="records-lost"}': "0x178 1x2"}, {"GlleDataLost"}),
    "the bucket was emptied": ({'glle_data_lost{reason="files-lost"}': "0x178 1x2"}, {"GlleDataLost"}),
    "an admin key was revoked": ({"glle_admin_keys": "2x90 1x90"}, {"GlleLastAdminKey"}),
    "all admin keys are gone, so that scrapes are refused": (dict.fromkeys(HEALTHY, "1x90 _x90"), {"GlleSilent"}),
    "the workers are gone": ({"glle_workers": "4x90 0x90"}, {"GlleNoWorkers"}),
    "workers die in long tasks, each of which is tried four times": (
        {'glle_tasks_killed_total{queue="glle-batch"}': "0x170 1 2 3 4x10"},
        {"GlleTasksKilled"},
    ),
    "a queue is long": ({'glle_queue_oldest_seconds{queue="glle-batch"}': "0+10x180"}, {"GlleQueueWaits"}),
    "single draws wait": ({'glle_queue_oldest_seconds{queue="draws"}': "0.02x170 3x10"}, {"GlleDrawsWait"}),
    "two draws in a hundred are slow": (
        {DRAWS.format("0.05"): "0+980x180", DRAWS.format("0.2"): "0+980x180"},
        {"GlleDrawsSlow"},
    ),
    "responses are errors": (
        {'glle_http_requests_total{route="/v1/jobs",status="503"}': "0+20x180"},
        {"GlleErrors"},
    ),
    "jobs fail": ({'glle_jobs_entered_total{kind="fit",status="failed"}': "0+20x180"}, {"GlleJobsFail"}),
    "the queue's Redis fills": ({"glle_redis_bytes": "1e8+1e6x180"}, {"GlleQueueServerFills"}),
    "the queue's disk is full": ({"glle_redis_log_ok": "1x170 0x10"}, {"GlleQueueLogFails"}),
    "the object store fails": (
        {'glle_store_requests_total{result="error",what="read"}': "0+2x180"},
        {"GlleStoreFails"},
    ),
    "the disk fills by 2 GB an hour": ({"glle_data_free_bytes": "4e10-3.3e7x180"}, {"GlleDiskFills"}),
    "an hour of uploads leaves 70 GB of the disk": ({"glle_data_free_bytes": "8e10x60 8e10-1.7e8x60 7e10x60"}, set()),
    "the disk is full": ({"glle_data_free_bytes": "5e8x180"}, {"GlleDiskFills"}),
    "a clock is wrong": ({"glle_clock_skew_seconds": "90x180"}, {"GlleClockSkewed"}),
    "draws need slow solvers": ({'glle_draws_total{solver="dense"}': "0+100x180"}, {"GlleSolverFallsBack"}),
}


def test_every_alert_fires_at_a_fault() -> None:
    """Each alert is expected by at least one of the simulated faults."""
    assert set().union(*(alerts for _, alerts in FAULTS.values())) == set(ALERTS)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_exactly_the_alerts_of_a_fault_fire(tmp_path: Path) -> None:
    """Three hours after a simulated fault began, its alerts fire and no others."""
    tests = [
        {
            "name": fault,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in (HEALTHY | changed).items()],
            "promql_expr_test": [
                {
                    "expr": f'count by (alertname) (ALERTS{{alertstate="firing"}}) # {fault}',
                    "eval_time": "179m",
                    "exp_samples": [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)],
                }
            ],
        }
        for fault, (changed, alerts) in FAULTS.items()
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(RULES))
    (tmp_path / "test.yaml").write_text(
        yaml.safe_dump({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests})
    )
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "test.yaml"]):
        done = subprocess.run(["promtool", *command], cwd=tmp_path, check=False, capture_output=True, text=True)  # noqa: S607 # the path depends on the machine
        assert done.returncode == 0, done.stdout + done.stderr


def test_the_runbook_has_a_section_for_each_alert() -> None:
    """The runbook's sections are the alerts, in the order of the rules."""
    assert re.findall(r"^## (Glle\w+)$", RUNBOOK, re.MULTILINE) == ALERTS
