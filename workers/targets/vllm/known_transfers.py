"""Known bugs of vLLM's transfers: matchers by mechanism, as far as a run shows it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from scenarios.events import DisturbTransfer, ResetPrefixCache, Submit
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, Site, fact
from workers.record.observation import Observation
from workers.targets.target import KnownBug

# How a disturbed transfer loses blocks.
_LOSING = ("drop", "fail")


def of_load_failed_in_flight(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request was planned again before the step came back in which a load of its own failed."""
    planned = {seen.step: seen.requests for seen in steps if seen.point == "scheduled"}
    failed = _failed_loads(found, trace, steps) if trace.spec.depth > 1 else ()
    return any(seen.requests[0] in planned.get(seen.step + 1, ()) for seen in failed)


def of_load_failed_in_a_step(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a load of a request has failed in a step of its own."""
    return any(True for _ in _failed_loads(found, trace, steps))


def of_draws_behind_a_failed_load(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request that draws its tokens draws others once a load of its own has failed in a step."""
    is_drawn = any(submit.params.temperature for submit in trace.submits() if submit.request == found.request)
    return is_drawn and found.variable in ("tokens", "logprobs") and of_load_failed_in_a_step(found, trace, steps)


def of_load_failed_beside(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether an entry that a request attends to is of a position behind the blocks of one whose load failed.

    The row of the block table ends there, and the next one's begins.
    """
    if (found.plane, found.variable) != ("kv", "attended") or not _loses_loads_in_steps(trace):
        return False
    match found.actual:
        case Fact(kind="entry_of_token", values=values):
            return any(values["position"] == each for each in _positions_behind_blocks(trace, found.step, steps))
    return False


def _positions_behind_blocks(trace: Trace, until: int, steps: Sequence[Observation]) -> Iterator[int]:
    """Yield positions behind the blocks of a request that steps compute, up to one, behind a load of it that failed."""
    failed, blocks = set[int](), dict[int, Sequence[int]]()
    for seen in steps:
        if seen.step > until:
            continue
        values = seen.values
        if seen.point == "transfer" and (values["of"], values["phase"]) == ("load", "ends") and values["lost"]:
            failed.update(seen.requests)
        elif seen.point == "scheduled":
            blocks = dict(values["blocks"])
        elif seen.point == "inputs" and failed:
            for row, request in enumerate(seen.requests):
                end = len(blocks.get(request, ())) * trace.spec.block_size
                computed = values["positions"][values["starts"][row] : values["starts"][row + 1]]
                yield from (position for position in computed if request in failed and position >= end)


def of_blocks_zeroed_before_stored(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request attends to nothing in a block that a store had lost by the time that it kept it.

    It was zeroed for another request in the step in which the store was ended ahead, and loaded from there.
    """
    if (found.plane, found.variable, found.actual) != ("kv", "attended", fact("entry_unwritten")):
        return False
    if found.position is None:
        return False
    zeroed = {seen.step: set(seen.values["blocks"]) for seen in steps if seen.point == "zeroed"}
    slots, loaded = set[int](), set[int]()
    for seen in (each for each in steps if each.point == "transfer" and each.values["phase"] == "ends"):
        pairs = list(zip(seen.values["blocks"], seen.values["slots"], strict=True))
        if seen.values["of"] == "store":
            gone = zeroed.get(seen.step, set()) if seen.values["is_ahead"] else set()
            slots = slots - {slot for _, slot in pairs} | {slot for block, slot in pairs if block in gone}
        elif seen.step < found.step:
            loaded = loaded - {block for block, _ in pairs} | {block for block, slot in pairs if slot in slots}
    index = found.position // trace.spec.block_size
    planned = (seen for seen in steps if (seen.point, seen.step) == ("scheduled", found.step))
    held = {f"submit {number}": blocks for seen in planned for number, blocks in seen.values["blocks"]}
    return loaded.intersection(held.get(found.request, ())[index : index + 1]) != set()


def _failed_loads(found: Difference, trace: Trace, steps: Sequence[Observation]) -> Iterator[Observation]:
    """Yield ends of a request's loads in steps that have lost what was to be computed again."""
    if not _loses_loads_in_steps(trace):
        return
    for seen in steps:
        is_load = seen.point == "transfer" and (seen.values["of"], seen.values["phase"]) == ("load", "ends")
        if not is_load or not seen.values["lost"] or seen.step > found.step:
            continue
        if found.request in (f"submit {seen.requests[0]}", trace.submitted()[seen.requests[0]].request):
            yield seen


def _loses_loads_in_steps(trace: Trace) -> bool:
    """Tell whether loads are lost that are part of a step, and are computed again."""
    transfer = trace.spec.transfer
    if transfer is None or (transfer.loads, transfer.failures) != ("synchronous", "recompute"):
        return False
    return any(isinstance(event, DisturbTransfer) and event.how in _LOSING for event in trace.events)


def hang_of_failed_load(trace: Trace, probes: Mapping[str, int]) -> bool:
    """Tell whether a load was lost whose request is computed again in a pool that has not room for it twice."""
    transfer, handoff = trace.spec.transfer, trace.spec.handoff
    is_stored = transfer is not None and (transfer.loads, transfer.failures) == ("asynchronous", "recompute")
    if not (is_stored or (handoff is not None and handoff.failures == "recompute")):
        return False
    lost = {event.request for event in trace.events if isinstance(event, DisturbTransfer) and event.how in _LOSING}
    # Who was preempted loads for what it has put out as well.
    is_again = probes.get("preemption", 0) > 0
    blocks = [_num_blocks(submit, trace, is_again) for submit in trace.submits() if submit.request in lost]
    return probes.get("lost_load", 0) > 0 and any(2 * count > trace.spec.num_blocks for count in blocks)


def _num_blocks(submit: Submit, trace: Trace, is_again: bool) -> int:
    """Return how many blocks a prompt takes, and where it comes again its outputs, at most."""
    length = len(submit.prompt) if isinstance(submit.prompt, tuple) else trace.spec.max_model_len
    length += submit.max_tokens - 1 if is_again else 0
    return -(-min(length, trace.spec.max_model_len) // trace.spec.block_size)


def crash_of_failed_load(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether an embedding is given what is no token, of a request whose load failed in a step.

    A GPU says so at some later call.
    """
    is_there = where.function == "embedding" and error.startswith("IndexError")
    return (is_there or "device-side assert" in error) and _loses_loads_in_steps(trace)


def crash_of_position_behind_blocks(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request whose load failed in a step is computed or attends behind its row of the block table.

    A slot is looked up there, and is in no row if that was the last; or attention would read there.
    """
    is_written = "_compute_slot_mappings_kernel" in error and error.rstrip("')").endswith("that it was given")
    is_read = (where.function, where.file) == ("attend", "lanes.py") and error.startswith("IndexError")
    return (is_written or is_read) and _loses_loads_in_steps(trace)


def crash_of_reset_with_a_load(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether the offloading connector takes a load for a store, of a request that a reset may have preempted."""
    is_there = (where.function, where.file) == ("build_connector_meta", "scheduler.py")
    is_reset = any(isinstance(event, ResetPrefixCache) and event.running for event in trace.events)
    return is_there and is_reset and error == "AssertionError: " and trace.spec.offloading is not None


_FAILED_LOAD = KnownBug(
    "vllm_failed_load_in_flight",
    "https://github.com/vllm-project/vllm/issues/45138",
    "vLLM 0.32.0 recomputes a request after a failed KV load while a step of that request is in flight.",
)
_BESIDE = KnownBug(
    "vllm_v2_failed_load_in_other_blocks",
    "https://github.com/vllm-project/vllm/pull/49252",
    "vLLM 0.32.0 recomputes after a failed KV load at positions past the request's blocks, in another's blocks.",
)
_Matcher = Callable[[Difference, Trace, Sequence[Observation]], bool]
BUGS_OF_FIRST: Mapping[KnownBug, _Matcher] = {
    _FAILED_LOAD: of_load_failed_in_flight,
    KnownBug(
        "vllm_failed_load_draws",
        "https://github.com/vllm-project/vllm/pull/19330",
        "vLLM 0.32.0 samples a token again after a failed KV load, without resetting the random generator.",
    ): of_draws_behind_a_failed_load,
}
BUGS_OF_SECOND: Mapping[KnownBug, _Matcher] = {
    _FAILED_LOAD: of_load_failed_in_a_step,
    _BESIDE: of_load_failed_beside,
    KnownBug(
        "vllm_v2_zeroed_before_stored",
        "findings/vllm_v2_zeroed_before_stored/README.md",
        "vLLM 0.32.0 zeroes blocks of a preempted request before its KV connector finishes storing them.",
    ): of_blocks_zeroed_before_stored,
}
CRASHES: Mapping[KnownBug, Callable[[str, Site, Trace, Sequence[Observation]], bool]] = {
    _FAILED_LOAD: crash_of_failed_load,
    KnownBug(
        "vllm_offloaded_reset",
        "findings/vllm_offloaded_reset/README.md",
        "vLLM 0.32.0 crashes: after a reset preempts a request, its KV load is completed as a store.",
        mended="0.33.0",
    ): crash_of_reset_with_a_load,
}
CRASHES_OF_SECOND: Mapping[KnownBug, Callable[[str, Site, Trace, Sequence[Observation]], bool]] = {
    _BESIDE: crash_of_position_behind_blocks
}
# Of a trace that made no progress, and what was counted of it.
HANGS: Mapping[KnownBug, Callable[[Trace, Mapping[str, int]], bool]] = {
    KnownBug(
        "vllm_failed_load_reserved",
        "findings/vllm_failed_load_reserved/README.md",
        "vLLM 0.32.0 lets a request wait forever after a failed KV load for blocks that it reserves itself.",
    ): hang_of_failed_load,
}
