"""Dashboard and scrape configurations: they ask for metrics that are exported."""

import json
import re
from typing import Any

from cluster.dispatch.exporter import METRICS
from tests.ray_configs.files import CONFIGS, containers_of, documents, ray_objects

FOLDER = CONFIGS / "monitoring"
ASKED = re.compile(r"\bray_(specstorm_\w+)")
BY = re.compile(r"by \(([\w, ]+)\)")


def panels() -> list[Any]:
    found = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    assert isinstance(found, list)
    return found


def expressions() -> list[str]:
    return [target["expr"] for panel in panels() for target in panel["targets"]]


def test_every_metric_that_is_exported_is_on_the_dashboard_and_no_other() -> None:
    asked = {name.removesuffix("_bucket") for text in expressions() for name in ASKED.findall(text)}
    assert asked == {metric.name for metric in METRICS}


def test_a_metric_is_asked_for_as_its_kind_allows_and_by_its_own_labels() -> None:
    asked = list(expressions())
    assert asked
    for text in asked:
        (name,) = set(ASKED.findall(text))
        (metric,) = [each for each in METRICS if each.name == name.removesuffix("_bucket")]
        assert (metric.kind == "histogram") == name.endswith("_bucket") == ("histogram_quantile" in text)
        assert metric.kind == "counter" or "increase(" not in text
        grouped = {label for group in BY.findall(text) for label in group.split(", ")}
        assert grouped <= {*metric.labels, "le"}


def test_panels_lie_beside_each_other_and_have_numbers_of_their_own() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    cells = [
        (x, y)
        for panel in panels()
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert {x for x, _ in cells} == set(range(24))


def test_prometheus_looks_where_ray_lists_its_nodes_and_the_operator_at_the_port_of_the_pods() -> None:
    (config,) = documents(FOLDER / "prometheus.yaml")
    (scrape,) = config["scrape_configs"]
    assert scrape["file_sd_configs"] == [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}]
    (monitor,) = documents(FOLDER / "pod_monitor.yaml")
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    for _, document in ray_objects():
        for container in containers_of(document):
            assert endpoint["port"] in [port["name"] for port in container["ports"]]
