"""Faults in attention that sums a shared prefix once."""

from collections.abc import Sequence

from scenarios.spec import EngineSpec
from workers.engine.input_batch import Row
from workers.engine.parts import Parts
from workers.engine.staging import shared_prefix
from workers.faults.fault import Fault, Reached, in_place_of


@in_place_of("common_blocks")
def _stays_on(parts: Parts, reached: Reached, rows: Sequence[Row], spec: EngineSpec) -> int:
    found = parts.common_blocks(rows, spec)
    shared = shared_prefix(rows, spec.block_size) if spec.cascade else 0
    if shared > found:
        reached()
    return shared


FAULTS = (
    Fault(
        id="vllm-32951-cascade-stays-on",
        source="vllm PR #32951, which switches cascade attention off, undone",
        symptom="a token attends to blocks that its request has not computed, without a mask",
        trigger="drafts in flight fill a block as far as the host knows, and are rejected",
        plane="kv",
        requires=(("cascade", True), ("depth", 2)),
        apply=_stays_on,
    ),
)
