"""Traces to detection by source (`benchmarks.power.detection`), and the combinations that traces reach."""

from benchmarks.power.combinations import possible, reached
from benchmarks.power.detection import Trial, trial


def test_a_trial_counts_traces_from_one_and_one_that_finds_nothing_counts_one_more_than_were_tried() -> None:
    assert trial("vllm-38556-backup-token", "mixed", 0, 30).at in range(1, 31)
    assert trial("vllm-39273-draftless-step", "mixed", 0, 1) == Trial("vllm-39273-draftless-step", "mixed", 0, 2)


def test_what_a_shard_reaches_is_possible_and_every_plane_is_among_it() -> None:
    found = reached(1, 0)
    assert found.keys() <= set(possible())
    assert {each.plane for each in possible()} - {each.plane for each in found} <= {"prefix", "rng", "logits"}
