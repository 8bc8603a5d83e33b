"""Faults when a request is preempted, resumed or ended."""

from dataclasses import replace

from workers.engine.parts import Parts
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Fault, Reached


def _resumed_with_one_chunk(parts: Parts, reached: Reached) -> Parts:
    def tokens_of(planned: PlanRow) -> list[int]:
        tokens, end = parts.tokens_of(planned), planned.num_computed + planned.n
        if planned.epoch and end < len(tokens):
            reached()
            return tokens[:end]
        return tokens

    return replace(parts, tokens_of=tokens_of)


def _stale_by_accepted(parts: Parts, reached: Reached) -> Parts:
    def drain_stale(request: Request, row: PlanRow, sampled: list[int]) -> None:
        if len(sampled) != row.n:
            reached()
        request.num_stale -= len(sampled)

    return replace(parts, drain_stale=drain_stale)


def _tail_is_kept(parts: Parts, reached: Reached) -> Parts:
    def blocks_to_free(request: Request, block_size: int) -> list[int]:
        blocks = parts.blocks_to_free(request, block_size)
        known = blocks[: -(-len(request.tokens) // block_size)]
        if len(known) < len(blocks):
            reached()
        return known

    return replace(parts, blocks_to_free=blocks_to_free)


def _length_before_stop(parts: Parts, reached: Reached) -> Parts:
    def end_of(request: Request, sampled: list[int]) -> tuple[int, str | None]:
        found, room = parts.end_of(request, sampled), request.length_limit - len(request.tokens)
        if len(sampled) < room or found == (room, "length"):
            return found
        reached()
        return room, "length"

    return replace(parts, end_of=end_of)


FAULTS = (
    Fault(
        id="vllm-28787-resumed-tokens",
        source="vllm PR #28787",
        symptom="a resumed request knows the tokens of its first chunk only",
        trigger="a request is preempted, and its recomputation takes more than one chunk",
        plane="inputs",
        requires=(),
        apply=_resumed_with_one_chunk,
    ),
    Fault(
        id="vllm-48245-stale-output",
        source="vllm PR #48245, variant: stale output is drained by what was accepted",
        symptom="a preempted request waits for output that has already come",
        trigger="a request is preempted with drafts or a chunk in flight",
        plane="books",
        requires=(),
        apply=_stale_by_accepted,
    ),
    Fault(
        id="sglang-13826-tail-blocks",
        source="sglang PR #13826, issue #13741",
        symptom="blocks are never given back",
        trigger="a request ends or is preempted while it owns blocks for drafts past its tokens",
        plane="blocks",
        requires=(),
        apply=_tail_is_kept,
    ),
    Fault(
        id="sglang-33758-length-before-stop",
        source="sglang PR #33758",
        symptom="a request emits tokens past its stop token and ends with reason length",
        trigger="an accepted run holds a stop token and reaches the length limit",
        plane="tokens",
        requires=(),
        apply=_length_before_stop,
    ),
)
