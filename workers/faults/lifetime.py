"""Faults in preempting, resuming and ending requests."""

from collections.abc import Sequence
from dataclasses import replace

from scenarios.events import PreemptMode
from workers.engine.functions import EngineFunctions
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of


@fault(
    id="vllm-28787-resumed-tokens",
    source="vllm PR #28787",
    symptom="a resumed request knows only the tokens of its first prefill chunk",
    trigger="a request is preempted, and its recomputation takes more than one prefill chunk",
    plane="inputs",
)
@in_place_of("initial_tokens")
def _resumed_with_one_chunk(functions: EngineFunctions, reached: Reached, planned: PlanRow) -> list[int]:
    tokens, end = functions.initial_tokens(planned), planned.num_computed + planned.scheduled.n
    if planned.scheduled.epoch and end < len(tokens):
        reached()
        return tokens[:end]
    return tokens


@fault(
    id="vllm-48245-stale-output",
    source="vllm PR #48245, variant: stale output is drained by the accepted tokens",
    symptom="a preempted request waits for output tokens that have already arrived",
    trigger="a request is preempted with draft tokens or a prefill chunk in flight",
    plane="books",
)
@in_place_of("subtract_stale")
def _stale_by_accepted(
    functions: EngineFunctions, reached: Reached, request: Request, row: PlanRow, sampled: Sequence[int]
) -> None:
    if len(sampled) != row.scheduled.n:
        reached()
    request.num_stale -= len(sampled)


@fault(
    id="gaudi-1794-late-results",
    source="vllm-gaudi PR #1794",
    symptom="tokens sampled before a preemption are lost, and sampled again",
    trigger="a request is preempted in deliver mode with a sample in flight",
    plane="tokens",
)
@in_place_of("deliver_stale")
def _stale_results_are_swallowed(
    functions: EngineFunctions, reached: Reached, request: Request, row: PlanRow, sampled: Sequence[int]
) -> Sequence[int]:
    if request.num_placeholders or not functions.deliver_stale(request, row, sampled):
        return functions.deliver_stale(request, row, sampled)
    reached()
    return ()


@fault(
    id="vllm-48245-one-result",
    source="vllm PR #48245, variant: a flag drops one result",
    symptom="a preempted request gets output tokens that do not follow its last ones",
    trigger="a request is preempted in drop mode with two samples in flight",
    plane="tokens",
    requires=(("depth", 2),),
)
def _one_result_is_dropped(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    dropped: set[tuple[int, int]] = set()

    def deliver_stale(request: Request, row: PlanRow, sampled: Sequence[int]) -> Sequence[int]:
        key = request.index, request.drop_before
        if row.scheduled.epoch >= request.drop_before or not sampled or key not in dropped:
            dropped.update([key] if sampled and row.scheduled.epoch < request.drop_before else [])
            return functions.deliver_stale(request, row, sampled)
        reached()
        return sampled

    return replace(functions, deliver_stale=deliver_stale)


@fault(
    id="vllm-49860-placeholders",
    source="vllm PR #49860",
    symptom="a request counts placeholders for discarded results",
    trigger="a request is preempted in drop mode with a sample in flight",
    plane="counts",
)
@in_place_of("reset_counts")
def _dropping_keeps_placeholders(
    functions: EngineFunctions, reached: Reached, request: Request, mode: PreemptMode
) -> None:
    kept = request.num_placeholders
    functions.reset_counts(request, mode)
    if mode == "drop" and kept:
        reached()
        request.num_placeholders = kept


@fault(
    id="vllm-33377-aborted-goes-on",
    source="vllm PR #33377; in vLLM its blocks, freed late, are freed twice",
    symptom="results are delivered to an aborted request",
    trigger="a request is aborted with a sample in flight",
    plane="tokens",
)
@in_place_of("has_ended")
def _aborted_goes_on(functions: EngineFunctions, reached: Reached, request: Request) -> bool:
    if request.finish_reason == "abort":
        reached()
        return False
    return functions.has_ended(request)


@fault(
    id="lmdeploy-4654-abort-of-the-ended",
    source="lmdeploy PR #4654",
    symptom="a finished request is reported as aborted",
    trigger="a request is aborted after it has ended, with one of its steps in flight",
    plane="tokens",
    requires=(("depth", 2),),
)
@in_place_of("abort_reason")
def _abort_takes_the_result(functions: EngineFunctions, reached: Reached, request: Request) -> str:
    if request.finish_reason in (None, "abort") or not request.num_in_flight:
        return functions.abort_reason(request)
    reached()
    return "abort"


@fault(
    id="sglang-13826-tail-blocks",
    source="sglang PR #13826, issue #13741",
    symptom="blocks are never released",
    trigger="a request ends or is preempted while it owns blocks for draft tokens past its tokens",
    plane="blocks",
)
@in_place_of("blocks_to_free")
def _tail_is_kept(functions: EngineFunctions, reached: Reached, request: Request, block_size: int) -> list[int]:
    blocks = functions.blocks_to_free(request, block_size)
    known = blocks[: -(-len(request.tokens) // block_size)]
    if len(known) < len(blocks):
        reached()
    return known


@fault(
    id="sglang-33758-length-before-stop",
    source="sglang PR #33758",
    symptom="a request returns tokens past its stop token and ends with reason length",
    trigger="accepted draft tokens contain a stop token and reach the length limit",
    plane="tokens",
)
@in_place_of("accepted_length")
def _length_before_stop(
    functions: EngineFunctions, reached: Reached, request: Request, sampled: Sequence[int]
) -> tuple[int, str | None]:
    found, room = functions.accepted_length(request, sampled), request.length_limit - len(request.tokens)
    if len(sampled) < room or found == (room, "length"):
        return found
    reached()
    return room, "length"
