"""Public Hypothesis strategies: the documented example runs, and traces use only an engine's capabilities."""

import re
from pathlib import Path
from typing import Any

from hypothesis import given, settings

from scenarios.capabilities import Capabilities, lacking
from scenarios.generation.strategies import traces
from scenarios.trace import Trace

PAGE = Path(__file__).resolve().parents[3] / "docs" / "scenarios.md"
LITTLE = Capabilities(
    events=("abort", "stall"), hooks=("before_schedule",), features=("stop",), spec={"num_speculative_tokens": (0, 2)}
)


def test_example_of_the_documentation_page_passes() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(example, f"the example of {PAGE.name}", "exec"), names)
    names["test_the_engine_agrees_with_the_oracle"]()


@settings(max_examples=50)
@given(traces(LITTLE))
def test_traces_strategy_uses_only_supported_features(trace: Trace) -> None:
    assert lacking(trace, LITTLE) is None


def test_simplest_trace_is_one_plain_request() -> None:
    found: list[Trace] = []

    @settings(max_examples=1)
    @given(traces())
    def first(trace: Trace) -> None:
        found.append(trace)

    first()
    assert [event.do for event in found[0].events] == ["submit"]
