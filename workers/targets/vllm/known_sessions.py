"""Known bugs of vLLM's streaming sessions: matchers by mechanism, as far as a run shows it."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from scenarios.events import Submit
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, Site
from workers.record.observation import Observation
from workers.targets.target import KnownBug


def _session_of(found: Difference, trace: Trace) -> Sequence[Submit]:
    """Return the parts of the session that a difference is about, in their order; none if it is about no such request.

    Steps name a session by the number of its first part.
    """
    parts = [
        submit
        for number, submit in enumerate(trace.submits())
        if submit.session is not None and found.request in (submit.request, f"submit {number}")
    ]
    return [submit for submit in trace.submits() if parts and submit.session == parts[0].session]


def _is_later_part(found: Difference, trace: Trace) -> bool:
    """Tell whether a difference is about a part that goes on from another."""
    return any(part.request == found.request for part in _session_of(found, trace)[1:])


def _begun(found: Difference, trace: Trace, steps: Sequence[Observation]) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield how much is computed, and the tokens known, each time that the session begins or goes on."""
    first = next(iter(_session_of(found, trace)), None)
    number = list(trace.submits()).index(first) if first is not None else None
    for seen in steps:
        tokens = dict(seen.values["begun"]).get(number) if seen.point == "scheduled" else None
        if tokens is not None:
            yield seen.values["scheduled_computed"][seen.requests.index(number)], tokens


def of_grammars(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a part goes on in a session of which a part has a grammar."""
    return _is_later_part(found, trace) and any(part.params.grammar for part in _session_of(found, trace))


def of_drafts_behind_ends(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a session of a synchronous engine goes on behind drafts that were verified with its last token."""
    drafts = trace.spec.num_speculative_tokens
    return trace.spec.depth == 1 and drafts > 0 and len(_session_of(found, trace)) > 1


def crash_of_drafts_behind_ends(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether more is computed of such a session than it has tokens."""
    is_there = (where.function, where.file) == ("schedule", "scheduler.py") and error.startswith("AssertionError")
    has_sessions = any(submit.session is not None for submit in trace.submits())
    return is_there and has_sessions and trace.spec.depth == 1 and trace.spec.num_speculative_tokens > 0


def of_seeds(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a part that draws its tokens draws others than a request of its own would."""
    is_drawn = any(part.request == found.request and part.params.temperature for part in trace.submits())
    return is_drawn and found.variable in ("tokens", "logprobs") and _is_later_part(found, trace)


def of_preemptions(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a session was preempted with its part's last token in flight: it is lost, or its tokens are."""
    if trace.spec.depth == 1 or not any(submit.session is not None for submit in trace.submits()):
        return False
    if (found.plane, found.variable) == ("books", "leaks"):
        return True
    lengths = [len(tokens) for _, tokens in _begun(found, trace, steps)]
    return lengths != sorted(lengths)


def of_lookups(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether drafts are looked up in a session that has gone on, of which the device has not all tokens."""
    if (found.plane, found.variable, trace.spec.drafter) != ("drafts", "looked_up", "ngram_gpu"):
        return False
    goes_on = len(_session_of(found, trace)) > 1 and len(list(_begun(found, trace, steps))) > 1
    return trace.spec.depth > 1 and goes_on


def of_drafters(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a drafter's entry in front of a part is that of the token which the session has dropped."""
    if found.variable != "draft_cache" or found.position is None:
        return False
    return any(computed == found.position + 1 for computed, _ in list(_begun(found, trace, steps))[1:])


def of_pauses(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a session goes on with its next part while the engine only lets requests come to their ends."""
    due = found.expected
    if (found.plane, found.variable) != ("control", "paused") or not isinstance(due, Fact):
        return False
    goes_on = len(_session_of(found, trace)) > 1 and len(list(_begun(found, trace, steps))) > 1
    return due.values.get("mode") == "wait" and goes_on


def crash_of_resets(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether the cache cannot be cleared, beside a session and without a connector."""
    has_sessions = any(submit.session is not None for submit in trace.submits())
    is_refused = error.startswith("RuntimeError: Failed to reset KV cache") and where.function == "reset_prefix_cache"
    return is_refused and has_sessions and not trace.spec.has_connector


_DRAFTS_BEHIND_ENDS = KnownBug(
    "vllm_session_drafts",
    "https://github.com/vllm-project/vllm/pull/44526",
    "vLLM 0.32.0 without async scheduling counts drafts past a session part's end as computed tokens.",
    mended="0.33.0",
)
BUGS: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_session_grammars",
        "https://github.com/vllm-project/vllm/pull/57685",
        "vLLM 0.32.0 masks each session part by the grammar of the first part, or by none.",
    ): of_grammars,
    _DRAFTS_BEHIND_ENDS: of_drafts_behind_ends,
    KnownBug(
        "vllm_session_preempted",
        "findings/vllm_session_preempted/README.md",
        "vLLM 0.32.0 loses a session or its tokens after a preemption with a part's last token in flight.",
        mended="0.33.0",
    ): of_preemptions,
    KnownBug(
        "vllm_session_drafters",
        "findings/vllm_session_drafters/README.md",
        "vLLM 0.32.0 keeps the drafter's KV entry of the token that a session drops at the end of a part.",
    ): of_drafters,
    KnownBug(
        "vllm_session_paused",
        "findings/vllm_session_paused/README.md",
        "vLLM 0.32.0 computes the next part of a session while it is paused.",
    ): of_pauses,
}
BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_session_seeds",
        "findings/vllm_session_seeds/README.md",
        "vLLM 0.32.0 samples each session part with the random generator of the first part, or with none.",
    ): of_seeds,
    KnownBug(
        "vllm_session_lookups",
        "findings/vllm_session_lookups/README.md",
        "vLLM 0.32.0 looks n-gram drafts up in a session's row before the next part's tokens are copied to it.",
    ): of_lookups,
}
CRASHES: Mapping[KnownBug, Callable[[str, Site, Trace, Sequence[Observation]], bool]] = {
    _DRAFTS_BEHIND_ENDS: crash_of_drafts_behind_ends,
    KnownBug(
        "vllm_session_reset",
        "findings/vllm_session_reset/README.md",
        "vLLM 0.32.0 cannot reset its prefix cache while a session waits for its next part.",
    ): crash_of_resets,
}
