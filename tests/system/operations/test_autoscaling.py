"""The autoscalers' queries and the alerts, against /metrics of a running service."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.conftest import until
from tests.deploy.prometheus import Selector, Series, selectors, series_of
from tests.system.conftest import ROOT, ended, fitted, synthetic

if TYPE_CHECKING:
    import httpx

FOLDER = ROOT / "deploy" / "kubernetes"
TARGET = {"namespace": "glle", "job": "api", "service": "api", "pod": "api-0", "instance": "10.0.0.1:8000"}
# Labels whose value in an alert a service has in trouble alone.
RARE = {
    "glle_http_requests_total": {"status"},
    "glle_jobs_entered_total": {"status"},
    "glle_task_seconds_count": {"stage"},
    "glle_draws_total": {"solver"},
}
NEEDS_STORE = "glle_store_requests_total"  # tests/docs/test_operations.py has its labels


@pytest.fixture
def series(client: httpx.Client) -> list[Series]:
    """Return the series that Prometheus has after a fit, single draws and a job."""
    posterior = fitted(client, synthetic(client, 150, seed=9))
    assert client.get(f"{posterior}/draws/0?wait=30").status_code == 200
    answer = client.post(f"{posterior}/draws", json={"count": 24})
    assert ended(client, answer.json()["id"])["status"] == "succeeded"
    until(lambda: set(RARE) <= {one.name for one in scraped(client)})  # workers write their counts some seconds later
    return scraped(client)


def scraped(client: httpx.Client) -> list[Series]:
    """Return the series of a scrape."""
    return series_of(client.get("/metrics").text, **TARGET)


def manifest(path: str) -> Any:
    """Return a manifest."""
    return yaml.safe_load((FOLDER / path).read_text(encoding="utf-8"))


def test_the_autoscaler_gets_one_value(series: list[Series]) -> None:
    """The adapter discovers the metric, its query finds series with the autoscaler's labels, and gives one value.

    The autoscaler adds the values of a metric.
    """
    (metric,) = (one["external"]["metric"] for one in manifest("base/worker-autoscaler.yaml")["spec"]["metrics"])
    (rule,) = manifest("components/prometheus-adapter/values.yaml")["rules"]["external"]
    assert rule["name"]["as"] == metric["name"]
    (discovered,) = selectors(rule["seriesQuery"])
    found = [one for one in series if discovered.selects(one)]
    assert found
    assert rule["resources"]["overrides"].keys() <= found[0].labels.keys()
    wanted = {"namespace": TARGET["namespace"], **metric.get("selector", {}).get("matchLabels", {})}
    matchers = ",".join(f'{label}="{value}"' for label, value in wanted.items())
    query = rule["metricsQuery"].replace("<<.Series>>", found[0].name).replace("<<.LabelMatchers>>", matchers)
    assert "<<" not in query
    (selector,) = selectors(query)
    assert any(selector.selects(one) for one in series), query
    assert re.fullmatch(r"max\([^()]*\)", query), "one value, and no sum of pods"


def test_keda_finds_the_metric(series: list[Series]) -> None:
    """The query of the ScaledObject finds series, and gives one value."""
    (trigger,) = manifest("components/keda/scaled-object.yaml")["spec"]["triggers"]
    (selector,) = selectors(trigger["metadata"]["query"])
    assert any(selector.selects(one) for one in series)
    assert re.fullmatch(r"max\([^()]*\)", trigger["metadata"]["query"])


def test_every_alert_finds_its_series(series: list[Series]) -> None:
    """Each selector of an example rule matches a series, without the values that show trouble."""
    page = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    used = [one for rule in yaml.safe_load(block)["groups"][0]["rules"] for one in selectors(rule["expr"])]
    assert {one.name for one in used} > RARE.keys()
    for selector in used:
        if selector.name != NEEDS_STORE:
            assert any(usual(selector).selects(one) for one in series), selector
            named = {label for label, _, _ in selector.matchers}
            assert any(named <= one.labels.keys() for one in series if one.name == selector.name), selector


def usual(selector: Selector) -> Selector:
    """Return a selector without the labels whose value is rare."""
    rare = RARE.get(selector.name, set())
    return replace(selector, matchers=tuple(one for one in selector.matchers if one[0] not in rare))


def test_a_label_without_series_is_found(series: list[Series]) -> None:
    """A selector of another queue, and of a label that no series has, match nothing."""
    for expression in ('glle_queue_length{queue="glle"}', 'glle_queue_length{name=~".*"}', "glle_queue"):
        (selector,) = selectors(expression)
        assert not any(selector.selects(one) for one in series), expression
