"""Number of traces until a fault is detected, and the combinations that traces reach."""

from benchmarks.power.combinations import possible, reached
from benchmarks.power.detection import Trial, trial


def test_trial_counts_from_one_and_past_the_limit_without_finding() -> None:
    assert trial("vllm-38556-backup-token", "mixed", 0, 30).at in range(1, 31)
    assert trial("vllm-39273-draftless-step", "mixed", 0, 1) == Trial("vllm-39273-draftless-step", "mixed", 0, 2)


def test_shard_coverage_is_valid_and_covers_all_planes() -> None:
    found = reached(1, 0)
    assert found.keys() <= set(possible())
    assert {each.plane for each in possible()} - {each.plane for each in found} <= {"prefix", "rng", "logits"}
