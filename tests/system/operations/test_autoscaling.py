"""The autoscalers' queries, against /metrics of a running service."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.deploy.prometheus import Series, selectors, series_of
from tests.system.conftest import ROOT, ended, fitted, synthetic

if TYPE_CHECKING:
    import httpx

FOLDER = ROOT / "deploy" / "kubernetes"
TARGET = {"namespace": "glle", "job": "api", "service": "api", "pod": "api-0", "instance": "10.0.0.1:8000"}


@pytest.fixture
def series(client: httpx.Client) -> list[Series]:
    """Return the series that Prometheus has after a fit, single draws and a job."""
    posterior = fitted(client, synthetic(client, 150, seed=9))
    assert client.get(f"{posterior}/draws/0?wait=30").status_code == 200
    answer = client.post(f"{posterior}/draws", json={"count": 24})
    assert ended(client, answer.json()["id"])["status"] == "succeeded"
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


def test_a_label_without_series_is_found(series: list[Series]) -> None:
    """A selector of another queue, and of a label that no series has, match nothing."""
    for expression in ('glle_queue_length{queue="glle"}', 'glle_queue_length{name=~".*"}', "glle_queue"):
        (selector,) = selectors(expression)
        assert not any(selector.selects(one) for one in series), expression
