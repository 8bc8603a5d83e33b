"""Compare the work of two runs of one trace: prefix-cache hits, preemptions, accepted draft tokens, steps.

A run is never judged alone: it is only compared with a run that did better on the same trace.

Verifies, against the synchronous run, for a greedy request after the same known tokens:
- the request accepts as many of the same draft tokens; with an n-gram drafter, as many of any draft tokens;
- a decode step verifies as many draft tokens, unless the token budget or `max_model_len` leaves no room for them.

Verifies, against the release, if the run has an overlay of its sources: no quantity of `Work` is worse.

Does not verify, against the synchronous run:
- the quantities of `Work`: async scheduling places draft tokens before it knows whether they are needed, and computes
  one step more after the end of a request, so it may need more blocks, preemptions and steps;
- sampled requests, and a token that differs between both runs (a near tie of two logits);
- draft trees: a row does not show which draft token follows which;
- data-parallel ranks, whose steps depend on the schedule;
- traces that submit a name again, put the engine to sleep, load other weights or change the number of draft tokens.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from scenarios.drafters import TRAITS
from scenarios.events import LoadWeights, SetK, Sleep
from scenarios.spec import ENGINE, EngineSpec
from scenarios.trace import Trace
from workers.judge.history import EngineHistory, History
from workers.judge.mismatches import mismatch
from workers.record.evidence import Difference, Fact, fact
from workers.record.verdict import Work

PLANE = "efficiency"


class Verification(NamedTuple):
    """The draft tokens of a row that sampled, after the `known` tokens, and the sampled tokens.

    `is_decode`: the row computed one known token and its draft tokens, not a prefill chunk. `num_scheduled` counts the
    tokens of all rows of the step.
    """

    step: int
    known: Sequence[int]
    drafts: Sequence[int]
    sampled: Sequence[int]
    is_decode: bool
    num_scheduled: int


@dataclass(frozen=True, slots=True)
class Effort:
    """The work of a run; its rows that sampled, by request number and number of known tokens."""

    work: Work
    verifications: Mapping[tuple[int, int], Verification]


def effort_of(history: History) -> Effort | None:
    """Return the effort of a run; None for an engine that does not report its steps."""
    own = history.engines.get(ENGINE)
    return Effort(_work_of(own), _verifications_of(own)) if own is not None and own.steps else None


def _work_of(own: EngineHistory) -> Work:
    """Return the sums over all steps of a run."""
    sums: Counter[str] = Counter()
    # By request, the number of tokens that it has computed so far, in all its stays.
    computed: dict[int, int] = {}
    for step in own.steps.values():
        for turn in (turn for turn in step.turns.values() if turn.last < 0):
            is_resumed = turn.stay.before is not None
            sums["preemptions" if is_resumed else "hit_tokens"] += 1 if is_resumed else turn.stay.hit
        for row in step.rows:
            before, sampled = computed.get(row.request, 0), step.sampled.get(row.request, ())
            end = row.first + len(row.positions) - row.num_drafts
            sums["recomputed_tokens"] += max(0, min(end, before) - row.first)
            num_accepted = max(0, len(sampled) - 1)
            computed[row.request] = max(before, end + num_accepted)
            if row.num_drafts and sampled:
                sums.update(drafts=row.num_drafts, accepted=num_accepted)
    return Work(steps=len(own.steps), **sums)


def _verifications_of(own: EngineHistory) -> dict[tuple[int, int], Verification]:
    """Return the rows that sampled, where the known tokens of the request are certain."""
    found = {}
    for step in own.steps.values():
        num_scheduled = sum(len(row.positions) for row in step.rows)
        for row in step.rows:
            turn, sampled = step.turns[row.request], step.sampled.get(row.request, ())
            if sampled and turn.stay.tokens_are_known and not turn.has_lost:
                num_known = len(row.input_ids) - row.num_drafts
                found[row.request, len(turn.known)] = Verification(
                    step=step.number,
                    known=turn.known,
                    drafts=row.input_ids[num_known:],
                    sampled=sampled,
                    is_decode=num_known == 1,
                    num_scheduled=num_scheduled,
                )
    return found


def first_loss_to_synchronous(trace: Trace, seen: Effort, wanted: Effort) -> Difference | None:
    """Return the first row that verifies or accepts fewer draft tokens than in the synchronous run."""
    submits = trace.submitted()
    has_changes = any(isinstance(event, LoadWeights | SetK | Sleep) for event in trace.events)
    is_tree = trace.spec.tree_width > 1
    if has_changes or is_tree or max(Counter(submit.request for submit in submits).values(), default=0) > 1:
        return None
    is_lookup = TRAITS[trace.spec.drafter].is_lookup
    for key, own in sorted(seen.verifications.items(), key=lambda each: each[1].step):
        submit, other = submits[key[0]], wanted.verifications.get(key)
        if submit.params.temperature > 0 or other is None or other.known != own.known:
            continue
        where = own.step, key[1]
        if _leaves_out_drafts(trace.spec, own, other):
            return mismatch(PLANE, "drafts", submit.request, where, len(other.drafts), len(own.drafts))
        num_accepted, num_wanted = len(own.sampled) - 1, len(other.sampled) - 1
        has_same_drafts = own.drafts[:num_wanted] == other.drafts[:num_wanted]
        is_same_output = own.sampled == other.sampled[: len(own.sampled)]
        if num_accepted < num_wanted and is_same_output and (has_same_drafts or is_lookup):
            return mismatch(PLANE, "accepted", submit.request, where, num_wanted, num_accepted)
    return None


def _leaves_out_drafts(spec: EngineSpec, own: Verification, other: Verification) -> bool:
    """Return whether a decode verifies fewer draft tokens than in the other run, although there is room for more.

    With async scheduling each step in flight reserves a sampled token and all draft tokens.
    """
    num_missing = len(other.drafts) - len(own.drafts)
    has_budget = own.num_scheduled + num_missing <= spec.max_num_batched_tokens
    has_length = len(own.known) + spec.depth * (1 + spec.num_speculative_tokens) <= spec.max_model_len
    return own.is_decode and other.is_decode and num_missing > 0 and has_budget and has_length


def first_loss_to_release(seen: Work, wanted: Work) -> Difference | None:
    """Return the first quantity of work that is worse than on the release, or None."""
    for name, is_worse in _comparisons(seen, wanted):
        if is_worse:
            return mismatch(PLANE, name, None, (seen.steps, None), _fact_of(name, wanted), _fact_of(name, seen))
    return None


def _comparisons(seen: Work, wanted: Work) -> Iterator[tuple[str, bool]]:
    """Yield each quantity with whether it is worse; a cause comes before its consequences."""
    yield "hit_tokens", seen.hit_tokens < wanted.hit_tokens
    yield "preemptions", seen.preemptions > wanted.preemptions
    yield "recomputed_tokens", seen.recomputed_tokens > wanted.recomputed_tokens
    yield "accepted", seen.accepted * wanted.drafts < wanted.accepted * seen.drafts
    yield "steps", seen.steps > wanted.steps


def _fact_of(name: str, work: Work) -> Fact | int:
    value: int = getattr(work, name)
    return fact("accepted_of", accepted=value, drafts=work.drafts) if name == "accepted" else value
