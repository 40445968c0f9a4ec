"""docs/how-to/operations.md documents every metric, and its alerts use metrics that exist."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.deploy.prometheus import selectors, series_of
from tests.service import conftest as service

if TYPE_CHECKING:
    import httpx

    from worker.stores import Stores

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
_served, stores, client = service._served, service.stores, service.client  # the app without workers


@pytest.fixture
def exposition(client: httpx.Client, stores: Stores) -> str:
    """Return /metrics after one count of each kind."""
    client.get("/livez")
    stores.counts.add("draws", "lanes")
    stores.counts.add("draws_rejected", "lanes")
    stores.counts.observe("job_seconds", "fit", "succeeded", seconds=1)
    stores.counts.observe("task_seconds", "fit", "queued", seconds=1)
    stores.cache.get("nothing")
    stores.counts.add("store_requests", "read", "ok")
    stores.counts.add("store_bytes", "read")
    stores.jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def test_every_metric_is_documented_and_exposed(exposition: str) -> None:
    """The table has exactly the names, types and labels of the exposition."""
    documented = {
        (name, kind): set(labels.replace(" ", "").split(",")) - {""}
        for name, kind, labels in re.findall(r"^\| `(glle_\w+)` \| (\w+) \| ([\w, ]*)\|", PAGE, re.MULTILINE)
    }
    exposed = dict.fromkeys(re.findall(r"^# TYPE (\w+) (\w+)$", exposition, re.MULTILINE))
    assert set(documented) == set(exposed)
    for (name, kind), labels in documented.items():
        line = re.search(rf"^{name}(?:_count)?(?:{{(.*)}})? ", exposition, re.MULTILINE)
        assert line is not None, (name, kind)
        assert set(re.findall(r'(\w+)="', line[1] or "")) == labels, name


def test_alerts_use_exposed_metrics(exposition: str) -> None:
    """The example rules are YAML, and every name and label in an expression is exposed."""
    (block,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    rules = yaml.safe_load(block)["groups"][0]["rules"]
    exposed = set(re.findall(r"^# TYPE (\w+) ", exposition, re.MULTILINE))
    series = series_of(exposition)
    for rule in rules:
        for selector in selectors(rule["expr"]):
            named = {label for label, _, _ in selector.matchers}
            assert any(named <= one.labels.keys() for one in series if one.name == selector.name), rule["alert"]
        names = {name.removesuffix("_count") for name in re.findall(r"glle_\w+", rule["expr"])}
        assert names
        assert names <= exposed, rule["alert"]
        assert rule["annotations"]["summary"].endswith(".")
