"""Output comparison: what a client gets from one run against what it gets from another one.

Verifies: tokens, logprobs and finish reason of every request, and that a run ends and does not crash.
Does not verify: anything before the end. Of a request that is aborted, or whose logits an event spoils, only the common
part of its tokens is compared: how far it came depends on when. Names that are used again are left out: which of their
requests come to be does too. So are those whose tokens depend on their drafts.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from scenarios.events import Abort, NanLogits
from scenarios.trace import Trace
from workers.oracle.expected_captures import are_close
from workers.oracle.incremental_tape import depends_on_drafts
from workers.record.observation import Output

Outputs: TypeAlias = Mapping[str, Output]


class OutputDifference(NamedTuple):
    """The first output of a run that is not as in another one; of a run that broke off, how."""

    variable: str
    request: str
    position: int | None
    expected: object
    actual: object


def compare_outputs(trace: Trace, seen: Outputs | str, wanted: Outputs | str) -> OutputDifference | None:
    """Return the first output that is not as wanted, or None; a run that broke off, which is a text, is always seen.

    Requests are those of `wanted`, which may be fewer.
    """
    if isinstance(seen, str):
        return OutputDifference("end", "", None, "outputs", seen)
    if isinstance(wanted, str):
        return OutputDifference("end", "", None, f"the other run: {wanted}", "outputs")
    cut_short = {event.request for event in trace.events if isinstance(event, Abort | NanLogits)}
    submitted = Counter(event.request for event in trace.submits())
    by_chance = {event.request for event in trace.submits() if depends_on_drafts(event.params, trace.spec)}
    for name, output in wanted.items():
        if submitted[name] > 1 or name in by_chance:
            continue
        if name not in seen:
            return OutputDifference("tokens", name, None, "an output", "none")
        found = _first_difference(name, seen[name], output, name in cut_short)
        if found is not None:
            return found
    return None


def _first_difference(name: str, seen: Output, wanted: Output, is_cut_short: bool) -> OutputDifference | None:
    common = min(len(wanted.tokens), len(seen.tokens))
    for position in range(common):
        if seen.tokens[position] != wanted.tokens[position]:
            return OutputDifference("tokens", name, position, wanted.tokens[position], seen.tokens[position])
    if not is_cut_short:
        if len(seen.tokens) != len(wanted.tokens):
            expected, actual = f"{len(wanted.tokens)} tokens", f"{len(seen.tokens)} tokens"
            return OutputDifference("tokens", name, common, expected, actual)
        if seen.finish_reason != wanted.finish_reason:
            return OutputDifference("finish_reason", name, None, wanted.finish_reason, seen.finish_reason)
    shortest = min(len(wanted.logprobs), len(seen.logprobs)) if is_cut_short else None
    if not are_close(seen.logprobs[:shortest], wanted.logprobs[:shortest]):
        return OutputDifference("logprobs", name, None, wanted.logprobs[:shortest], seen.logprobs[:shortest])
    return None
