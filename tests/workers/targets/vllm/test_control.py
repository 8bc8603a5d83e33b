"""Control plane of the real vLLM: each planted mistake is found by its own check."""

from pathlib import Path

import pytest

from scenarios.codec import load
from tests.workers.targets.vllm.test_vllm import KIND, VALUE_CACHE, laid_over
from workers.edits.fix import ALL
from workers.record.verdict import Diverged
from workers.run.check import check
from workers.targets.vllm.installation import ROOT

_ENGINE, _SCHEDULER = "v1/engine/core.py", "v1/core/sched/scheduler.py"
# A file, its text before and after the mistake; the scenario, and the plane and variable of the finding.
MISTAKES = {
    "a pause that keeps requests lets them run": (
        (_ENGINE, 'PauseState.PAUSED_ALL if mode == "keep" else PauseState.PAUSED_NEW', "PauseState.PAUSED_NEW"),
        ("paused_and_nothing_lost", "control", "paused"),
    ),
    "a pause that waits admits new requests": (
        (_SCHEDULER, "if not request_queue and self._pause_state == PauseState.UNPAUSED:", "if not request_queue:"),
        ("paused_until_drained", "control", "paused"),
    ),
    "a pause that clears the KV cache keeps it": (
        (_ENGINE, "if clear_cache:\n            self._reset_caches()", "if False:\n            self._reset_caches()"),
        ("paused_until_drained", "control", "era"),
    ),
    "block hashes survive a change of weights": (
        (
            "v1/core/block_pool.py",
            "self.cached_block_hash_to_block = BlockHashToBlockMap()\n        self",
            "return True\n        self",
        ),
        ("weights_exchanged", "control", "era"),
    ),
    "the output head keeps its old weights": (
        (
            "model_executor/model_loader/reload/inplace.py",
            "model.load_weights(weights_iterator)",
            'model.load_weights((name, weight) for name, weight in weights_iterator if "lm_head" not in name)',
        ),
        ("weights_exchanged", "control", "weights"),
    ),
    "the drafter's weights are lost in a sleep": (
        ("v1/worker/gpu_worker.py", "if draft is not None:\n            shared", "if False:\n            shared"),
        ("asleep", "control", "drafter_weights"),
    ),
    "a pause does not abort waiting requests": (
        (
            _ENGINE,
            "aborted_reqs = self.scheduler.finish_requests(\n                None,",
            "aborted_reqs = self.scheduler.finish_requests(\n[r.request_id for r in self.scheduler.running],",
        ),
        ("paused_and_aborted", "contracts", "abort"),
    ),
    "a dummy batch writes to a KV-cache block": (
        ("v1/worker/gpu_model_runner.py", "sm.fill_(-1)", "sm.fill_(40)"),
        ("dummy_steps", "tokens", "tokens"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_control_plane_mistake_is_found_by_its_check(mistake: str, tmp_path: Path) -> None:
    (file, before, after), (scenario, plane, variable) = MISTAKES[mistake]
    config = laid_over(tmp_path, file, before, after).model_copy(update={"fixes": ALL})
    verdict = check(load(ROOT / "scenarios" / "vllm" / f"{scenario}.yaml").explicit(), VALUE_CACHE, config=config)
    KIND.keeper(config).stop()
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == (plane, variable)
