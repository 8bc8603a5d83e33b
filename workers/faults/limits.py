"""Faults that lift a restriction of the engine: a fix has disabled or forbidden the feature."""

from collections.abc import Sequence

from scenarios.spec import EngineSpec
from workers.engine.functions import EngineFunctions
from workers.engine.input_batch import Row
from workers.engine.staging import shared_prefix
from workers.faults.fault import Reached, fault, in_place_of


@fault(
    id="vllm-32951-cascade-stays-on",
    source="vllm PR #32951 (which disables cascade attention), reverted",
    symptom="a token attends, without a mask, to blocks that its request has not computed",
    trigger="draft tokens in flight fill a block by the host's counts, and are rejected",
    plane="kv",
    requires=(("cascade", True), ("depth", 2)),
)
@in_place_of("common_blocks")
def _stays_on(functions: EngineFunctions, reached: Reached, rows: Sequence[Row], spec: EngineSpec) -> int:
    found = functions.common_blocks(rows, spec)
    shared = shared_prefix(rows, spec.block_size) if spec.cascade else 0
    if shared > found:
        reached()
    return shared


@fault(
    id="specstorm-depth-3",
    source="derived from vLLM PR #32951, which corrects counts by one step; its review asks about three",
    symptom="a request continues with a count that still includes rejected draft tokens",
    trigger="a request is left out of a step while draft tokens in flight will be rejected",
    plane="counts",
    requires=(("depth", 3),),
)
@in_place_of("must_process")
def _depth_as_specified(functions: EngineFunctions, reached: Reached, num_in_flight: int, depth: int) -> bool:
    if num_in_flight < depth and functions.must_process(num_in_flight, depth):
        reached()
    return num_in_flight >= depth
