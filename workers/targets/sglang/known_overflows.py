"""Known bugs of SGLang near the end of the context: what is sized by that, and written to behind it.

Under the overlap schedule a request whose last tokens are in flight is longer than its model allows; and each decode
holds slots for two runs of drafts. Known by the memory, or the slots that are lost, and by the plans before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.sglang.limits import CONTEXT_BEYOND
from workers.targets.target import KnownBug

_CrashMatcher: TypeAlias = Callable[[str, Trace, Sequence[Observation]], bool]
_Matcher: TypeAlias = Callable[[Difference, Trace, Sequence[Observation]], bool]

# Slots of a row beside those of the context and the tokens verified.
_ROW_SPARE = 4


def _crash_of_draft_indices(error: str, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether the indices of slots that drafts attend to outgrow a buffer for contexts alone."""
    is_there = "generate_draft_decode_kv_indices stores to byte" in error
    return is_there and _comes_beyond(_context(trace), trace.spec.num_speculative_tokens, trace, steps)


def _crash_of_row(error: str, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether slots that are held are written behind the last row, or were lost behind another one."""
    is_there = "assign_req_to_token_pool stores to byte" in error or "pool memory leak detected" in error
    return is_there and _outgrows_row(trace, steps)


def _lost_behind_row(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether slots were held behind a row: they are given back as far as the row goes."""
    return found.variable == "leaks" and _outgrows_row(trace, steps)


def _outgrows_row(trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether slots for two runs of drafts come to lie behind a request's row, in another one or behind all."""
    spec, k = trace.spec, trace.spec.num_speculative_tokens
    if spec.block_size > 1 or not k:
        return False
    return _comes_beyond(_context(trace) + _ROW_SPARE + 1 + k, 2 * max(k * spec.tree_width, 1 + k), trace, steps)


def _context(trace: Trace) -> int:
    return trace.spec.max_model_len + CONTEXT_BEYOND


def _comes_beyond(limit: int, more: int, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request and `more` of it come beyond a limit once a step is over, if all its drafts are kept.

    That step may be the one of a prompt. Where no steps were asked for, a request may come as far as its length.
    """
    spec = trace.spec
    lengths = [submit.prompt_length for submit in trace.submitted()]
    for seen in steps:
        if seen.point == "scheduled":
            rows = zip(seen.values["scheduled_computed"], seen.values["planned_drafts"], strict=True)
            lengths += [computed + 1 + drafts for computed, drafts in rows if drafts]
    if not steps:
        ends = [spec.length_limit(submit.prompt_length, submit.max_tokens) for submit in trace.submitted()]
        lengths += [end - 1 + spec.num_speculative_tokens for end in ends]
    return any(length + more > limit for length in lengths)


_ROW_OVERFLOW = KnownBug(
    "sglang_row_overflow",
    "findings/sglang_row_overflow/README.md",
    "SGLang 0.5.23 writes KV slots of drafts past the end of a request's row near the context limit.",
)
OVERFLOWS: Mapping[KnownBug, _Matcher] = {_ROW_OVERFLOW: _lost_behind_row}
CRASHES: Mapping[KnownBug, _CrashMatcher] = {
    KnownBug(
        "sglang_draft_indices_overflow",
        "findings/sglang_draft_indices_overflow/README.md",
        "SGLang 0.5.23 writes the drafter's KV slot indices past the end of their buffer near the context limit.",
    ): _crash_of_draft_indices,
    _ROW_OVERFLOW: _crash_of_row,
}
