"""Bugs that engine and referee share: only the counted properties find them.

Verifies: pairs of changed formulas, one in the engine's scheduler and its twin in the referee; with the properties
switched off some of them agree.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from scenarios.events import Submit
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.judge.refusals import Refusal, refused
from workers.engine.request import PlanWorkspace, Request
from workers.engine.scheduler import Scheduler
from workers.judge.contracts.judge import Contracts
from workers.judge.properties import Properties
from workers.judge.referee import Referee
from workers.judge.reference_scheduler import Decision, RequestState, Share
from workers.oracle import model_values, state_oracle
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Violation, violation
from workers.record.log import (
    Aborted,
    Entry,
    Preempted,
    Processed,
    RowBlocks,
    Scheduled,
    ScheduledRow,
    SkipReason,
    Submitted,
)
from workers.record.observation import Observation
from workers.record.rules import Rule
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.engine_run import Options

SEEDS = range(150)
Patch = pytest.MonkeyPatch


@cache
def trace_of(seed: int) -> Trace:
    return random_trace(seed).explicit()


def limit_is_off_by(by: int) -> Callable[[Patch], None]:
    """Plant a bug: requests end `by` tokens after their length limit."""

    def apply(patch: Patch) -> None:
        def engines(spec: EngineSpec, prompt_length: int, max_tokens: int) -> int:
            return min(prompt_length + max_tokens + by, spec.max_model_len)

        def judges(spec: EngineSpec, num_prompt: int, max_tokens: int) -> int:
            return min(num_prompt + max_tokens + by, spec.max_model_len)

        patch.setattr(EngineSpec, "length_limit", engines)
        for module in (state_oracle, model_values):
            patch.setattr(module, "length_limit", judges)

    return apply


def short_budget(patch: Patch) -> None:
    """Plant a bug: each step leaves one token of its budget unused."""
    begin, init = PlanWorkspace.begin, Decision.__init__

    def of_the_judge(decision: Decision, *arguments: Any) -> None:
        init(decision, *arguments)
        decision._budget = max(1, decision._budget - 1)

    patch.setattr(PlanWorkspace, "begin", lambda plan, budget: begin(plan, max(1, budget - 1)))
    patch.setattr(Decision, "__init__", of_the_judge)


def skips_a_request(patch: Patch) -> None:
    """Plant a bug: a step that runs several requests skips one of them."""
    reason, judged = Scheduler._reason_to_skip, Decision._reason_to_wait

    def of_the_engine(scheduler: Scheduler, request: Request) -> SkipReason | None:
        return "stalled" if request.index == 1 and scheduler._workspace.rows else reason(scheduler, request)

    def of_the_judge(decision: Decision, state: RequestState) -> SkipReason | None:
        return "stalled" if state.request == 1 and decision.shares else judged(decision, state)

    patch.setattr(Scheduler, "_reason_to_skip", of_the_engine)
    patch.setattr(Decision, "_reason_to_wait", of_the_judge)


def skips_near_the_limit(patch: Patch) -> None:
    """Plant a bug: the length limit counts as reached one token early."""
    judged = Decision._reason_to_wait

    def is_near(request: Request) -> bool:
        return request.num_placeholders > 0 and (
            request.num_computed + 3 - request.num_placeholders >= request.length_limit
        )

    def of_the_judge(decision: Decision, state: RequestState) -> SkipReason | None:
        return judged(decision, replace(state, limit=state.limit - 1))

    patch.setattr(Scheduler, "is_near_limit", staticmethod(is_near))
    patch.setattr(Decision, "_reason_to_wait", of_the_judge)


def last_come_first(patch: Patch) -> None:
    """Plant a bug: the newest request is admitted first."""
    judge = Referee.judge

    def of_the_judge(referee: Referee, entry: Entry) -> Violation | None:
        wrong = judge(referee, entry)
        if isinstance(entry, Submitted) and wrong is None:
            referee._queue.rotate()
        return wrong

    patch.setattr(Scheduler, "add", lambda scheduler, request: scheduler.waiting.appendleft(request))
    patch.setattr(Referee, "judge", of_the_judge)


def one_row_less(patch: Patch) -> None:
    """Plant a bug: the batch has one row less than the maximum."""
    attempt, judged = Scheduler._try_admit, Decision._try_admit

    def of_the_engine(scheduler: Scheduler, request: Request, draft: Any) -> SkipReason | None:
        full = len(scheduler.running) >= max(1, scheduler.spec.max_num_seqs - 1)
        reason = attempt(scheduler, request, draft) if not full or draft.preempted else None
        return reason if not full or draft.preempted else _reason(scheduler, request)

    def _reason(scheduler: Scheduler, request: Request) -> SkipReason:
        if request.stalled_until > scheduler.tick:
            return "stalled"
        return "stale" if request.num_stale else "rows"

    def of_the_judge(decision: Decision, state: RequestState) -> SkipReason | None:
        if state.request in decision._stalled:
            return "stalled"
        if state.request in decision._stale:
            return "stale"
        full = decision._num_running >= max(1, decision._spec.max_num_seqs - 1)
        return "rows" if full else judged(decision, state)

    patch.setattr(Scheduler, "_try_admit", of_the_engine)
    patch.setattr(Decision, "_try_admit", of_the_judge)


def shorter_chunks(patch: Patch) -> None:
    """Plant a bug: each prefill chunk is one token shorter."""
    clip, share = Scheduler._clip, Decision._share

    def of_the_engine(scheduler: Scheduler, request: Request, wanted: int, budget: int) -> int:
        is_prompt = request.num_computed < len(request.tokens) - 1
        return max(1, clip(scheduler, request, wanted, budget) - is_prompt)

    def of_the_judge(decision: Decision, state: RequestState, drafts: int, is_padded: bool = False) -> Share:
        found = share(decision, state, drafts, is_padded)
        if state.computed >= state.committed - 1:
            return found
        n = max(1, found.n - 1)
        ahead = state.committed + state.placeholders - state.computed
        length = state.computed + n + decision._spec.num_speculative_tokens
        covered = -(-min(length, decision._spec.max_model_len) // decision._spec.block_size)
        num_blocks = max(0, covered - state.num_blocks)
        return replace(found, n=n, d=max(0, n - ahead), num_blocks=num_blocks, is_chunk=n < ahead)

    patch.setattr(Scheduler, "_clip", of_the_engine)
    patch.setattr(Decision, "_share", of_the_judge)


def admits_no_request(patch: Patch) -> None:
    """Plant a bug: a request is admitted only if no other one runs."""
    admit, judged = Scheduler._admit, Decision.admit

    def of_the_engine(scheduler: Scheduler, draft: Any) -> None:
        if not scheduler.running:
            admit(scheduler, draft)
        else:
            draft.skipped.extend((request.index, "rows") for request in scheduler.waiting)

    def of_the_judge(decision: Decision, queue: Iterable[int], state_of: Callable[[int], RequestState]) -> None:
        if not decision._num_running:
            judged(decision, queue, state_of)
        else:
            decision.waits.update(dict.fromkeys(queue, "rows"))

    patch.setattr(Scheduler, "_admit", of_the_engine)
    patch.setattr(Decision, "admit", of_the_judge)


def keeps_blocks_back(patch: Patch) -> None:
    """Plant a bug: no request is admitted that needs over half of the free blocks."""
    allocate, give = Scheduler._allocate, Decision._try_admit

    def of_the_engine(scheduler: Scheduler, request: Request, n: int, shared: Sequence[int] = ()) -> Any:
        num_free = scheduler.blocks.num_free
        if not request.running and scheduler.cache is None:
            wanted = scheduler._functions.blocks_to_cover(request, n, scheduler.spec)
            if wanted > num_free // 2:
                return None
        return allocate(scheduler, request, n, shared)

    def of_the_judge(decision: Decision, state: RequestState) -> SkipReason | None:
        if decision._cache is not None:
            return give(decision, state)
        free, decision._num_free = decision._num_free, decision._num_free // 2
        reason = give(decision, state)
        decision._num_free += free - free // 2
        return reason

    patch.setattr(Scheduler, "_allocate", of_the_engine)
    patch.setattr(Decision, "_try_admit", of_the_judge)


# The bug on both sides, and the property that it breaks.
PAIRS: dict[str, tuple[Callable[[Patch], None], Refusal]] = {
    "requests end a token late": (limit_is_off_by(1), refused(Rule.GOES_ON_AT_LIMIT)),
    "requests end a token early": (limit_is_off_by(-1), refused(Rule.ENDS_BELOW_LIMIT)),
    "a token of the budget is never used": (short_budget, refused(Rule.CUT_SHORT, Rule.LEFT_OUT, left=1)),
    "a request is skipped without a reason": (skips_a_request, refused(Rule.LEFT_OUT)),
    "a request waits for its limit too early": (skips_near_the_limit, refused(Rule.LEFT_OUT)),
    "the newest request is admitted first": (last_come_first, refused(Rule.OVERTAKEN)),
    "a row is never used": (one_row_less, refused(Rule.COULD_RUN)),
    "chunks of prompts are a token short": (shorter_chunks, refused(Rule.CUT_SHORT)),
    "no request is admitted while another one runs": (admits_no_request, refused(Rule.COULD_RUN)),
    "half of the blocks are kept back": (keeps_blocks_back, refused(Rule.COULD_RUN)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_properties_find_bug_shared_by_engine_and_referee(name: str, monkeypatch: Patch) -> None:
    apply, broken = PAIRS[name]
    traces = [trace_of(seed) for seed in SEEDS]
    apply(monkeypatch)
    others = 0
    for trace in traces:
        verdict = check(trace, ModelValueCache(), Options(races=False))
        if isinstance(verdict, Diverged):
            if broken.is_of(verdict.difference.actual):
                return
            others += 1
    pytest.fail(f"{name}: no property says so in {len(traces)} traces, {others} differ otherwise")


@pytest.mark.parametrize("name", PAIRS)
def test_shared_bug_is_missed_without_properties_and_contracts(name: str, monkeypatch: Patch) -> None:
    apply, broken = PAIRS[name]
    traces = [trace_of(seed) for seed in SEEDS]
    with monkeypatch.context() as patch:
        apply(patch)
        guilty = next(trace for trace in traces if _breaks(trace, broken))
        patch.setattr(Properties, "judge", lambda properties, entry: None)
        patch.setattr(Properties, "processed", lambda properties, observed: None)
        # Contracts find these too: the end of an output follows from its request alone.
        patch.setattr(Contracts, "at_end", lambda deliveries, outputs: None)
        verdict = check(guilty, ModelValueCache(), Options(races=False))
    assert isinstance(verdict, Agreed), verdict


def _breaks(trace: Trace, broken: Refusal) -> bool:
    verdict = check(trace, ModelValueCache(), Options(races=False))
    return isinstance(verdict, Diverged) and broken.is_of(verdict.difference.actual)


def row(n: int, d: int = 0, blocks: tuple[int, ...] = (), request: int = 0, epoch: int = 0) -> ScheduledRow:
    return ScheduledRow(request, epoch, 0, n, d, 0, RowBlocks(blocks))


def step(number: int, *rows: ScheduledRow, skipped: tuple[int, ...] = ()) -> Scheduled:
    return Scheduled(number, number, 2, rows, tuple((request, "budget") for request in skipped))


def results(step: int, *tokens: tuple[int, ...], reason: str | None = None) -> Observation:
    values = {"tokens": [*tokens], "finish_reason": [reason] * len(tokens)}
    return Observation("processed", step, tuple(range(len(tokens))), values)


SMALL = Trace(
    spec=EngineSpec(depth=1, num_speculative_tokens=2, max_num_batched_tokens=4, max_num_seqs=1, num_blocks=8),
    events=tuple(Submit(tick=0, request=name, prompt=(1, 2, 3), max_tokens=4) for name in "ab"),
)
FIRST = (Submitted(0, 0, 0), step(0, row(3, 0, (0, 1))))
DONE = (*FIRST, Processed(0))


def of_a(rule: Rule, **values: object) -> Violation:
    """Return a violation about request "a"."""
    return violation(rule, **values).model_copy(update={"request": "a"})


# Log entries and observations, and the property that the last one breaks.
BROKEN: dict[str, tuple[tuple[Entry | Observation, ...], Violation]] = {
    "a step past its budget": ((Submitted(0, 0, 0), step(0, row(5))), violation(Rule.BUDGET, count=1)),
    "a block that is held": ((*FIRST, step(1, row(1, 0, (0,)))), violation(Rule.BLOCK_HELD, block=0, name="a")),
    "more requests than rows": (
        (Submitted(0, 0, 0), Submitted(1, 1, 0), step(0, row(3), row(1, request=1))),
        violation(Rule.TOO_MANY_RUN, count=2, due=1),
    ),
    "a token computed again": (
        (*DONE, results(0, (7,)), step(1, row(4, 2)), Processed(1), results(1, (8,))),
        of_a(Rule.COMPUTED_BEFORE_DRAFTS, count=5, due=4),
    ),
    "a token left out": (
        (*DONE, results(0, (7,)), step(1, row(2, 2)), Processed(1), results(1, (8,))),
        of_a(Rule.COMPUTED_BEFORE_DRAFTS, count=3, due=4),
    ),
    "a chunk that samples": (
        (Submitted(0, 0, 0), step(0, row(2), skipped=()), Processed(0), results(0, (7,))),
        violation(Rule.CUT_SHORT, name="a", count=2, left=2),
    ),
    "more tokens than drafts and one": ((*DONE, results(0, (7, 8))), of_a(Rule.TOO_MANY_TOKENS, count=2, drafts=0)),
    "a sample without a token": ((*DONE, results(0, ())), of_a(Rule.NO_TOKEN)),
    "tokens for a request that has ended": (
        (*FIRST, Aborted(0, 1), Processed(0), results(0, (7,))),
        violation(Rule.GOES_ON_ENDED, name="a", count=1),
    ),
    "tokens of an epoch that was dropped": (
        (*FIRST, Preempted(0, 1, "event", 1, "drop"), Processed(0), results(0, (7,))),
        of_a(Rule.DROPPED_DELIVERED, count=1, epoch=0),
    ),
    "tokens past the limit": (
        (*DONE, results(0, (7,)), step(1, row(3, 2)), Processed(1), results(1, (8, 9, 9))),
        of_a(Rule.GOES_ON_AT_LIMIT, count=7),
    ),
    "nothing runs while a request waits": (
        (Submitted(0, 0, 0), *(each for n in range(9) for each in (step(n, skipped=(0,)), Processed(n)))),
        violation(Rule.COULD_RUN, name="a", left=4, blocks=8),
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_properties_name_the_broken_rule(name: str) -> None:
    history, broken = BROKEN[name]
    properties = Properties(SMALL)
    for each in history:
        wrong = properties.processed(each) if isinstance(each, Observation) else properties.judge(each)
        if wrong is not None:
            break
    assert wrong == broken


def test_properties_report_idle_steps_while_requests_wait() -> None:
    events = tuple(Submit(tick=0, request=name, prompt=(1,) * 40, max_tokens=4) for name in "ab")
    properties = Properties(SMALL.model_copy(update={"events": events}))
    said = [properties.judge(Submitted(0, 0, 0))]
    for number in range(4):
        said += [properties.judge(step(number, skipped=(0,))), properties.judge(Processed(number))]
    assert said.index(violation(Rule.IDLE, count=3)) == len(said) - 4
