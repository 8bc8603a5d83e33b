"""Cost limits of a trace, such as KV cache slots and prefill chunks, and of reading its file."""

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from scenarios.codec import NODES_MAX, ScenarioError, find_scenarios, line_of, loads
from scenarios.limits import LIMITS, over_limits
from scenarios.strict_yaml import read

SUBMIT = "- {tick: 0, do: submit, request: a, prompt: {tokens: 5}, max_tokens: 9}\n"
LONG = "- {tick: 0, do: submit, request: a, prompt: {tokens: 5}, max_tokens: 1000000}\n"
BEYOND: Mapping[str, tuple[str, str]] = {
    "late": (f"events:\n{SUBMIT}- {{tick: 1000000, do: abort, request: a}}\n", ":3: events[1]: 1,000,001 ticks"),
    "stall": (
        f"events:\n{SUBMIT}- {{tick: 1, do: stall, request: a, ticks: 1000000}}\n",
        ":3: events[1]: 1,000,001 ticks",
    ),
    "tokens": (f"spec: {{max_model_len: 65536, num_blocks: 65536}}\nevents:\n{LONG}", ":3: events[0]: 65,536 tokens"),
    "tables": (
        f"spec: {{max_model_len: 16384, num_blocks: 65536}}\nevents:\n{LONG}",
        ":3: events[0]: 67,108,864 block table entries",
    ),
    "logits": (
        f"spec: {{max_model_len: 4096, num_blocks: 4096, vocab_size: 65536}}\nevents:\n{LONG}",
        ":1: spec.vocab_size: 268,",
    ),
    "slots": (
        f"spec: {{num_blocks: 65536, block_size: 1024}}\nevents:\n{SUBMIT}",
        ":1: spec.num_blocks: 67,108,864 slots",
    ),
    "chunks": (
        "spec: {max_model_len: 65536, num_blocks: 4096, block_size: 16, long_prefill_token_threshold: 1}\n"
        f"events:\n{SUBMIT.replace('5', '49000')}",
        ":3: events[0]: 49,00",
    ),
    "again": (
        "spec: {max_model_len: 8192, num_blocks: 2100}\nevents:\n"
        + LONG.replace("1000000", "4000")
        + "".join(f"- {{tick: {tick}, do: preempt, request: a}}\n" for tick in range(20)),
        ":3: events[0]: 84,105 tokens",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_trace_beyond_cost_limit_is_refused_with_line_and_limit(name: str) -> None:
    text, message = BEYOND[name]
    with pytest.raises(ScenarioError, match=r"; allowed are [0-9,]+ \(--no-limits lifts this\)") as raised:
        loads(text, "f.yaml")
    assert str(raised.value).startswith(f"f.yaml{message}")
    assert loads(text, "f.yaml", is_limited=False).events


def test_refused_traces_cover_every_cost_limit() -> None:
    messages = " ".join(
        problem.message for text, _ in BEYOND.values() for problem in over_limits(loads(text, "f", is_limited=False))
    )
    assert all(limit.what in messages for limit in LIMITS)


def steps(spec: str, *submits: str) -> int:
    """Return the estimated number of engine steps of some requests."""
    events = "".join(f"- {{tick: 0, do: submit, request: r{at}, {each}}}\n" for at, each in enumerate(submits))
    measure = next(limit.measure for limit in LIMITS if "engine steps" in limit.what)
    return measure(loads(f"spec: {{num_blocks: 999, max_model_len: 3000, {spec}}}\nevents:\n{events}", "f"))[0]


def test_steps_estimate_uses_chunks_drafts_rows_and_budget() -> None:
    prompt = "prompt: {tokens: 1000}, max_tokens: 1"
    output = "prompt: {tokens: 1}, max_tokens: 1000"
    assert steps("long_prefill_token_threshold: 10", prompt) == 100
    assert steps("max_num_batched_tokens: 20", prompt) == 50
    assert steps("", f"{output}, accept: none") == 1001
    assert steps("", f"{output}, accept: all") == 251
    assert steps("", f"{output}, accept: {{rate: 0.5}}") == 1 + round(1000 / 1.875)
    assert steps("max_num_seqs: 2", *[f"{output}, accept: none"] * 4) == 2002
    assert steps("max_num_batched_tokens: 4", *[f"{output}, accept: none"] * 3) == 3001


MANY = range(20_000)
GRAMMAR = f"params: {{grammar: [[{', '.join(f'[{token}, 1]' for token in (*MANY, 0))}], []]}}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"events:\n{SUBMIT}expect:\n" + "".join(f"  prob_{number}: 1\n" for number in MANY), r"\(and 19999 more\)"),
        ("spec: {vocab_size: 65536}\nevents:\n" + SUBMIT.replace("9}", f"9, {GRAMMAR}}}"), "token id 0 leads from"),
    ],
    ids=["unknown probes", "edges of a state"],
)
def test_check_of_file_takes_at_most_ten_times_its_reading(text: str, message: str) -> None:
    begin = time.process_time()
    read(text, "f")
    reading = time.process_time() - begin
    with pytest.raises(ScenarioError, match=message):
        loads(text, "f")
    assert time.process_time() - begin < 11 * reading


def test_own_scenarios_are_far_below_every_cost_limit() -> None:
    folder = Path(__file__).parents[2] / "scenarios"
    paths = find_scenarios([folder])
    assert paths
    for path in paths:
        trace = loads(path.read_text(), str(path), is_limited=False)
        for limit in LIMITS:
            assert limit.measure(trace)[0] < limit.maximum / 10, f"{path}: {limit.what}"


def test_reading_stops_at_maximum_number_of_keys() -> None:
    text = "".join(f"unknown_{number}: {number}\n" for number in range(160_000))
    begin = time.process_time()
    with pytest.raises(ScenarioError, match=rf"more than {NODES_MAX:,} keys and values"):
        loads(text, "f.yaml")
    assert time.process_time() - begin < 20


def test_loads_reports_first_error_and_counts_others() -> None:
    text = "".join(f"unknown_{number}: {number}\n" for number in range(5_000))
    with pytest.raises(ScenarioError, match=r'f.yaml:1: unknown key "unknown_0"; .* \(and 5000 more\)'):
        loads(text, "f.yaml")


def test_too_large_depth_reports_allowed_depths_and_fault() -> None:
    with pytest.raises(ScenarioError, match=r"depth is 99; allowed are 1 and 2, or .* with fault specstorm-depth-3"):
        loads(f"spec: {{depth: 99}}\nevents:\n{SUBMIT}", "f.yaml")


def test_line_of_returns_line_of_nearest_parent_in_file(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text(f"events:\n{SUBMIT}faults:\n- one\n- two\n")
    assert [line_of(path, where) for where in (("faults", 1), ("faults", 9), ("spec",))] == [5, 3, 1]
