"""Known bugs of SGLang, each read in its source and written about in `docs/findings/`; recognised by its mechanism."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact
from workers.record.observation import Observation
from workers.targets.sglang.limits import has_penalties
from workers.targets.target import KnownBug

_Matcher: TypeAlias = Callable[[Difference, Trace, Sequence[Observation]], bool]


def _standalone_prefix_successor(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether an entry of a draft model's cache is another request's, of another token that followed."""
    due, there = found.expected, found.actual
    if found.variable != "draft_cache" or not (isinstance(due, Fact) and isinstance(there, Fact)):
        return False
    is_shared = trace.spec.prefix_cache and trace.spec.drafter == "draft_model"
    at = due.values.get("position")
    is_end = isinstance(at, int) and (at + 1) % trace.spec.block_size == 0
    is_anothers = there.values.get("position") == at and there.values.get("request") != due.values.get("request")
    return is_shared and is_end and is_anothers


def _penalties_one_behind(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request with penalties has other tokens while its last token is not told to them."""
    return trace.spec.depth > 1 and found.variable == "tokens" and bool(_with_penalties(found, trace))


def _penalties_forgotten(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request with penalties has other tokens once it has lost its slots."""
    begun = [number for seen in steps if seen.point == "scheduled" for number, _ in seen.values["begun"]]
    is_retracted = any(begun.count(number) > 1 for number in _with_penalties(found, trace))
    return found.variable == "tokens" and is_retracted


def _with_penalties(found: Difference, trace: Trace) -> list[int]:
    """Return the numbers of the requests that a difference may be of, as far as they have penalties."""
    submits = enumerate(trace.submitted())
    return [number for number, each in submits if each.request == found.request and has_penalties(each.params)]


BUGS: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "sglang_penalties_one_behind",
        "docs/findings/sglang_penalties_one_behind.md",
        "SGLang 0.5.23 counts a token to penalties one step late with its overlap schedule, and a prompt's last one.",
    ): _penalties_one_behind,
    KnownBug(
        "sglang_penalties_forgotten",
        "docs/findings/sglang_penalties_forgotten.md",
        "SGLang 0.5.23 forgets for penalties what a request had put out before it lost its slots.",
    ): _penalties_forgotten,
    KnownBug(
        "sglang_standalone_prefix_successor",
        "docs/findings/sglang_standalone_prefix_successor.md",
        "SGLang 0.5.23 hands a draft model a cached prefix of which the last entry is of another token that followed.",
    ): _standalone_prefix_successor,
}
