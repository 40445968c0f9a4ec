"""docs/how-to/operations.md documents every metric, and alerts and dashboard use metrics that exist."""

import json
import re

import httpx
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from tests.conftest import cached_draw
from tests.docs.pages import ROOT
from tests.service import conftest as service
from worker.records.draws import DrawAddress
from worker.stores import Stores

MONITORING = ROOT / "deploy" / "kubernetes" / "components" / "monitoring"
PAGE = (ROOT / "docs" / "how-to" / "operations.md").read_text(encoding="utf-8")
# A metric in an expression of Prometheus, and the matchers of its labels.
SELECTOR = re.compile(r"\b(glle_\w+)(?:\{([^}]*)\})?")
_service, stores, client = service._service, service.stores, service.client  # the app without workers


@pytest.fixture
def exposition(client: httpx.Client, stores: Stores) -> str:
    """Return the text of /metrics after each metric has counted once."""
    client.get("/livez")
    stores.counts.add("draws", "lanes")
    stores.counts.add("draws_rejected", "lanes")
    stores.counts.add("sampler_draws", "drawn")
    stores.counts.observe("job_seconds", "fit", "succeeded", seconds=1)
    stores.counts.observe("task_seconds", "fit", "queued", seconds=1)
    cached_draw(stores, "nothing", DrawAddress(0, 0, 1.0, "posterior", "none"))
    stores.counts.add("store_requests", "read", "ok")
    stores.counts.add("store_bytes", "read")
    stores.jobs.create(kind="fit", claim="c", posterior="p", spec={}, total=1)
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def test_every_metric_is_documented_and_exposed(exposition: str) -> None:
    """The page's table has exactly the names, types and labels of /metrics."""
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


def test_rules_and_panels_use_exposed_metrics(exposition: str) -> None:
    """Every metric and label in the alerts and in the dashboard is in /metrics."""
    rules = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"][0]["rules"]
    panels = json.loads((MONITORING / "dashboard.json").read_text())["panels"]
    expressions = [rule["expr"] for rule in rules]
    expressions += [target["expr"] for panel in panels for target in panel["targets"]]
    samples = [sample for family in text_string_to_metric_families(exposition) for sample in family.samples]
    for expression in expressions:
        selectors = SELECTOR.findall(expression)
        assert selectors, expression
        for name, matchers in selectors:
            labels = set(re.findall(r"(\w+)\s*(?:=|!=|=~|!~)\s*\"", matchers))
            assert any(labels <= sample.labels.keys() for sample in samples if sample.name == name), expression
