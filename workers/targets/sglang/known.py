"""Known bugs of SGLang, each read in its source and written about in `docs/findings/`; recognised by its mechanism."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact
from workers.record.observation import Observation
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


BUGS: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "sglang_standalone_prefix_successor",
        "docs/findings/sglang_standalone_prefix_successor.md",
        "SGLang 0.5.23 hands a draft model a cached prefix of which the last entry is of another token that followed.",
    ): _standalone_prefix_successor,
}
