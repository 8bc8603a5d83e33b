"""State oracle: it works without an engine; model values and counts follow the specification.

Verifies: expectations from (trace, log) alone; every model value against a slow recomputation; scripts; the worked
example of the specification; identity I1 after every processed step.
"""

import pickle
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scenarios.events import Submit
from scenarios.generation.strategies import random_trace
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.oracle.fold import expectations
from tests.workers.run.runs import judged_by
from workers.engine.engine import Engine
from workers.engine.functions import EngineFunctions
from workers.judge.checker import Checker
from workers.oracle.model_values import ModelValueCache, ModelValues, max_positions, script
from workers.oracle.state_oracle import LogError, Oracle
from workers.record import model
from workers.record.evidence import Difference, Violation, violation
from workers.record.log import Aborted, Entry, Launched, Processed, Scheduled
from workers.record.observation import Observation
from workers.record.rules import Rule
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import Specstorm, specstorm_target

ROOT = Path(__file__).resolve().parents[3]
VALUE_CACHE = ModelValueCache()


class Recording(Checker):
    """Checker that stores the engine's decisions in `log`, and its values in `observations`."""

    def __init__(self, trace: Trace) -> None:
        super().__init__(trace, VALUE_CACHE)
        self.trace = trace
        self.log: list[Entry] = []
        self.observations: list[Observation] = []

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        for entry in log:
            if isinstance(entry, Observation):
                self.observations.append(entry)
            else:
                self.log.append(entry)
        return super().see_log(log)


def recorded_run(trace: Trace) -> Recording:
    checker = Recording(trace.explicit())
    run = Run(checker.trace, VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
    assert judged_by(run, checker).to_end() is None
    return checker


def test_oracle_expects_the_same_in_a_process_without_engine() -> None:
    runs = [recorded_run(random_trace(seed)) for seed in range(12)]
    here = [expectations(run.trace, run.log) for run in runs]
    there = [(run.trace.model_dump_json(), pickle.dumps(run.log)) for run in runs]
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.oracle.fold"],
        cwd=ROOT,
        input=pickle.dumps(there),
        capture_output=True,
        check=True,
        timeout=600,
    )
    assert done.stdout.decode().split() == here
    assert len(set(here)) == len(here)


def test_process_without_engine_cannot_import_one() -> None:
    code = (
        "import sys; from tests.workers.oracle.fold import NoEngine; sys.meta_path.insert(0, NoEngine()); "
        "import workers.engine.engine"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode != 0
    assert "workers.engine is refused here" in done.stderr


class Slow:
    """Reference model that computes token by token, and shares scalar functions only."""

    def __init__(self, tokens: list[int], spec: EngineSpec) -> None:
        self.kv = [model.kv_entry(model.embed(token), at, 0) for at, token in enumerate(tokens)]
        self.attention = [self.attended(self.kv, at) for at in range(len(tokens))]
        hidden = [
            model.after_attention(model.embed(token), output)
            for token, output in zip(tokens, self.attention, strict=True)
        ]
        self.states: list[int] = []
        self.inputs = hidden if spec.layers == "hybrid" else []
        if spec.layers == "hybrid":
            state, width = 0, spec.conv_width
            padded = [0] * (width - 1) + hidden
            for at in range(len(tokens)):
                state = (model.DECAY * state + model.convolve(padded[at : at + width])) % 2**64
                self.states.append(state)
            pairs = zip(hidden, self.states, strict=True)
            hidden = [model.mix((word + state) % 2**64) for word, state in pairs]
        self.hidden = hidden

    @staticmethod
    def attended(kv: list[int], at: int) -> int:
        return sum(kv[j] * (2 * (at - j) + 1) for j in range(at + 1)) % 2**64

    def next_token(self, vocab_size: int) -> int:
        logits = [model.logit(self.hidden[-1], token) for token in range(vocab_size)]
        return logits.index(max(logits))


SPECS = st.builds(
    EngineSpec,
    layers=st.sampled_from(["hybrid", "attention"]),
    vocab_size=st.sampled_from([2, 3, 32, 97]),
    conv_width=st.integers(2, 8),
)


@settings(max_examples=60)
@given(SPECS, st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(1, 20))
def test_tape_equals_slow_recomputation(spec: EngineSpec, prompt: list[int], more: int) -> None:
    model_values = ModelValues(tuple(prompt), spec)
    model_values.extend(len(prompt) + more)
    slow = Slow(model_values.tokens[:-1], spec)
    assert (model_values.kv, model_values.attention, model_values.states) == (slow.kv, slow.attention, slow.states)
    assert (model_values.inputs, model_values.hidden) == (slow.inputs, slow.hidden)
    assert model_values.tokens[: len(prompt)] == prompt
    for length in range(len(prompt), len(model_values.tokens)):
        assert model_values.tokens[length] == Slow(model_values.tokens[:length], spec).next_token(spec.vocab_size)


@settings(max_examples=60)
@given(SPECS, st.lists(st.integers(0, 1), min_size=1, max_size=12), st.integers(1, 20))
def test_drafter_of_tape_reads_hidden_word_and_next_token(spec: EngineSpec, prompt: list[int], more: int) -> None:
    model_values = ModelValues(tuple(prompt), spec)
    model_values.extend(len(prompt) + more)
    assert model_values.drafter.words
    for at, word in enumerate(model_values.drafter.words):
        vector = model.draft_hidden(model_values.hidden[at], model_values.tokens[at + 1])
        assert word == model.kv_entry(vector, at, model.DRAFTER_LAYER)
        total, weighted = model_values.drafter.sums[at]
        assert total == sum(model_values.drafter.words[: at + 1]) % 2**64
        assert weighted == sum(index * kv for index, kv in enumerate(model_values.drafter.words[: at + 1])) % 2**64
        assert model.attention(total, weighted, at) == Slow.attended(model_values.drafter.words, at)


def test_tape_extended_in_pieces_equals_tape_extended_at_once() -> None:
    spec = EngineSpec()
    pieces, whole = ModelValues((5, 6), spec), ModelValues((5, 6), spec)
    for length in (1, 2, 7, 7, 30):
        pieces.extend(length)
    whole.extend(30)
    assert vars(pieces).keys() == vars(whole).keys()
    for name in ("tokens", "kv", "attention", "inputs", "states", "hidden"):
        assert getattr(pieces, name) == getattr(whole, name)
    for name in ("words", "sums"):
        assert getattr(pieces.drafter, name) == getattr(whole.drafter, name)


@pytest.mark.parametrize("width", [2, 3, 5])
def test_window_is_zero_padded_before_the_first_input(width: int) -> None:
    model_values = ModelValues((5, 6, 7), EngineSpec(conv_width=width))
    model_values.extend(6)
    padded = [0] * (width - 1) + model_values.inputs
    for end in range(7):
        assert model_values.window(end) == padded[end : end + width - 1]


@settings(max_examples=60)
@given(st.integers(1, 9), st.text("01", min_size=1, max_size=9), st.sampled_from([2, 3, 32]), st.integers(12, 60))
def test_script_is_correct_at_1_bits_and_wrong_at_0_bits(
    num_prompt: int, bits: str, vocab_size: int, max_model_len: int
) -> None:
    spec = EngineSpec(vocab_size=vocab_size, max_model_len=max_model_len)
    model_values = ModelValueCache().model_values((1,) * num_prompt, spec, max_positions(num_prompt, 20, spec))
    drafts = script(model_values, num_prompt, bits, spec)
    assert len(drafts) == max_model_len
    assert drafts[:num_prompt] == model_values.tokens[:num_prompt]
    for position in range(num_prompt, min(len(model_values.tokens), max_model_len)):
        is_right = bits[(position - num_prompt) % len(bits)] == "1"
        assert (drafts[position] == model_values.tokens[position]) == is_right
        assert 0 <= drafts[position] < vocab_size


def test_scheduler_counts_equal_the_worked_example() -> None:
    # state_machine.md, 1.8: one request, P = 5, K = 2; step 2 accepts one of two drafts, step 3 none.
    spec = EngineSpec(num_speculative_tokens=2)
    request = Submit(tick=0, request="a", prompt=(1, 2, 3, 4, 5), max_tokens=40, accept="010000000")
    run = recorded_run(Trace(spec=spec, events=(request,)))
    scheduled = [each.values for each in run.observations if each.point == "scheduled"][:4]
    counts = [(values["scheduled_computed"][0], values["scheduled_placeholders"][0]) for values in scheduled]
    assert counts == [(5, 1), (8, 4), (11, 6), (13, 6)]
    processed = [each for each in run.observations if each.point == "processed"]
    known, columns = 5, []
    for each in processed[:3]:
        known += len(each.values["tokens"][0])
        columns.append((each.values["computed"][0], each.values["placeholders"][0], known))
    assert columns == [(8, 3, 6), (10, 3, 8), (11, 3, 9)]
    launched = [each.values["mirror_computed"][0] for each in run.observations if each.point == "launched"][:4]
    assert launched == [0, 5, 8, 10], "sent computed"
    corrected = [each.values["corrected_computed"] for each in run.observations if each.point == "corrected"][:3]
    assert corrected == [[5], [7], [8]], "the true counts"


class Identities(Checker):
    """Checker that asserts computed - placeholders == tokens - 1 after every step.

    I1 of the specification holds for a request from its first scheduled sampling step in an epoch on.
    """

    def __init__(self, trace: Trace, engine: Engine) -> None:
        super().__init__(trace, VALUE_CACHE)
        self.num_held = 0
        self._engine = engine
        self._sampling: set[tuple[int, int]] = set()

    def see_log(self, log: Sequence[Entry | Observation]) -> Difference | None:
        epochs: dict[int, int] = {}
        for entry in log:
            if isinstance(entry, Scheduled):
                epochs = {row.request: row.epoch for row in entry.rows}
            if isinstance(entry, Observation) and entry.point == "scheduled":
                counts = zip(entry.requests, entry.values["scheduled_placeholders"], strict=True)
                self._sampling |= {(index, epochs[index]) for index, count in counts if count and index in epochs}
        for request in self._engine.scheduler.running:
            if (request.index, request.epoch) in self._sampling:
                assert request.num_computed - request.num_placeholders == len(request.tokens) - 1, request
                self.num_held += 1
        return super().see_log(log)


def test_i1_holds_after_every_step_of_random_traces_in_the_engine() -> None:
    num_held = 0
    for seed in range(30):
        run = Run(random_trace(seed).explicit(), VALUE_CACHE, Options(races=False), Specstorm(EngineFunctions()))
        checker = Identities(run.trace, specstorm_target(run.target).engine)
        assert judged_by(run, checker).to_end() is None
        num_held += checker.num_held
    assert num_held > 600


def test_i1_holds_after_every_step_of_random_traces_in_the_oracle() -> None:
    num_held = 0
    for seed in range(30):
        run = recorded_run(random_trace(seed))
        oracle = Oracle(run.trace, VALUE_CACHE)
        for entry in run.log:
            oracle.consume(entry)
            for truth in oracle.running:
                if truth.sched_placeholders:
                    assert truth.sched_computed - truth.sched_placeholders == truth.committed - 1
                    num_held += 1
                assert truth.computed <= truth.sched_computed, "the truth is never ahead of the optimistic count"
    assert num_held > 600


def test_oracle_with_contradictory_log_raises() -> None:
    run = recorded_run(random_trace(0))
    launched = next(entry for entry in run.log if isinstance(entry, Launched))
    oracle = Oracle(run.trace, VALUE_CACHE)
    step = launched.step
    refused: tuple[tuple[Entry, Violation], ...] = (
        (launched, violation(Rule.NOT_THE_LAST_SCHEDULED, step=step)),
        (Processed(step), violation(Rule.PROCESSED_BEFORE_LAUNCH, step=step)),
        (Aborted(0, 0), violation(Rule.NOT_ALIVE, request=0)),
    )
    for entry, broken in refused:
        with pytest.raises(LogError) as error:
            oracle.consume(entry)
        assert error.value.violation == broken
