"""KV connector with a block store: lookups, evictions, and refused specs and events."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from scenarios.capabilities import lacking
from scenarios.events import AnyEvent, DisturbTransfer, DummyStep, LoadWeights, Pause, Sleep, Submit
from scenarios.generation.fitting import fitted_to
from scenarios.spec import EngineSpec, Handoff, Transfer
from scenarios.trace import Trace
from workers.targets.registry import target_kind
from workers.targets.vllm.inside.transfer.flights import StoreFlights
from workers.targets.vllm.inside.transfer.planner import StorePlanner
from workers.targets.vllm.inside.transfer.store import Store
from workers.targets.vllm.names import VLLM, VLLM_V1

FINDINGS = Path(__file__).resolve().parents[4] / "findings"
TOKENS = [1, 2, 3, 4, 5, 6]
KEYS = [(0, tuple(TOKENS[:stop])) for stop in (2, 4, 6)]


def test_store_prefix_ends_before_the_first_missing_block() -> None:
    store = Store(3)
    slots = [store.write(key) for key in KEYS]
    assert None not in slots
    store.written(KEYS[0], 0, True)
    store.written(KEYS[2], 2, True)
    assert store.prefix(KEYS) == [0]
    store.written(KEYS[1], 1, True)
    assert store.prefix(KEYS) == [0, 1, 2]
    assert store.prefix(KEYS[1:]) == [1, 2]


def planner_and_stored(num_lookahead_tokens: int, *requests: list[int]) -> tuple[StorePlanner, list[list[int]]]:
    """Return a planner that has stored the blocks of 2 tokens of each request, and the blocks that each stored."""
    flights = StoreFlights(Transfer(loads="synchronous", stores="synchronous"), 2, num_lookahead_tokens)
    planner, stored = StorePlanner(flights, groups=(0,), sizes=(2,)), []
    for number, tokens in enumerate(requests):
        blocks = [10 * number + index for index in range(4)]
        planner.manager = SimpleNamespace(get_block_ids=lambda name, held=blocks: [held])
        planner.add(request := request_of(f"r{number}", tokens))
        output = SimpleNamespace(
            num_scheduled_tokens={request.request_id: len(tokens)},
            scheduled_spec_decode_tokens={},
            preempted_req_ids=None,
            new_block_ids_to_zero=None,
        )
        flights.block_pool = SimpleNamespace(blocks=[])
        stores = planner.plan(output).stores
        stored.append([block for flight in stores for block in flight.blocks])
        for flight in stores:
            flights.start(flight)
            flights.end(flight, is_ahead=False)
        planner.processed(stores, set())
    return planner, stored


def request_of(name: str, tokens: list[int]) -> Any:
    return SimpleNamespace(
        request_id=name,
        all_token_ids=tokens,
        num_tokens=len(tokens),
        num_computed_tokens=0,
        num_output_placeholders=0,
    )


def test_block_before_another_token_is_not_loaded_with_a_drafter() -> None:
    one, other = [1, 2, 3, 4, 5], [1, 2, 9, 9, 5]
    planner, stored = planner_and_stored(1, one, other)
    # The drafter's entry of token 2 depends on the next token, so each request stores the first block.
    assert stored == [[0, 1], [10, 11]]
    assert planner.matched(request_of("r2", [1, 2, 9, 9, 5, 7]), 0) == (4, False)
    assert planner._found["r2"][1] == [2, 3]
    # The token after the second block differs from both.
    assert planner.matched(request_of("r3", [1, 2, 9, 9, 8, 7]), 0) == (2, False)
    assert planner.matched(request_of("r4", [1, 2, 8, 9, 5, 7]), 0) == (0, False)


def test_block_before_another_token_is_loaded_without_a_drafter() -> None:
    planner, stored = planner_and_stored(0, [1, 2, 3, 4, 5], [1, 2, 9, 9, 5])
    assert stored == [[0, 1], [11]]
    assert planner.matched(request_of("r2", [1, 2, 9, 9, 8, 7]), 0) == (4, False)


def test_block_is_stored_once_its_next_token_is_known() -> None:
    assert planner_and_stored(1, [1, 2, 3, 4])[1] == [[0]]
    assert planner_and_stored(0, [1, 2, 3, 4])[1] == [[0, 1]]


def test_store_states_are_found_only_if_all_groups_have_them() -> None:
    store = Store(4)
    for group in (1, 2):
        assert store.states(TOKENS[:2], range(1, 3)) is None
        slot = store.write((group, tuple(TOKENS[:2])))
        assert slot is not None
        store.written((group, tuple(TOKENS[:2])), slot, True)
    assert store.states(TOKENS[:2], range(1, 3)) == [0, 1]
    assert store.states(TOKENS[:4], range(1, 3)) is None
    # Full attention alone has no recurrent states.
    assert store.states(TOKENS[:4], range(1, 1)) == []


def test_store_evicts_the_least_recently_used_unpinned_block() -> None:
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
def test_store_discards_blocks_that_depend_on_a_failed_load(invalid: tuple[int, ...], is_told_late: bool) -> None:
    flights = StoreFlights(Transfer(stores="synchronous"), 2, num_lookahead_tokens=0)
    slot = flights.store.write(KEYS[1])
    assert slot is not None
    values = {"blocks": [7], "slots": [slot], "keys": [KEYS[1]], "context": frozenset({6, 7})}
    flight = flights.planned("store", "r", **values)
    flights.start(flight)
    flights.end(flight, is_ahead=False)
    flights.discard_dependents(invalid)
    if is_told_late:
        flights.discard_dependents(())
    flights.written(flight)
    assert flights.store.has(KEYS[1]) == (not invalid)


def test_discarded_store_frees_its_slot() -> None:
    store = Store(1)
    assert store.write(KEYS[0]) == 0
    store.written(KEYS[0], 0, False)
    assert not store.has(KEYS[0])
    assert store.write(KEYS[1]) == 0


BESIDE_A_STORE = [
    (Pause(tick=1), "events.0.clear_cache: True; with a KV connector False is allowed: "),
    (Sleep(tick=1), "events.0.level: 1; with a KV connector 0 is allowed: "),
    (LoadWeights(tick=1), "events.0.version: 1; with a KV connector load_weights is not allowed: "),
]


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize(("event", "told"), BESIDE_A_STORE)
def test_event_not_allowed_with_a_store_is_refused_and_fixed(event: AnyEvent, told: str, engine: str) -> None:
    keys = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle"}
    trace = Trace(spec=EngineSpec.model_validate({**keys, "transfer": {}}), events=(event,))
    capabilities = target_kind(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    fixed = fitted_to(trace, capabilities)
    assert lacking(fixed, capabilities) is None
    assert fixed.spec.transfer is not None


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
def test_store_limits_of_a_hybrid_model(keys: dict[str, object], told: str | None, engine: str) -> None:
    hybrid = {"layers": "hybrid", "prefix_cache": True, "recurrent_cache": "align", "num_speculative_tokens": 0}
    spec = {"sampling": "standard", "block_size": 32, "drafter": "eagle", "transfer": {}, **hybrid}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=())
    capabilities = target_kind(engine).capabilities
    seen = lacking(trace, capabilities)
    assert seen is None if told is None else (seen or "").startswith(told)
    assert lacking(fitted_to(trace, capabilities), capabilities) is None


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
def test_spec_or_event_not_allowed_with_offloading_is_refused_and_fixed(
    keys: dict[str, object], event: AnyEvent | None, told: str, engine: str
) -> None:
    spec = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle", "offloading": {}}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=(event,) if event is not None else ())
    capabilities = target_kind(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    assert lacking(fitted_to(trace, capabilities), capabilities) is None


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
def test_spec_or_event_not_allowed_with_handoff_is_refused_and_fixed(
    keys: dict[str, object], event: AnyEvent | None, told: str, engine: str
) -> None:
    spec = {"layers": "attention", "sampling": "standard", "block_size": 32, "drafter": "eagle", "handoff": {}}
    trace = Trace(spec=EngineSpec.model_validate(spec | keys), events=(event,) if event is not None else ())
    capabilities = target_kind(engine).capabilities
    assert (lacking(trace, capabilities) or "").startswith(told)
    assert lacking(fitted_to(trace, capabilities), capabilities) is None


def test_handoff_without_producer_turns_is_invalid() -> None:
    assert Handoff(turns=(0, 1)).turns == (0, 1)
    with pytest.raises(ValidationError, match="no prompt is ever computed"):
        Handoff(turns=(0, 0))
