"""KubeRay objects: valid by KubeRay's definitions, and with the settings the project needs.

`KUBERAY_CRDS` names a folder of custom resource definitions, `*.yaml` or `*.yaml.gz`.
"""

import copy
import gzip
import os
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

from cluster.cli.commands import app
from cluster.dispatch.ray_job import FOLDER_VARIABLE
from tests.ray_configs.files import CONFIGS, ROOT, cluster_of, containers_of, groups_of, kubernetes, ray_objects

OBJECTS = ray_objects()
JOBS = [(path, document) for path, document in OBJECTS if document["kind"] == "RayJob"]
IMAGE_ROOT = "/specstorm/"
GPU = "nvidia.com/gpu"


def names(objects: list[tuple[Path, Any]]) -> list[str]:
    return [path.relative_to(CONFIGS).as_posix() for path, _ in objects]


def each(objects: list[tuple[Path, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("document", [document for _, document in objects], ids=names(objects))


def closed(schema: Any) -> Any:
    """Return a Kubernetes schema as JSON Schema that refuses unknown keys."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items() if not key.startswith("x-kubernetes-")}
    if schema.get("x-kubernetes-int-or-string") is True:
        return {"type": ["integer", "string"]}
    keeps_unknown = schema.get("x-kubernetes-preserve-unknown-fields") is True
    if isinstance(schema.get("properties"), dict) and not keeps_unknown:
        found.setdefault("additionalProperties", False)
    return found


def definitions(folder: Path) -> dict[tuple[str, str], Any]:
    found = {}
    for path in sorted(folder.iterdir()):
        if path.name.endswith((".yaml", ".yaml.gz")):
            raw = path.read_bytes()
            spec = yaml.safe_load(gzip.decompress(raw) if path.suffix == ".gz" else raw)["spec"]
            for version in spec["versions"]:
                schema = closed(copy.deepcopy(version["schema"]["openAPIV3Schema"]))
                schema["properties"]["metadata"] = {"type": "object"}
                found[spec["names"]["kind"], f"{spec['group']}/{version['name']}"] = schema
    return found


@pytest.mark.skipif("KUBERAY_CRDS" not in os.environ, reason="KUBERAY_CRDS names no folder of KubeRay's definitions")
def test_every_object_is_what_kuberay_s_definitions_allow_and_a_misspelt_one_is_not() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    known = definitions(Path(os.environ["KUBERAY_CRDS"]))
    for path, document in OBJECTS:
        check = jsonschema.Draft7Validator(known[document["kind"], document["apiVersion"]])
        assert [f"{path.name}: {error.json_path}: {error.message}" for error in check.iter_errors(document)] == []
        assert not check.is_valid({**document, "spec": {**document["spec"], "rayVersoin": "2"}})


def test_all_kinds_are_there() -> None:
    assert sorted(document["kind"] for _, document in OBJECTS) == ["RayCluster", "RayJob", "RayJob", "RayJob"]
    assert {document["apiVersion"] for _, document in OBJECTS} == {"ray.io/v1"}


@each(OBJECTS)
def test_ray_is_the_tested_one_and_requires_the_token(document: Any) -> None:
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    assert cluster_of(document)["rayVersion"] == pins["ray"]
    assert cluster_of(document)["authOptions"] == {"mode": "token", "secretName": "specstorm-token"}
    assert "secret generic specstorm-token --from-literal=auth_token=" in (CONFIGS / "kuberay/storage.yaml").read_text()


@each(OBJECTS)
def test_every_container_says_what_it_needs_at_least_and_at_most(document: Any) -> None:
    containers = list(containers_of(document))
    assert containers
    for container in containers:
        resources = container["resources"]
        assert {"cpu", "memory"} <= resources["requests"].keys() & resources["limits"].keys()
        # Memory beyond the request is reclaimed by killing a container.
        assert resources["requests"]["memory"] == resources["limits"]["memory"]
        assert resources["requests"].get(GPU) == resources["limits"].get(GPU)
        assert {"name": "RAY_USAGE_STATS_ENABLED", "value": "0"} in container["env"]
        assert "metrics" in [port["name"] for port in container["ports"]]


@each(OBJECTS)
def test_pools_find_all_workers_when_they_start(document: Any) -> None:
    head, *workers = groups_of(document)
    assert head["rayStartParams"]["num-cpus"] == "0"
    for group in workers:
        assert group["replicas"] == group["minReplicas"] == group["maxReplicas"]


@each(OBJECTS)
def test_campaigns_lie_on_the_volume_and_have_time_to_be_closed(document: Any) -> None:
    pod = groups_of(document)[0]["template"]["spec"]
    (container,) = pod["containers"]
    values = named(groups_of(document)[0])
    assert values[FOLDER_VARIABLE] in [mount["mountPath"] for mount in container["volumeMounts"]]
    assert int(values["RAY_JOB_STOP_WAIT_TIME_S"]) >= 30
    (claim,) = [volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]]
    claims = [each["metadata"]["name"] for _, each in kubernetes() if each["kind"] == "PersistentVolumeClaim"]
    assert claims == [claim]


@each(JOBS)
def test_a_job_s_command_is_one_that_this_program_takes_and_a_finding_is_not_retried(document: Any) -> None:
    program, *words = shlex.split(document["spec"]["entrypoint"])
    assert [program, *words[:2]] == ["python", "-m", "cluster"]
    name, *arguments = words[2:]
    command: Any = get_command(app)
    here = [word.replace(IMAGE_ROOT, f"{ROOT}/") for word in arguments]
    volume = f"{named(groups_of(document)[0])[FOLDER_VARIABLE]}/"
    assert all(Path(word).exists() or word.startswith(volume) for word in here if word.startswith("/"))
    values = command.commands[name].make_context(name, here).params
    assert values["ray"] == "auto"
    assert document["spec"]["backoffLimit"] == document["spec"]["submitterConfig"]["backoffLimit"] == 0
    assert document["spec"]["shutdownAfterJobFinishes"]
    num_gpus = sum(group["replicas"] for group in cluster_of(document)["workerGroupSpecs"] if is_on_gpu(group))
    assert (num_gpus > 0) == (values["device"] == "cuda")
    if num_gpus:
        assert values["workers"] > num_gpus, "engines share GPUs"


def named(group: Any) -> dict[str, str]:
    (container,) = group["template"]["spec"]["containers"]
    return {each["name"]: each["value"] for each in container["env"]}


def is_on_gpu(group: Any) -> bool:
    (container,) = group["template"]["spec"]["containers"]
    return GPU in container["resources"]["limits"]


def test_the_night_creates_the_job_beside_it_with_no_more_rights_than_that_takes() -> None:
    objects = {document["kind"]: document for path, document in kubernetes() if path.name == "cronjob.yaml"}
    spec = objects["CronJob"]["spec"]
    assert spec["concurrencyPolicy"] == "Forbid"
    pod = spec["jobTemplate"]["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == objects["ServiceAccount"]["metadata"]["name"]
    assert [rule["resources"] for rule in objects["Role"]["rules"]] == [["rayjobs"]]
    assert objects["RoleBinding"]["roleRef"]["name"] == objects["Role"]["metadata"]["name"]
    folder = CONFIGS / "kuberay" / "nightly"
    (made,) = yaml.safe_load((folder / "kustomization.yaml").read_text())["configMapGenerator"]
    assert pod["volumes"][0]["configMap"]["name"] == made["name"]
    assert all((folder / file).is_file() for file in made["files"])
    (container,) = pod["containers"]
    assert f"{container['volumeMounts'][0]['mountPath']}/{made['files'][0]}" in container["args"][0]
    # The pod that waits outlives the night it waits for.
    (night,) = [document for path, document in JOBS if path.parent == folder]
    night_seconds = night["spec"]["activeDeadlineSeconds"] + night["spec"]["preRunningDeadlineSeconds"]
    assert spec["jobTemplate"]["spec"]["activeDeadlineSeconds"] >= night_seconds
