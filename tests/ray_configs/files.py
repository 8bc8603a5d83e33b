"""Files of `ray_configs/`, parsed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "ray_configs"
RAY_KINDS = ("RayCluster", "RayJob", "RayCronJob")


def documents(path: Path) -> list[Any]:
    """Return the documents of a YAML file."""
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def kubernetes() -> Iterator[tuple[Path, Any]]:
    """Yield every Kubernetes object with its file."""
    for path in sorted((CONFIGS / "kuberay").rglob("*.yaml")):
        for document in documents(path):
            if "kind" in document:
                yield path, document


def ray_objects() -> list[tuple[Path, Any]]:
    """Return the KubeRay objects."""
    return [(path, document) for path, document in kubernetes() if document["kind"] in RAY_KINDS]


def cluster_of(document: Any) -> Any:
    """Return the cluster specification of a KubeRay object."""
    return document["spec"].get("rayClusterSpec", document["spec"])


def groups_of(document: Any) -> list[Any]:
    """Return the head group and the worker groups of a cluster."""
    cluster = cluster_of(document)
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def containers_of(document: Any) -> list[Any]:
    """Return all containers in a cluster's pods."""
    return [container for group in groups_of(document) for container in group["template"]["spec"]["containers"]]
