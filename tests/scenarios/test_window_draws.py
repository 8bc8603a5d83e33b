"""Draws of sliding windows: a share of the traces of engines that have them, and no other trace is changed."""

import pytest

from scenarios.capabilities import lacking
from scenarios.trace import Trace, problems
from scenarios.window_draws import with_windows
from tests.scenarios.drawn import drawn, random_traces
from workers.targets.registry import kind_of
from workers.targets.sglang.installation import SGLANG
from workers.targets.vllm.names import VLLM, VLLM_V1


def having(engine: str) -> list[Trace]:
    """Return the drawn traces that have windows."""
    return [trace for trace in drawn(engine) if trace.spec.layers == "windows"]


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
def test_one_trace_of_about_sixteen_has_windows_that_the_engine_can_have(engine: str) -> None:
    traces, windows = drawn(engine), having(engine)
    assert len(traces) // 25 < len(windows) < len(traces) // 10
    assert all(lacking(trace, kind_of(engine).capabilities) is None and not problems(trace) for trace in windows)
    assert not any(trace.spec.has_connector for trace in windows)


def test_windows_are_narrower_and_wider_than_blocks_and_some_are_wide_behind_prefixes() -> None:
    specs = [trace.spec for trace in having(VLLM)]
    assert min(spec.window for spec in specs) < 32 < max(spec.window for spec in specs)
    wide = [spec for spec in specs if spec.window_heads == 4]
    assert 0 < len(wide) < len(specs) // 2
    assert all(spec.prefix_cache for spec in wide)
    assert {spec.drafter for spec in specs if spec.num_speculative_tokens} >= {"eagle", "draft_model"}


def test_engines_without_windows_keep_their_traces() -> None:
    for seed in range(40):
        trace = random_traces()[seed]
        assert with_windows(trace, kind_of(SGLANG).capabilities) is trace
