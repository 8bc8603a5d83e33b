"""Faults in the recurrent (Mamba) state that a row continues from.

All are in device ops, so they exist only on the NumPy tier.
"""

from dataclasses import replace

import numpy as np

from workers.engine.functions import EngineFunctions
from workers.faults.fault import Reached, fault, in_place_of, op_like
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.recurrent_update.definition import RecurrentUpdate
from workers.kernels.sentinels import POISON


@fault(
    id="tpu-2431-inherited-state",
    source="tpu-inference PR #2431; vllm-metal issue #488 for a resumed request",
    symptom="a request starts from the recurrent state of its slot's last owner",
    trigger="a state slot is used for the second time",
    plane="recurrent",
    requires=(("layers", "hybrid"),),
)
@in_place_of("recurrent_update")
def _inherits_the_slot(functions: EngineFunctions, reached: Reached, given: RecurrentUpdate) -> None:
    states = given.states.reshape(-1, 2 + given.num_speculative_tokens)
    fresh = (given.state_slot >= 0) & (given.num_computed == 0)
    # Unused memory is zero in that engine.
    inherits = fresh & (states[given.state_slot, given.accepted] != POISON)
    if inherits.any():
        reached()
    functions.recurrent_update(replace(given, num_computed=given.num_computed + inherits))


@fault(
    id="vllm-39273-draftless-step",
    source="vllm issue #39273, PR #39463",
    symptom="a request continues from the recurrent state after its first verified, not its last accepted, token",
    trigger="two or more tokens are accepted, and the request's next step verifies no draft tokens",
    plane="recurrent",
    requires=(("layers", "hybrid"),),
)
@in_place_of("recurrent_update")
def _draftless_reads_the_first(functions: EngineFunctions, reached: Reached, given: RecurrentUpdate) -> None:
    draftless = (given.num_computed > 0) & (given.num_scheduled == 1) & (given.num_drafts == 0)
    stale = draftless & (given.accepted > 1)
    if stale.any():
        reached()
    functions.recurrent_update(replace(given, accepted=np.where(stale, 1, given.accepted)))


@fault(
    id="llamacpp-26695-whole-roll-back",
    source="llama.cpp issue #26695",
    symptom="the recurrent state includes tokens that were rolled back",
    trigger="all verified tokens of a row are rolled back, including the first",
    plane="recurrent",
    requires=(("layers", "hybrid"),),
)
def _whole_roll_back_is_none(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    last: dict[int, tuple[int, int]] = {}

    def body(given: RecurrentUpdate) -> None:
        accepted = given.accepted.copy()
        base = given.num_computed + given.num_scheduled - 1 - given.num_drafts
        for row, slot in enumerate(given.state_slot.tolist()):
            # A row that joins with a prefix-cache hit has accepted nothing either, but none of it is rolled back.
            before, num_drafts = last.get(slot, (0, 0))
            if slot >= 0 and given.num_computed[row] == before > 0 and accepted[row] == 0:
                reached()
                accepted[row] = 1 + num_drafts
            last[slot] = int(base[row]), int(given.num_drafts[row])
        functions.recurrent_update(replace(given, accepted=accepted))

    return replace(functions, recurrent_update=op_like(functions.recurrent_update, body))


@fault(
    id="beellama-165-second-roll-back",
    source="beellama.cpp issue #165",
    symptom="the recurrent state is rolled back to the previous roll-back's position, not to its own",
    trigger="a draft token is rejected, and all tokens of the request's next verification are rolled back",
    plane="recurrent",
    requires=(("layers", "hybrid"), ("accepted_counts", "device")),
)
def _second_roll_back_is_lost(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    pending: set[int] = set()

    def body(given: CountSampled) -> None:
        before = given.slot_accepted.copy()
        functions.count_sampled(given)
        for row, slot in enumerate(given.state_slot.tolist()):
            if slot < 0:
                continue
            accepted, num_drafts = int(given.accepted[row]), int(given.num_drafts[row])
            if accepted == 0 and slot in pending and before[slot]:
                reached()
                given.slot_accepted[slot] = before[slot]
            pending.discard(slot)
            if accepted < 1 + num_drafts:
                pending.add(slot)

    return replace(functions, count_sampled=op_like(functions.count_sampled, body))
