"""Faults in waits: memory is reused or read before the copy or kernel using it is done."""

from workers.engine.functions import EngineFunctions
from workers.faults.fault import Reached, fault, in_place_of
from workers.lanes.lane import Lane, LaneEvent


@fault(
    id="ascend-12079-staging",
    source="vllm-ascend PRs #12079, #12191 and #16428",
    symptom="a step runs with the inputs of the next step",
    trigger="the host prepares a step in the only staging buffer while its copy to the device is pending",
    plane="races",
    # With counts on the host, the host waits for the previous step before it stages the next.
    requires=(("depth", 2), ("accepted_counts", "device")),
)
@in_place_of("staging_slot")
def _one_staging_buffer(functions: EngineFunctions, reached: Reached, step: int, num_slots: int) -> int:
    if functions.staging_slot(step, num_slots):
        reached()
    return 0


@fault(
    id="sglang-28034-inputs-overwritten",
    source="sglang PRs #22113 and #28034",
    symptom="the inputs of a step are overwritten while its drafter still reads them",
    trigger="the copy of the next inputs runs before the drafter",
    plane="races",
)
@in_place_of("wait_for_readers")
def _copies_do_not_wait(functions: EngineFunctions, reached: Reached, h2d: Lane, inputs_read: LaneEvent) -> None:
    if inputs_read.record_newest is not None:
        reached()


@fault(
    id="ascend-3372-output-at-once",
    source="vllm-ascend PR #3372",
    symptom="the host reads an earlier step's tokens instead of this step's sampled tokens",
    trigger="the copy of the sampled tokens is late",
    plane="races",
)
@in_place_of("wait_for_output")
def _output_is_read_at_once(functions: EngineFunctions, reached: Reached, output_done: LaneEvent) -> None:
    reached()
