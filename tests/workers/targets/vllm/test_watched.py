"""The pytest plugin that watches vLLM's own tests: mistakes planted in vLLM fail the tests."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from workers.edits.edit import Edit
from workers.edits.tree import overlay
from workers.targets.child.installation import site_packages_of
from workers.targets.target import DEFAULT_CONFIG
from workers.targets.vllm.installation import ROOT, home_of

HOME = home_of(DEFAULT_CONFIG)
TESTS = Path(__file__).with_name("watched_tests.py")
_PLANS = "vllm.v1.core.sched.scheduler:Scheduler._make_cached_request_data"
PLANTED = {
    "an_order": (
        Edit(
            at="vllm.v1.worker.gpu_model_runner:AsyncGPUModelRunnerOutput.get_output",
            without="self.async_copy_ready_event.synchronize()",
        ),
        "an_engine",
        "nothing orders",
    ),
    "a_count": (
        Edit(
            at=_PLANS, find="num_computed_tokens.append(req.num_computed_tokens)", put="num_computed_tokens.append(30)"
        ),
        "a_scheduler",
        "scheduled_computed is 30, expected 31 to 31   (plane: counts)",
    ),
    "a_block": (
        Edit(at=_PLANS, find="req_to_new_blocks[req_id].get_block_ids(allow_none=True)", put="None"),
        "a_scheduler",
        "tables is block none, expected entry 1 of its own block table   (plane: blocks)",
    ),
    "a_leak": (
        Edit(
            at="vllm.v1.core.sched.scheduler:Scheduler._free_request_blocks",
            find="self.kv_cache_manager.free(request)",
            put="None",
        ),
        "a_scheduler",
        "leaks is ",
    ),
}


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the tests under the plugin, in a folder without our pytest settings."""
    command = [str(HOME / "bin/python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "specstorm_vllm"]
    file = shutil.copy(TESTS, folder)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [*command, *arguments, str(file)], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )


def test_unchanged_vllm_tests_pass_under_the_plugin(tmp_path: Path) -> None:
    run = run_in(tmp_path, "--specstorm-schedule", "lazy")
    assert run.returncode == 0, run.stdout
    assert "3 tests watched: 0 races; 0 broken identities in " in run.stdout
    # One engine in each test, and two schedulers without an engine.
    assert " steps of 3 engines and 4 plans of 2 schedulers" in run.stdout
    assert "1 schedulers judged only until: it recomputes the end of a prefix-cache hit" in run.stdout


@pytest.mark.parametrize("what", PLANTED)
def test_planted_mistake_fails_a_watched_test(what: str, tmp_path: Path) -> None:
    edit, test, text = PLANTED[what]
    installed = site_packages_of(HOME, "vllm")
    assert installed is not None
    tree = overlay([edit], installed, tmp_path / "tree")
    run = run_in(tmp_path, "--specstorm-engine-path", str(tree), "-k", test)
    assert run.returncode == 1, run.stdout
    assert text in run.stdout


def test_invalid_schedule_option_is_refused(tmp_path: Path) -> None:
    run = run_in(tmp_path, "--specstorm-schedule", "never")
    assert run.returncode == 4
    assert "argument --specstorm-schedule: invalid choice: 'never'" in run.stderr
