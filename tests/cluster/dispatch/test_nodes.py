"""Killed parts of a cluster: jobs run on other nodes, and each result is recorded once."""

import json
import os
import subprocess
import sys
from secrets import token_hex
from typing import Any

import pytest

from cluster.dispatch.exporter import METRICS
from cluster.dispatch.origin import ROOT
from tests.cluster.dispatch.node_faults import NUM_JOBS, NUM_SMOKE

SECONDS_MAX = 800
# A node that is dead is noticed in two seconds instead of fifteen, and a metric in one instead of ten. Connections to a
# dead node are refused at once; one that is only busy has the time that Ray gives by default to answer.
QUICK = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "3",
    "RAY_health_check_initial_delay_ms": "0",
    "RAY_metrics_report_interval_ms": "1000",
}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the output of `node_faults`."""
    folder = tmp_path_factory.mktemp("nodes")
    token = folder / "token"
    token.touch(0o600)
    token.write_text(token_hex(32))
    environment = {
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_ENABLE_AUTO_CONNECT": "0",
        "PYTHONPATH": str(ROOT),
    }
    # The session of these tests may have a Ray of its own in this process's environment.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [sys.executable, "-m", "tests.cluster.dispatch.node_faults", str(folder)],
        cwd=ROOT,
        env={**inherited, **QUICK, **environment},
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    facts = json.loads(done.stdout.splitlines()[-1])
    assert isinstance(facts, dict)
    return facts


def test_gpu_worker_is_placed_on_a_gpu_node(outcome: dict[str, Any]) -> None:
    assert outcome["gpus"] == 1
    assert outcome["gpu"] == {"verdict": "agreed", "reason": "", "on_node": True}


def test_killed_dashboard_or_node_does_not_stop_a_campaign(outcome: dict[str, Any]) -> None:
    parts = outcome["parts"]
    assert parts["killed"] == ["dashboard", "node"]
    assert parts["kinds"] == ["agreed"] * NUM_JOBS
    assert parts["recorded"] == NUM_JOBS
    assert sum(parts["losses"].values()) == 1
    assert parts["losses"].keys() <= {"its process died", "its node died"}


def test_a_resource_that_no_node_has_is_named_and_nothing_is_judged(outcome: dict[str, Any]) -> None:
    started = "no worker could be started: it did not start within 1 s: each of 1 needs"
    assert outcome["gone"].startswith(started)


def test_a_killed_driver_goes_on_where_it_was_when_its_command_is_run_again(outcome: dict[str, Any]) -> None:
    driver = outcome["driver"]
    assert driver["code"] == 0, driver["err"]
    assert 1 <= driver["before"] < NUM_SMOKE
    assert f"{NUM_SMOKE} scenarios: {NUM_SMOKE} agreed" in driver["out"]
    assert f"kept from an earlier run: {driver['before']} of {NUM_SMOKE} results" in driver["out"]


def test_rays_metrics_endpoint_has_the_campaign(outcome: dict[str, Any]) -> None:
    lines = outcome["parts"]["metrics"]
    for metric in METRICS:
        seen = [line for line in lines if line.startswith(f"ray_{metric.name}")]
        # Nothing was found in these campaigns.
        assert bool(seen) == (metric.name != "specstorm_findings_total"), metric.name
    (jobs,) = [line for line in lines if line.startswith("ray_specstorm_jobs_total")]
    assert 'kind="judge"' in jobs
    assert float(jobs.split()[-1]) == NUM_JOBS + 1
    (lost,) = [line for line in lines if line.startswith("ray_specstorm_lost_jobs_total")]
    assert float(lost.split()[-1]) == 1
