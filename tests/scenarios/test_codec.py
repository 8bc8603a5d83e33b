"""YAML codec: lossless for traces; other text is refused with file, line and allowed values."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scenarios.codec import BYTES_MAX, ScenarioError, dumps, find_scenarios, load, loads, run_on
from scenarios.events import AcceptRate, Hold, Label, NoValidToken, Preempt, PromptDraw, Schedule, Submit
from scenarios.generation.strategies import random_trace, traces
from scenarios.scenario_file import RunOn
from scenarios.trace import Trace
from tests.scenarios.generated_traces import random_traces

SUBMIT = "events:\n  - {tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 3}\n"
NAMES = ("1", "no", "null", "true", "1e3", "-", ".", "0x10", "1.5", "2026-01-01", "NULL", "_")


def refusal(text: str) -> str | None:
    """Return the message of a refused text, or None for a valid one."""
    try:
        loads(text, "f")
    except ScenarioError as error:
        return str(error)
    return None


def awkward() -> Trace:
    """Return a trace that uses every field, with request names that YAML could read as other types."""
    events = tuple(
        Submit(tick=0, request=name, prompt=PromptDraw(tokens=9), max_tokens=2, accept=AcceptRate(rate=1e-7), stop=(1,))
        for name in NAMES
    )
    label = Label(name="copy_counts", step=7)
    schedule = Schedule(policy="random", seed=2**63 - 1, holds=(Hold(op=label, until=label),) * 2)
    more = (NoValidToken(tick=3, request="no", at="after_launch"), Preempt(tick=3, request="1"))
    return Trace(
        events=events + more, schedule=schedule, faults=("vllm-38556-backup-token", "1"), expect={"preemption": 1}
    )


@settings(max_examples=80)
@given(traces())
@example(awkward())
@example(Trace(events=()))
def test_dumps_and_loads_keep_trace_and_explicit_trace(trace: Trace) -> None:
    text, explicit = dumps(trace), trace.explicit()
    read = loads(text, "text")
    assert read == trace
    assert dumps(read) == text
    assert loads(dumps(explicit), "text") == explicit


@settings(max_examples=100)
@given(st.text(alphabet="01", min_size=1, max_size=70), st.floats(0, 1))
def test_loads_returns_accept_bits_as_text_and_equal_rates(bits: str, rate: float) -> None:
    for accept in (bits, AcceptRate(rate=rate)):
        trace = Trace(events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=3, accept=accept),))
        assert loads(dumps(trace), "text") == trace


def test_dumps_writes_one_event_per_line_without_defaults() -> None:
    events = (
        Submit(tick=0, request="a", prompt=(1, 2), max_tokens=3, accept="10"),
        Preempt(tick=4, at="after_launch", request="a"),
    )
    assert dumps(Trace(events=events, expect={"preemption": 1})) == (
        "events:\n"
        '  - {tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 3, accept: "10"}\n'
        "  - {tick: 4, at: after_launch, do: preempt, request: a}\n"
        "expect:\n"
        "  preemption: 1\n"
    )


REFUSED = [
    ("", 1, "the file is empty; "),
    ("# nothing\n", 1, "the file is empty; "),
    ("hello", 1, 'the file is "hello"; expected a mapping with keys spec, seed, events'),
    ("seed: 1\nseed: 2\nevents: []", 2, 'key "seed" appears twice, first on line 1; each key goes once'),
    ("seed: 1\nevents: &a []", 2, "anchor &a; anchors are not allowed"),
    ("a: &a [x]\nb: [*a, *a]", 1, "anchor &a; anchors are not allowed"),
    ("events: *a", 1, "alias *a; aliases are not allowed"),
    ("events: !!python/object/apply:os.system [exit]", 1, 'os.system"; tags are not allowed'),
    ("events: !!seq []", 1, "tags are not allowed"),
    ("events: ! a", 1, "tags are not allowed"),
    ("events: []\n---\nevents: []", 2, "a second document begins; a file holds one trace"),
    ("events: []\nspec:\n  pad: yes", 3, "yes is ambiguous in YAML; write true or false, or quote it"),
    ("events: []\nspec: {pad: OFF}", 2, "OFF is ambiguous in YAML; write true or false"),
    ("events: []\nspec: {pad: 1}", 2, "spec.pad is 1; expected true or false"),
    ("events: []\nseed: 010", 2, 'seed is "010"; expected an integer from 0 up'),
    ("events: []\nseed: 0x10", 2, 'seed is "0x10"; expected an integer from 0 up'),
    ("events: []\nseed: 1:30", 2, 'seed is "1:30"; expected an integer from 0 up'),
    ("events: []\nseed: 2026-01-01", 2, 'seed is "2026-01-01"; expected an integer from 0 up'),
    ("events: []\nseed: 1_000", 2, 'seed is "1_000"; expected an integer from 0 up'),
    ("events: []\nseed: 1.0", 2, "seed is 1.0; expected an integer from 0 up"),
    ("events: []\nseed: true", 2, "seed is true; expected an integer from 0 up"),
    ("events: []\nseed: " + "9" * 5000, 2, "... (5002 characters); expected an integer from 0 up"),
    ("events: []\nseed:", 2, "seed is empty; expected an integer from 0 up"),
    ("events: []\n1: 2", 2, "1 is used as a key; keys are text"),
    ("events: []\n? [a]\n: 1", 2, "a list of 1 is used as a key; keys are text"),
    ("events: []\n<<: {seed: 1}", 2, 'unknown key "<<"; allowed are events, expect, faults'),
    ("spec: {}", 1, 'the file lacks "events"; required are events'),
    (
        "spec: {depth: 9}\nevents: []",
        1,
        "spec.depth is 9; allowed are 1 and 2, or an integer from 1 to 8 with fault specstorm-depth-3",
    ),
    ("spec:\n  num_block: 3\nevents: []", 2, 'unknown key "num_block" in spec; did you mean num_blocks? allowed are '),
    ("events: {}", 1, "events is an empty mapping; expected a list"),
    ("events:\n  - 3", 2, "events[0] is 3; expected a mapping with key do"),
    (
        "events:\n  - {tick: 0}",
        2,
        'events[0] lacks "do"; allowed are abort, disturb_transfer, dummy_step, end_session, load_weights',
    ),
    ("events:\n  -\n    tick: 0\n    do: abrot", 4, 'unknown event "abrot"; did you mean abort? allowed are abort,'),
    ("events:\n  - {tick: 0, do: [1]}", 2, "unknown event a list of 1; allowed are abort"),
    ("events:\n  - {tick: 0, do: abort}", 2, 'events[0] lacks "request"; required are tick, request'),
    ("events:\n  - {do: abort, tick: 0, submit: 1, request: a}", 2, 'unknown key "submit" in events[0]; allowed are'),
    ("events:\n  - {do: abort, tick: 0, request: 7}", 2, "events[0].request is 7; expected text of the form"),
    (
        "events:\n  - {do: abort, tick: 0, at: noon, request: a}",
        2,
        'events[0].at is "noon"; expected one of before_schedule,',
    ),
    (SUBMIT.replace("3}", "3, accept: 10}"), 2, "events[0].accept is 10; expected one of all, none, alternate or text"),
    (
        SUBMIT.replace("3}", '3, accept: "12"}'),
        2,
        'events[0].accept is "12"; expected one of all, none, alternate or text',
    ),
    (SUBMIT.replace("3}", "3, accept: {rate: 2}}"), 2, "events[0].accept.rate is 2; expected a number from 0 to 1"),
    (
        SUBMIT.replace("3}", "3, accept: {rate: true}}"),
        2,
        "events[0].accept.rate is true; expected a number from 0 to 1",
    ),
    (
        SUBMIT.replace("3}", "3,\n     params: {logit_bias: [[1]]}}"),
        3,
        "logit_bias[0] is a list of 1; expected a list of an",
    ),
    (
        SUBMIT.replace("3}", "3, params: {logit_bias: [[]]}}"),
        2,
        "logit_bias[0] is an empty list; expected a list of an integer",
    ),
    (SUBMIT.replace("[1, 2]", "{tokns: 9}"), 2, 'unknown key "tokns" in events[0].prompt; did you mean tokens?'),
    (SUBMIT.replace("[1, 2]", "[1, x]"), 2, 'events[0].prompt[1] is "x"; expected an integer from 0 up'),
    (SUBMIT.replace("[1, 2]", "[]"), 2, "events[0].prompt is an empty list; expected a list with at least one item"),
    (SUBMIT.replace("[1, 2]", "[1,\n      99]"), 3, "events[0].prompt[1]: token id 99; allowed are 0 to"),
    ("spec: {num_blocks: 2}\n" + SUBMIT, 3, "request 'a' can never fit: it needs 4 blocks, num_blocks is 2"),
    (
        "spec: {drafter: suffix}\nevents: []",
        1,
        "drafter is suffix; allowed are eagle, draft_model, mtp, dflash, extract_hidden_states, ngram_gpu, eagle3, "
        "ngram_corpus, or depth 1: suffix and ngram draft on the host, which lacks the tokens of a step in "
        "flight",
    ),
    (
        "spec: {drafter: medusa, depth: 2}\nevents: []",
        1,
        "drafter is medusa; allowed are eagle, draft_model, mtp, dflash, extract_hidden_states, ngram_gpu, eagle3, "
        "ngram_corpus, or depth 1: a step gets the drafts of medusa through the host, which does not have the "
        "drafts of a step in flight",
    ),
    (
        "spec: {drafter: extract_hidden_states}\nevents: []",
        1,
        "num_speculative_tokens is 3; allowed are 0 and 1: extract_hidden_states proposes one draft token",
    ),
    ("spec: {drafter: ngram_gpu, drafter_max_len: 9}\nevents: []", 1, "drafter_max_len is 9; allowed are 0: "),
    (
        "spec: {drafter: mtp, layers: attention, prefix_cache: true}\nevents: []",
        1,
        "prefix_cache is True; allowed are ",
    ),
    ("spec: {depth: 3}\nevents: []", 1, "depth is 3; allowed are 1 and 2: token counts are corrected by one step"),
    ("spec:\n  max_num_batched_tokens: 3\nevents: []", 2, "one decode needs 1 + K = 4"),
    ("events: []\nexpect: {premption: 1}", 2, "unknown probe 'premption'; did you mean preemption? allowed are"),
    ("events: []\nexpect: {preemption: 0}", 2, "expect.preemption is 0; expected an integer from 1 to 1000000"),
    ("events: []\nexpect: {a b: 1}", 2, '"a b" is not a valid name; expected text of 1 to 64 letters'),
    ("events: []\nexpect: 3", 2, "expect is 3; expected a mapping from names to an integer from 1 to 1000000"),
    ("events: []\nschedule:\n  order: [host]", 3, "order is host; it must name each of host, compute"),
    ("events: " + "[" * 99 + "]" * 99, 1, "nested 13 deep; at most 12 levels are allowed"),
    ("seed: 1\nevents: [", 2, "not YAML: "),
    ("seed: 1\na: b: c", 2, "not YAML: mapping values are not allowed here"),
    ("seed: 1\n\x00", 2, "character U+0000 is not allowed in YAML"),
    ('events: "\\ud800"', 1, "has half a surrogate pair"),
    ('events: "\\UFFFFFFFF"', 1, "not YAML: "),
    ("%YAML " + "9" * 5000 + ".1\n---\nevents: []", 1, "not YAML: "),
    ("seed: -1\nevents: []\nfaults: [3]", 1, "seed is -1; expected an integer from 0 up (and 1 more)"),
]


@pytest.mark.parametrize(("text", "line", "words"), REFUSED, ids=[repr(text[:40]) for text, _, _ in REFUSED])
def test_loads_refuses_invalid_text_with_line_found_and_allowed(text: str, line: int, words: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        loads(text, "some/file.yaml")
    message = str(caught.value)
    assert message.startswith(f"some/file.yaml:{line}: ")
    assert words in message
    assert message.isprintable()


def test_loads_reports_earliest_line_for_any_kind_of_error() -> None:
    with pytest.raises(ScenarioError, match=r"^f:1: spec\.depth is 9; .* \(and 2 more\)$"):
        loads("spec: {depth: 9}\nevents:\n  - {do: abort}\n", "f")


@settings(max_examples=250)
@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 2000), st.text(max_size=3)), min_size=1, max_size=4))
def test_loads_of_damaged_yaml_raises_only_scenario_error(seed: int, edits: list[tuple[int, str]]) -> None:
    text = dumps(random_traces()[seed])
    for where, inserted in edits:
        at = where % (len(text) + 1)
        text = text[:at] + inserted + text[at + len(inserted) // 2 + 1 :]
    message = refusal(text)
    if message is None:
        assert loads(dumps(loads(text, "f")), "f") == loads(text, "f")
    else:
        assert message.startswith("f:")
        assert "\n" not in message


RUN_ON = {
    "engine": "vllm",
    "device": "triton-cpu",
    "release": "0.32.0",
    "kernels": "no",
    "version": "1.0+a",
    "sources": "00ff",
}


@pytest.mark.parametrize("keys", [(), ("device",), ("engine", "sources"), tuple(RUN_ON)])
def test_run_on_is_kept_in_yaml_and_not_in_the_trace(keys: tuple[str, ...], tmp_path: Path) -> None:
    trace, given = random_trace(3), RunOn.model_validate({key: RUN_ON[key] for key in keys})
    path = tmp_path / "a.yaml"
    path.write_text(dumps(trace, given))
    assert run_on(path) == given
    assert load(path) == trace
    assert dumps(load(path)) == dumps(trace)
    assert ("run_on" in path.read_text()) is bool(keys)


@pytest.mark.parametrize(
    ("lines", "line", "words"),
    [
        ("run_on: {device: sim, engin: vllm}\n", 1, 'unknown key "engin" in run_on; did you mean engine?'),
        ("seed: 1\nrun_on:\n  device: sim\n  devise: sim\n", 4, 'unknown key "devise" in run_on; did you mean device?'),
        ("run_on:\n  device: 3\n", 2, "run_on.device is 3"),
        (
            "run_on:\n  engine: vllm\n  engine_home: /a\n",
            3,
            'unknown key "engine_home" in run_on; did you mean engine?',
        ),
        ("run_on: {engine_path: /a}\n", 1, "allowed are device, engine, fixes, kernels, release, sources, version"),
        ("run_on: {version: /a/b}\n", 1, 'run_on.version is "/a/b"; expected text of the form'),
        ("run_on: {engine: ../vllm}\n", 1, 'run_on.engine is "../vllm"; expected text of the form'),
        ("run_on: sim\n", 1, 'run_on is "sim"; expected a mapping'),
    ],
)
def test_invalid_run_on_is_refused_with_its_line(lines: str, line: int, words: str, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(lines + SUBMIT)
    for read in (load, run_on):
        with pytest.raises(ScenarioError) as caught:
            read(path)
        assert str(caught.value).startswith(f"{path}:{line}: ")
        assert words in str(caught.value)


def test_load_reads_a_file_and_names_it_in_messages(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(SUBMIT)
    assert load(path) == loads(SUBMIT, "")
    path.write_text("seed: 1\n")
    with pytest.raises(ScenarioError) as caught:
        load(path)
    assert str(caught.value).startswith(f"{path}:1: the file lacks")


def test_load_refuses_unreadable_file_by_name(tmp_path: Path) -> None:
    undecodable = tmp_path / "bytes.yaml"
    undecodable.write_bytes(b"seed: 1\nevents: \xff")
    large = tmp_path / "large.yaml"
    large.write_bytes(b"#" * (BYTES_MAX + 1))
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    loop = tmp_path / "loop.yaml"
    loop.symlink_to(loop)
    for path, words in (
        (tmp_path / "absent.yaml", "No such file or directory"),
        (tmp_path, "not a regular file"),
        (pipe, "not a regular file"),
        (loop, ""),
        (undecodable, "byte 0xff is not UTF-8; scenario files are UTF-8 text"),
        (large, f"more than {BYTES_MAX} bytes"),
    ):
        with pytest.raises(ScenarioError) as caught:
            load(path)
        assert str(caught.value).startswith(str(path))
        assert words in str(caught.value)


def test_find_scenarios_is_sorted_unique_without_known_findings(tmp_path: Path) -> None:
    for name in ("b.yaml", "deep/er/a.yaml", "a.yaml", "note.txt", "deep/b.known.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(SUBMIT)
    wanted = [tmp_path / name for name in ("a.yaml", "b.yaml", "deep/er/a.yaml")]
    assert find_scenarios([tmp_path]) == wanted
    assert find_scenarios([tmp_path / "b.yaml", str(tmp_path), tmp_path / "deep"]) == wanted
    assert find_scenarios([tmp_path / "note.txt"]) == [tmp_path / "note.txt"]


def test_find_scenarios_refuses_search_without_result(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "a.yml").write_text(SUBMIT)
    for paths, words in (
        ([], "no path was given"),
        ([tmp_path / "absent"], "no such file or folder"),
        ([tmp_path / "empty"], r"the folder holds no scenario file \(\*.yaml\)"),
        ([tmp_path / "old"], "the name ends in .yml; scenario files end in .yaml"),
    ):
        with pytest.raises(ScenarioError, match=words):
            find_scenarios(paths)
