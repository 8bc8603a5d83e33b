"""Every kind of verdict, and engines with one bug each, found in the plane of the bug.

Does not verify: mistakes of the scheduler and the runner, which are no parts.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from scenarios.events import Hook, NoValidToken, Schedule, Submit
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.run.device_mutants import DEVICE_MUTANTS, EQUIVALENT
from tests.workers.run.mutants import CLEAN, HOST_MUTANTS, Mutant, ran_as, then
from tests.workers.run.runs import difference_in
from workers.engine.counts import CountsInFlight, gather_counts
from workers.engine.engine import Engine
from workers.engine.functions import EngineFunctions, roll_back
from workers.engine.request import PlanRow, Request
from workers.faults.registry import FAULTS
from workers.lanes.lane import EventRecord
from workers.oracle.model_values import ModelValueCache
from workers.record.evidence import Access, Violation, fact
from workers.record.log import UNSPOILED, Spoils
from workers.record.observation import VARIABLES
from workers.record.rules import Rule
from workers.record.verdict import (
    Agreed,
    Crashed,
    Diverged,
    LanesWait,
    NotDrained,
    Stuck,
    Vacuous,
    Waiting,
)
from workers.record.words import reason_text
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.run.event_feed import EventQueue
from workers.targets.specstorm import Specstorm, specstorm_target

VALUE_CACHE = ModelValueCache()
SEEDS = range(18)
# Some bugs need rare features: `FIRST_SEED` has the first seed that finds one, by mutant or op.
SEEDS_OF_MISTAKES = range(400)
FIRST_SEED = {
    "a common prefix counts the block that is being filled": 46,
    "drafters on the host miss the last token": 21,
    "drafters on the host never forget a request": 21,
    "accepted counts are read at the current row": 36,
    "a resumed request's output counts as prompt": 36,
    "cascade_attention": 29,
    "draft_chain: after no valid token": 30,
    "draft_noise": 15,
    "drawn_chain": 15,
    "drawn_chain: as if none were": 25,
    "verify_drafts": 15,
    "mtp_pass": 18,
    "mtp_pass: a sample that was taken away is kept": 69,
    "mtp_chain": 18,
    "extract_hidden_states": 38,
    "extract_hidden_states: after no valid token": 229,
    "medusa_heads": 33,
    "medusa_heads: one draft too few": 47,
    "medusa_heads: after no valid token": 134,
    "nothing is left of the target": 96,
    "state_restore": 21,
    "recurrent_update: padding runs on slot 0": 15,
    "kv_write: padding into slot 0": 14,
    "the victim is the request admitted first": 12,
    "limit_slots: one position too few": 11,
    "limit_drafts: one position too few": 70,
    "limit_drafts: one position too many": 11,
    "every draft stays a token": 31,
    "every single logit stays a number": 22,
    "counts are corrected in place": 30,
    "padding stores its count into slot 0": 15,
}
TWO_REQUESTS = Trace(
    spec=EngineSpec(accepted_counts="host", max_num_batched_tokens=8),
    events=tuple(Submit(tick=0, request=name, prompt=(1, 2, 3), max_tokens=12, accept="alternate") for name in "ab"),
).explicit()


@cache
def eager(seed: int) -> Trace:
    return random_trace(seed).explicit().model_copy(update={"schedule": Schedule()})


@pytest.mark.parametrize("mutant", [*HOST_MUTANTS, *DEVICE_MUTANTS], ids=lambda mutant: mutant.name)
def test_engine_with_one_bug_is_found_in_its_plane(mutant: Mutant) -> None:
    first = FIRST_SEED.get(mutant.name, FIRST_SEED.get(mutant.name.partition(":")[0], 0))
    for seed in (*SEEDS_OF_MISTAKES[first:], *SEEDS_OF_MISTAKES[:first]):
        verdict = check(eager(seed), VALUE_CACHE, kind=Specstorm(mutant.functions))
        if isinstance(verdict, Agreed):
            continue
        assert isinstance(verdict, Diverged), (seed, verdict)
        assert verdict.difference.plane in mutant.planes.split(), (seed, verdict.difference)
        return
    pytest.fail(f"{mutant.name}: not found in {len(SEEDS_OF_MISTAKES)} traces")


def test_every_engine_part_has_a_mutant() -> None:
    wrong = [mutant.functions for mutant in (*HOST_MUTANTS, *DEVICE_MUTANTS)]
    # `test_faults` demands that each of these is found.
    wrong += [fault.apply(CLEAN, lambda: None) for fault in FAULTS.values()]
    changed = {
        part
        for functions in wrong
        for part in EngineFunctions.__dataclass_fields__
        if getattr(functions, part) is not getattr(CLEAN, part)
    }
    assert changed == set(EngineFunctions.__dataclass_fields__)


@pytest.mark.parametrize("mutant", EQUIVALENT, ids=lambda mutant: mutant.name)
def test_equivalent_mutant_is_not_found(mutant: Mutant) -> None:
    for seed in SEEDS:
        verdict = check(eager(seed), VALUE_CACHE, kind=Specstorm(mutant.functions))
        assert isinstance(verdict, Agreed), (seed, verdict)


def test_exception_in_host_part_is_crash_with_source_location() -> None:
    def backup_index(known: int, length: int) -> int:
        raise LookupError("no backup token")

    verdict = check(TWO_REQUESTS, VALUE_CACHE, kind=Specstorm(EngineFunctions(backup_index=backup_index)))
    assert isinstance(verdict, Crashed)
    assert verdict.error == "LookupError: no backup token"
    assert (verdict.where.function, verdict.where.file) == ("backup_index", "test_check.py")
    assert verdict.stats.requests == 2


def test_exception_in_device_op_is_crash_with_op_and_step() -> None:
    def divide(given: object) -> None:
        raise ZeroDivisionError("in an op")

    verdict = check(
        TWO_REQUESTS, VALUE_CACHE, kind=Specstorm(EngineFunctions(attention=ran_as(CLEAN.attention, divide)))
    )
    assert isinstance(verdict, Crashed)
    assert verdict.error == "OpFailed: op attention of step 0: ZeroDivisionError: in an op"


def test_op_that_writes_its_input_is_crash() -> None:
    def write(given: object) -> None:
        given.sampled[:] = 0  # type: ignore[attr-defined]

    functions = EngineFunctions(count_sampled=ran_as(CLEAN.count_sampled, write))
    verdict = check(TWO_REQUESTS, VALUE_CACHE, kind=Specstorm(functions))
    assert isinstance(verdict, Crashed)
    assert "read-only" in verdict.error


def test_wait_without_record_is_stuck_with_lane() -> None:
    def waits_for_ever(
        counts: CountsInFlight | None, previous: list[int], rows: list[PlanRow], moves: list[tuple[int, int]]
    ) -> Sequence[int]:
        if counts is not None and counts.landed.record_newest is not None:
            counts.landed.record_newest = EventRecord(counts.landed.record_newest.lane, 0)
        return gather_counts(counts, previous, rows, moves)

    for schedule in (Schedule(), Schedule(policy="lazy"), Schedule(policy="lane_order"), Schedule(policy="random")):
        trace = TWO_REQUESTS.model_copy(update={"schedule": schedule})
        verdict = check(trace, VALUE_CACHE, kind=Specstorm(EngineFunctions(gather_counts=waits_for_ever)))  # type: ignore[arg-type]
        assert isinstance(verdict, Stuck)
        assert isinstance(verdict.waits, LanesWait)
        assert verdict.waits.host == "d2h_counts"


def test_run_beyond_step_bound_is_stuck_with_waiting_requests() -> None:
    spec = EngineSpec(max_num_seqs=1)
    trace = TWO_REQUESTS.model_copy(update={"spec": spec})
    verdict = check(trace, VALUE_CACHE, Options(steps_max=3))
    assert isinstance(verdict, Stuck)
    assert verdict.waits == NotDrained(steps=4, waiting=(Waiting(request="b", reason="rows"),))
    assert reason_text(verdict) == "not drained after 4 steps; b waits: rows"


def test_requests_that_preempt_each_other_forever_are_stuck() -> None:
    # No scenario has a request that never fits; a faulty engine may lose blocks until one does not.
    spec = EngineSpec(num_speculative_tokens=0, block_size=4, num_blocks=3, max_num_batched_tokens=4)
    verdict = check(TWO_REQUESTS.model_copy(update={"spec": spec}), VALUE_CACHE)
    assert isinstance(verdict, Stuck)
    assert verdict.stats.probes["preemption_by_blocks"] > 10


def test_engine_that_drops_every_sample_is_found_within_bound() -> None:
    def take_the_next_one_too(request: Request, num_drafts: int, num_valid: int) -> None:
        roll_back(request, num_drafts, num_valid)
        request.spoils_next = Spoils(no_valid_token=True) if request.name == "a" else UNSPOILED

    events = (*TWO_REQUESTS.events, NoValidToken(tick=0, request="a"))
    trace = TWO_REQUESTS.model_copy(update={"events": events})
    verdict = check(trace, VALUE_CACHE, kind=Specstorm(EngineFunctions(roll_back=take_the_next_one_too)))
    assert isinstance(verdict, Stuck | Diverged)
    assert verdict.stats.steps <= 1000


def test_unmet_probe_makes_run_vacuous_with_count() -> None:
    trace = TWO_REQUESTS.model_copy(update={"expect": {"admit": 2, "preemption": 1}})
    verdict = check(trace, VALUE_CACHE)
    assert isinstance(verdict, Vacuous)
    assert verdict.missing == (fact("probe", probe="preemption", least=1, seen=0),)
    assert isinstance(check(trace.model_copy(update={"expect": {"admit": 2}}), VALUE_CACHE), Agreed)


def test_unreached_fault_makes_run_vacuous() -> None:
    # No row moves: both requests arrive and end together.
    verdict = check(TWO_REQUESTS.model_copy(update={"faults": ("vllm-38556-accepted-counts",)}), VALUE_CACHE)
    assert isinstance(verdict, Vacuous)
    assert verdict.missing == (fact("fault_not_reached", fault="vllm-38556-accepted-counts"),)
    assert not verdict.reached("vllm-38556-accepted-counts")


def test_impossible_fault_makes_run_vacuous_before_start() -> None:
    spec = TWO_REQUESTS.spec.model_copy(update={"depth": 1})
    trace = TWO_REQUESTS.model_copy(update={"faults": ("vllm-38556-accepted-counts",), "spec": spec})
    verdict = check(trace, VALUE_CACHE)
    assert isinstance(verdict, Vacuous)
    fault = "vllm-38556-accepted-counts"
    assert verdict.missing == (fact("fault_requires", fault=fault, key="depth", wanted=2, seen=1),)
    assert not verdict.reached(fault)
    assert verdict.reached("another-fault")
    assert verdict.stats.steps == 0


def test_blame_adds_last_writers_to_difference() -> None:
    mutant = next(each for each in DEVICE_MUTANTS if each.name == "the next token is the first sampled one")
    verdict = check(TWO_REQUESTS, VALUE_CACHE, Options(blame=True), Specstorm(mutant.functions))
    assert isinstance(verdict, Diverged)
    assert verdict.difference.variable == "next_tokens"
    assert verdict.difference.writers[0] == Access(lane="compute", op="count_sampled", step=verdict.difference.step)
    assert verdict.difference.plane == VARIABLES["next_tokens"].plane


def test_finding_has_counts_up_to_its_step_and_ends_run() -> None:
    ran: dict[str, int] = defaultdict(int)

    def roll_back_too_little(request: Request, num_drafts: int, num_valid: int) -> None:
        ran["roll_back"] += 1
        roll_back(request, max(0, num_drafts - 1), num_valid) if num_valid <= num_drafts else None

    verdict = check(TWO_REQUESTS, VALUE_CACHE, kind=Specstorm(EngineFunctions(roll_back=roll_back_too_little)))
    assert isinstance(verdict, Diverged)
    assert verdict.difference.variable in ("computed", "placeholders")
    assert verdict.stats.steps == verdict.difference.step + TWO_REQUESTS.spec.depth
    assert ran["roll_back"] <= 2 * verdict.stats.steps


@pytest.mark.parametrize("hook", ["before_schedule", "after_launch", "before_process"])
def test_engine_that_ignores_only_event_is_found(hook: Hook) -> None:
    trace = Trace(events=(Submit(tick=0, at=hook, request="a", prompt=(1, 2), max_tokens=2),)).explicit()
    run = Run(trace, VALUE_CACHE, Options(), Specstorm(EngineFunctions()))
    run.feed.events = EventQueue(())
    broken = difference_in(run).actual
    assert isinstance(broken, Violation)
    assert (broken.rule, broken.values["name"]) == (Rule.SUBMIT_MISSING, "a")


def test_engine_that_stops_with_live_request_is_found() -> None:
    class Hasty(Engine):
        def drained(self) -> bool:
            return self.tick > 2

    run = Run(TWO_REQUESTS, VALUE_CACHE, Options(), Specstorm(EngineFunctions()))
    specstorm_target(run.target).engine.__class__ = Hasty
    broken = difference_in(run).actual
    assert isinstance(broken, Violation)
    assert broken.rule is Rule.STOPPED_EARLY


def test_wrong_last_token_at_depth_1_is_reported_first() -> None:
    """The host also frees blocks too early in that step: that difference is later."""

    def stop_now(given: Any) -> None:
        given.sampled[0] = 7

    functions = then("rejection_sample", stop_now)
    spec = EngineSpec(depth=1, num_speculative_tokens=0)
    event = Submit(tick=0, request="a", prompt=(1, 2, 3), max_tokens=9, stop=(7,))
    verdict = check(Trace(spec=spec, events=(event,)).explicit(), VALUE_CACHE, kind=Specstorm(functions))
    assert isinstance(verdict, Diverged)
    assert (verdict.difference.plane, verdict.difference.variable) == ("tokens", "sampled")
    assert (verdict.difference.actual, verdict.difference.step) == (7, 0)


def spoiled_states(given: Any) -> None:
    """Store wrong recurrent states after computing outputs from the right ones."""
    given.states[:] += np.uint64(1)


def spoiled_copies(given: Any) -> None:
    """Store wrong recurrent states with blocks."""
    given.block_states[:] += np.uint64(1)


@pytest.mark.parametrize(
    ("part", "spoil", "variable", "blamed"),
    [
        ("recurrent_update", spoiled_states, "state", "recurrent_update"),
        ("state_copy", spoiled_copies, "block_state", "state_copy"),
    ],
)
def test_wrong_state_is_reported_at_computing_op_not_at_copy(
    part: str, spoil: Callable[[Any], None], variable: str, blamed: str
) -> None:
    functions = then(part, spoil)
    spec = EngineSpec(recurrent_cache="align")
    event = Submit(tick=0, request="a", prompt=(1, 2, 3, 4), max_tokens=9)
    trace = Trace(spec=spec, events=(event,)).explicit()
    for schedule in (Schedule(), Schedule(policy="lazy")):
        each = trace.model_copy(update={"schedule": schedule})
        verdict = check(each, VALUE_CACHE, Options(blame=True), kind=Specstorm(functions))
        assert isinstance(verdict, Diverged)
        assert verdict.difference.variable == variable
        assert (verdict.difference.writers[0].lane, verdict.difference.writers[0].op) == ("compute", blamed)
