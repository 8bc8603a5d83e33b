"""The context of a model runner, which provides an op's arguments by name."""

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.context import Context
from workers.engine.functions import EngineFunctions
from workers.kernels.attention.definition import Attention
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.lanes.lane import Span
from workers.oracle.model_values import ModelValueCache
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target


@pytest.fixture
def context() -> Context:
    trace = Trace(spec=EngineSpec(), seed=0, events=(Submit(tick=0, request="a", prompt=(1, 2), max_tokens=1),))
    return specstorm_target(
        Run(trace, ModelValueCache(), Options(), Specstorm(EngineFunctions())).target
    ).engine.runner.context


def test_bound_finds_spans_buffers_and_numbers_by_name(context: Context) -> None:
    view, memory, spec = context.memory.view(0, 2, 8), context.memory, context.spec
    for _ in range(2):
        bound = context.bound(Attention, view, output=view.attended, num_blocks_max=3)
        assert (bound.kv, bound.positions, bound.output) == (memory.kv.all, view.positions, view.attended)
        assert (bound.block_size, bound.max_blocks, bound.num_blocks_max) == (spec.block_size, memory.max_blocks, 3)


def test_bound_takes_spans_of_the_given_view(context: Context) -> None:
    first, second = context.memory.view(0, 1, 4), context.memory.view(0, 2, 8)
    bound = [context.bound(KvWrite, view, layer=0) for view in (first, second, first)]
    assert [each.positions for each in bound] == [first.positions, second.positions, first.positions]


def test_bound_prefers_own_values_to_memory(context: Context) -> None:
    view = context.memory.view(0, 1, 4)
    own: dict[str, Span | int] = {"kv": context.memory.drafter_kv.all, "layer": 7}
    assert context.bound(KvWrite, view, own).kv is context.memory.drafter_kv.all
    assert context.bound(KvWrite, view, own, layer=1).layer == 1


def test_bound_with_an_ambiguous_name_raises(context: Context) -> None:
    view = context.memory.view(0, 1, 4)
    given = {"prev_valid": context.memory.valid.all, "draft_tokens": context.memory.prev_drafts}
    with pytest.raises(TypeError, match=r"PrepareInputs\.accepted: no span, buffer or number has this name"):
        context.bound(PrepareInputs, view, **given)


def test_bound_with_an_unknown_argument_fails(context: Context) -> None:
    with pytest.raises(AssertionError, match="KvWrite has no argument"):
        context.bound(KvWrite, context.memory.view(0, 1, 4), layer=0, slot=context.memory.slots.all)
