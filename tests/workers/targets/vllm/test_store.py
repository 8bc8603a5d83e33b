"""The store beside vLLM's cache: what it holds of a prompt, what makes room for what, what does not go beside it."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from scenarios.capabilities import lacking, within
from scenarios.codec import load
from scenarios.events import AnyEvent, DisturbTransfer, DummyStep, LoadWeights, Pause, Sleep, Submit
from scenarios.spec import EngineSpec, Handoff, Transfer
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, Site, fact
from workers.record.observation import Observation
from workers.targets.registry import kind_of
from workers.targets.target import VLLM, VLLM_V1
from workers.targets.vllm.inside.transfer.flights import StoreFlights
from workers.targets.vllm.inside.transfer.store import Store

FINDINGS = Path(__file__).resolve().parents[4] / "findings"
TOKENS = [1, 2, 3, 4, 5, 6]
KEYS = [(0, tuple(TOKENS[:stop])) for stop in (2, 4, 6)]


def test_the_first_blocks_of_a_prompt_are_found_up_to_one_that_is_not_held() -> None:
    store = Store(3)
    slots = [store.write(key) for key in KEYS]
    assert None not in slots
    store.written(KEYS[0], 0, True)
    store.written(KEYS[2], 2, True)
    assert store.prefix(TOKENS, 2, range(3)) == [0]
    store.written(KEYS[1], 1, True)
    assert store.prefix(TOKENS, 2, range(3)) == [0, 1, 2]
    assert store.prefix(TOKENS, 2, range(1, 3)) == [1, 2]


def test_states_behind_a_prefix_are_found_where_those_of_all_groups_are_held() -> None:
    store = Store(4)
    for group in (1, 2):
        assert store.states(TOKENS[:2], range(1, 3)) is None
        slot = store.write((group, tuple(TOKENS[:2])))
        assert slot is not None
        store.written((group, tuple(TOKENS[:2])), slot, True)
    assert store.states(TOKENS[:2], range(1, 3)) == [0, 1]
    assert store.states(TOKENS[:4], range(1, 3)) is None
    # Of attention alone there are none.
    assert store.states(TOKENS[:4], range(1, 1)) == []


def test_the_block_used_least_recently_makes_room_unless_it_is_read() -> None:
    store = Store(2)
    for key in KEYS[:2]:
        slot = store.write(key)
        assert slot is not None
        store.written(key, slot, True)
    store.pin([0])
    assert store.write(KEYS[2]) == 1
    assert store.write((0, (9, 9))) is None
    store.unpin([0])
    assert store.write((0, (9, 9))) == 0
    assert store.num_evicted == 2


@pytest.mark.parametrize("is_told_late", [False, True])
@pytest.mark.parametrize("invalid", [(), (6,)], ids=("loaded", "lost"))
def test_what_follows_from_a_block_that_failed_to_load_is_not_kept_whenever_the_end_of_its_store_is_told(
    invalid: tuple[int, ...], is_told_late: bool
) -> None:
    flights = StoreFlights(Transfer(stores="synchronous"), 2, drops_last_match=False)
    slot = flights.store.write(KEYS[1])
    assert slot is not None
    values = {"blocks": [7], "slots": [slot], "keys": [KEYS[1]], "context": frozenset({6, 7})}
    flight = flights.planned("store", "r", **values)
    flights.start(flight)
    flights.end(flight, is_ahead=False)
    flights.forget(invalid)
    if is_told_late:
        flights.forget(())
    flights.written(flight)
    assert flights.store.knows(KEYS[1]) == (not invalid)


def test_what_is_not_kept_leaves_its_slot() -> None:
    store = Store(1)
    assert store.write(KEYS[0]) == 0
    store.written(KEYS[0], 0, False)
    assert not store.knows(KEYS[0])
    assert store.write(KEYS[1]) == 0


BESIDE_A_STORE = [
    (Pause(tick=1), "events.0.clear_cache: True; with a KV connector False is allowed: "),
    (Sleep(tick=1), "events.0.level: 1; with a KV connector 0 is allowed: "),
    (LoadWeights(tick=1), "events.0.version: 1; with a KV connector load_weights is not allowed: "),
]


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(("event", "told"), BESIDE_A_STORE)
def test_what_does_not_go_beside_a_store_is_refused_and_brought_within(event: AnyEvent, told: str, engine: str) -> None:
    keys = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle"}
    trace = Trace(spec=EngineSpec.model_validate({**keys, "transfer": {}}), events=(event,))
    capabilities = kind_of(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    mended = within(trace, capabilities)
    assert lacking(mended, capabilities) is None
    assert mended.spec.transfer is not None


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(
    ("keys", "told"),
    [
        (
            {"transfer": {"loads": "synchronous"}},
            "spec.transfer.loads: synchronous; with layers hybrid asynchronous is allowed: ",
        ),
        ({"prefix_cache": False}, "spec.transfer: set with layers hybrid; set prefix_cache: true: "),
        ({"recurrent_layers": "gated_delta"}, "spec.transfer: set with recurrent_layers gated_delta; use "),
        ({}, None),
    ],
)
def test_a_store_beside_a_hybrid_model_is_of_states_at_ends_of_blocks(
    keys: dict[str, object], told: str | None, engine: str
) -> None:
    hybrid = {"layers": "hybrid", "prefix_cache": True, "recurrent_cache": "align", "num_speculative_tokens": 0}
    spec = {"sampling": "standard", "block_size": 32, "drafter": "eagle", "transfer": {}, **hybrid}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=())
    capabilities = kind_of(engine).capabilities
    seen = lacking(trace, capabilities)
    assert seen is None if told is None else (seen or "").startswith(told)
    assert lacking(within(trace, capabilities), capabilities) is None


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(
    ("keys", "event", "told"),
    [
        ({}, DisturbTransfer(tick=1, request="a"), "events.0: disturb_transfer; not allowed with offloading: "),
        ({}, Pause(tick=1), "events.0.clear_cache: True; with a KV connector False is allowed: "),
        ({"layers": "hybrid", "num_speculative_tokens": 0}, None, "spec.offloading: set with layers hybrid; "),
        ({"transfer": {}}, None, "spec.offloading: set along with transfer; an engine has at most one connector"),
    ],
)
def test_what_does_not_go_beside_offloading_is_refused_and_brought_within(
    keys: dict[str, object], event: AnyEvent | None, told: str, engine: str
) -> None:
    spec = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle", "offloading": {}}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=(event,) if event is not None else ())
    capabilities = kind_of(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    assert lacking(within(trace, capabilities), capabilities) is None


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(
    ("keys", "event", "told"),
    [
        (
            {},
            Pause(tick=1),
            "events.0: pause; not allowed with handoff: the event addresses one engine, and a handoff has two",
        ),
        ({}, DummyStep(tick=1), "events.0: dummy_step; not allowed with handoff: "),
        ({}, LoadWeights(tick=1), "events.0: load_weights; not allowed with handoff: "),
        (
            {"layers": "hybrid", "recurrent_layers": "gated_delta", "num_speculative_tokens": 0},
            None,
            "spec.handoff: set with recurrent_layers gated_delta; ",
        ),
        ({"transfer": {}}, None, "spec.handoff: set along with transfer; an engine has at most one connector"),
        (
            {"offloading": {}, "transfer": {}},
            None,
            "spec.offloading: set along with transfer; an engine has at most one ",
        ),
        ({"handoff": {"producer_blocks": 3}}, None, "spec.handoff.producer_blocks: 3; max_model_len needs at least 4"),
        ({}, Submit(tick=0, request="a", prompt=(1,), max_tokens=1, session="s"), "events.0: a request with session; "),
    ],
)
def test_what_does_not_go_with_a_producer_is_refused_and_brought_within(
    keys: dict[str, object], event: AnyEvent | None, told: str, engine: str
) -> None:
    spec = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle", "handoff": {}}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=(event,) if event is not None else ())
    capabilities = kind_of(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    assert lacking(within(trace, capabilities), capabilities) is None


def test_a_producer_that_never_has_a_turn_is_no_specification() -> None:
    assert Handoff(turns=(0, 1)).turns == (0, 1)
    with pytest.raises(ValidationError, match="no prompt is ever computed"):
        Handoff(turns=(0, 0))


def test_a_reset_that_ends_the_offloading_connector_is_known_where_it_preempts_and_nowhere_else() -> None:
    trace = load(FINDINGS / "vllm_offloaded_reset" / "trace.yaml").explicit()
    there = Site(function="build_connector_meta", file="scheduler.py", line=1862)
    for engine in (VLLM, VLLM_V1):
        assert kind_of(engine).known_crash("AssertionError: ", there, trace) == "vllm_offloaded_reset"
        calm = trace.model_copy(update={"events": trace.events[:1]})
        assert not kind_of(engine).known_crash("AssertionError: ", there, calm)
        assert not kind_of(engine).known_crash("KeyError: 1", there, trace)


def test_a_load_that_fails_beside_a_step_in_flight_is_known_of_its_own_request_alone() -> None:
    trace = load(FINDINGS / "vllm_failed_load_in_flight" / "trace.yaml").explicit()
    values = {"number": 0, "phase": "ends", "of": "load", "is_synchronous": True, "blocks": [3], "slots": [0]}
    failed = Observation("transfer", 6, (1,), {**values, "lost": [0], "is_ahead": False})
    planned = [Observation("scheduled", step, (1,), {}) for step in (6, 7)]
    place = {"plane": "tokens", "variable": "tokens", "position": 0, "step": 9, "expected": 1, "actual": 2}

    def known(request: str, steps: list[Observation], engine: str = VLLM_V1) -> str:
        return kind_of(engine).known(Difference.model_validate({**place, "request": request}), trace, steps)

    assert known("b", [*planned, failed]) == known("b", [failed], VLLM) == "vllm_failed_load_in_flight"
    assert known("a", [*planned, failed]) == known("b", [planned[0], failed]) == known("b", planned) == ""


def test_a_token_that_is_drawn_again_behind_a_failed_load_is_known_in_the_first_runner_of_who_lost_it() -> None:
    trace = load(FINDINGS / "vllm_failed_load_draws" / "trace.yaml").explicit()
    values = {"phase": "ends", "of": "load", "lost": [0]}
    place = {"plane": "tokens", "variable": "tokens", "request": "b", "position": 0, "step": 6, "expected": 1}

    def known(engine: str = VLLM_V1, requests: tuple[int, ...] = (1,), **keys: object) -> str:
        steps = [Observation("transfer", 3, requests, values)]
        return kind_of(engine).known(Difference.model_validate({**place, "actual": 2, **keys}), trace, steps)

    assert known() == "vllm_failed_load_draws"
    # Nor of another one's load, nor of who draws nothing, nor before, nor of what is not drawn.
    assert known(requests=(0,)) == known(request="a", requests=(0,)) == ""
    assert known(step=2) == known(variable="attended") == ""
    assert known(VLLM) == "vllm_failed_load_in_flight"


def test_entries_behind_the_blocks_of_a_failed_load_are_known_in_the_second_runner_alone() -> None:
    trace = load(FINDINGS / "vllm_v2_failed_load_in_other_blocks" / "trace.yaml").explicit()
    values = {"number": 0, "phase": "ends", "of": "load", "is_synchronous": True, "blocks": [5, 6], "slots": [0, 1]}
    steps = [
        Observation("transfer", 2, (1,), {**values, "lost": [0], "is_ahead": False}),
        Observation("scheduled", 3, (0, 1), {"begun": [], "blocks": [(0, [1, 2, 3]), (1, [5, 6])]}),
        Observation("inputs", 3, (0, 1), {"starts": [0, 1, 4], "positions": [100, 63, 64, 65]}),
    ]
    place = {"plane": "kv", "variable": "attended", "request": "submit 0", "position": 0, "step": 3}

    def known(position: int, steps: list[Observation], engine: str = VLLM, **keys: str) -> str:
        entry = {
            "expected": fact("entry_of_prefix", token=4),
            "actual": fact("entry_of_token", token=9, position=position),
        }
        return kind_of(engine).known(Difference.model_validate({**place, **entry, **keys}), trace, steps)

    assert known(64, steps) == known(65, steps) == "vllm_v2_failed_load_in_other_blocks"
    # Neither of its own blocks, nor of another row, nor without a loss, nor of other values.
    assert known(63, steps) == known(100, steps) == known(64, steps[1:]) == ""
    assert known(64, steps, variable="draft_cache") == known(64, steps, VLLM_V1) == ""


def test_a_block_that_was_zeroed_before_it_was_stored_is_known_where_it_was_loaded_and_nowhere_else() -> None:
    trace = load(FINDINGS / "vllm_v2_zeroed_before_stored" / "trace.yaml").explicit()

    def ended(of: str, step: int, blocks: list[int], is_ahead: bool) -> Observation:
        values = {"phase": "ends", "of": of, "blocks": blocks, "slots": [0, 1], "lost": [], "is_ahead": is_ahead}
        return Observation("transfer", step, (0,), values)

    zeroed = Observation("zeroed", 1, (), {"blocks": [4, 5]})
    store, late = ended("store", 1, [3, 4], True), ended("store", 1, [3, 4], False)
    behind = [ended("load", 3, [7, 8], False), Observation("scheduled", 4, (0,), {"blocks": [(0, [7, 8, 9])]})]
    place = {"plane": "kv", "variable": "attended", "request": "submit 0", "step": 4}

    unwritten = fact("entry_unwritten")

    def known(position: int, steps: list[Observation], engine: str = VLLM, actual: Fact = unwritten) -> str:
        entry = {"expected": fact("entry_of_prefix", token=4), "actual": actual, "position": position}
        return kind_of(engine).known(Difference.model_validate({**place, **entry}), trace, steps)

    steps = [zeroed, store, *behind]
    assert known(32, steps) == known(63, steps) == "vllm_v2_zeroed_before_stored"
    # Not what was stored once more before it was loaded.
    assert known(32, [zeroed, store, ended("store", 2, [3, 4], False), *behind]) == ""
    # Neither of another block, nor of one that was kept in time, nor of other entries, nor in the first runner.
    assert (
        known(0, steps) == known(64, steps) == known(32, [zeroed, late, *behind]) == known(32, [store, *behind]) == ""
    )
    other = fact("entry_of_token", token=9, position=32)
    assert known(32, steps, actual=other) == known(32, steps, VLLM_V1) == ""


def test_a_table_that_ends_is_known_behind_a_load_that_may_fail_in_a_step() -> None:
    trace = load(FINDINGS / "vllm_v2_failed_load_in_other_blocks" / "trace.yaml").explicit()
    calm = trace.model_copy(update={"events": trace.events[:2]})
    end = "it uses value 20 of 20 that it was given"
    defined = f"KernelError: _compute_slot_mappings_kernel: {end}"
    interpreted = (
        "InterpreterError: KernelError('_compute_slot_mappings_kernel loads from byte 80 of 80 that it was given')"
    )
    there = Site(function="run", file="triton_tasks.py", line=261)
    read = (
        "IndexError: a row of 131 tokens attends to blocks of 128",
        Site(function="attend", file="lanes.py", line=186),
    )
    for error, place in ((defined, there), (interpreted, there), read):
        assert kind_of(VLLM).known_crash(error, place, trace) == "vllm_v2_failed_load_in_other_blocks"
        assert not kind_of(VLLM).known_crash(error, place, calm)
        assert not kind_of(VLLM_V1).known_crash(error, place, trace)
    assert not kind_of(VLLM).known_crash(read[0], there, trace)
    assert not kind_of(VLLM).known_crash(f"KernelError: _gather_block_tables_kernel: {end}", there, trace)
