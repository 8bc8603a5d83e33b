"""Known bugs of vLLM's grammars: see `known`."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.target import KnownBug


def _grammar_rows(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request with a grammar stands behind one of which the device cut drafts: its mask is another's.

    It is ended for its first token that its grammar does not allow, which nothing but that may show.
    """
    is_breach = (found.plane, found.variable) == ("contracts", "grammar") and found.is_kept_elsewhere
    is_ended = (found.plane, found.variable) == ("transfers", "failures")
    is_unlike = found.variable == "tokens" and found.reference is Reference.SYNCHRONOUS
    if not (is_breach or is_ended or is_unlike) or trace.spec.drafter != "ngram_gpu":
        return False
    submits = trace.submitted()
    return any(
        submits[row].request == found.request and submits[row].params.grammar and submits[before].params.grammar
        for before, row in _behind_cut_drafts(steps)
    )


def _behind_cut_drafts(steps: Sequence[Observation]) -> Iterator[tuple[int, int]]:
    """Yield pairs of requests of a step: one of which the runner cut drafts that were planned, and one behind it.

    Rows of a mask stand in the scheduler's order, which the runner's batch may not have.
    """
    planned: dict[int, dict[int, int]] = {}
    for seen in steps:
        if seen.point == "scheduled":
            planned[seen.step] = dict(zip(seen.requests, seen.values["planned_drafts"], strict=True))
        elif seen.point == "inputs":
            left = dict(zip(seen.requests, seen.values["drafts"], strict=True))
            order = planned.get(seen.step, {})
            for place, (request, drafts) in enumerate(order.items()):
                if left.get(request, drafts) < drafts:
                    yield from ((request, behind) for behind in [*order][place + 1 :])


def _mask_of_placeholders(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether drafts of a request with a grammar were verified in the first step behind a pause that kept it.

    Nothing was in flight when that was planned: its mask is made of placeholders, while the runner has the drafts.
    """
    if not (found.plane in ("contracts", "transfers") or found.reference is not None):
        return False
    numbers = {
        number
        for number, submit in enumerate(trace.submitted())
        if found.request in (submit.request, f"submit {number}") and submit.params.grammar
    }
    paused, before, num_processed = -1, set[int](), 0
    for seen in steps:
        if seen.point == "controlled" and seen.values["what"] == "pause_keep":
            paused = seen.step
        elif seen.point == "processed":
            num_processed += 1
        elif seen.point == "scheduled":
            if paused >= 0 and seen.step == paused + 1 == num_processed:
                drafts = dict(zip(seen.requests, seen.values["planned_drafts"], strict=True))
                if any(drafts.get(number) for number in numbers & before):
                    return True
            before = set(seen.requests)
    return False


BUGS_OF_FIRST: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_grammar_rows",
        "https://github.com/vllm-project/vllm/issues/49694",
        "vLLM 0.32.0 applies grammar bitmask rows to the wrong request after the device cut drafts.",
        mended="0.33.0",
    ): _grammar_rows,
    KnownBug(
        "vllm_paused_grammars",
        "findings/vllm_paused_grammars/README.md",
        "vLLM 0.32.0 fills grammar bitmasks from placeholders after a pause, so drafts are verified without a grammar.",
    ): _mask_of_placeholders,
}
