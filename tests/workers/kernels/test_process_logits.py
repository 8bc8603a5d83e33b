"""Ops that process logits, compared with the oracle's arithmetic of one logit at a time."""

from math import inf

import numpy as np
import pytest

from scenarios.draw_params import params_of
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.engine.captures import hashes
from workers.engine.params_line import params_line
from workers.engine.request import Request
from workers.kernels.process_logits.definition import ProcessLogits, WriteHistory, line_of, write_history
from workers.kernels.process_logits.numpy import process_logits
from workers.oracle.logits_processing import Rules, hash_of, processed_logits

LENGTH = 24


def request_of(params: SamplingParams, tokens: list[int], num_prompt: int, stop: frozenset[int]) -> Request:
    return Request(0, "r", tokens, num_prompt, LENGTH, stop, [], params)


@pytest.mark.parametrize("vocab_size", [2, 7, 32, 33, 129])
def test_process_logits_uses_the_history_before_each_column(
    vocab_size: int,
) -> None:
    rng = np.random.default_rng(vocab_size)
    spec = EngineSpec(vocab_size=vocab_size, max_model_len=LENGTH)
    num_slots, num_rows, k = 5, 4, 3
    length = line_of(vocab_size).tokens + LENGTH
    for _ in range(20):
        lines = rng.integers(-9, 1 << 40, num_slots * length)
        slots = rng.permutation(num_slots)[:num_rows]
        drafts, known = rng.integers(0, k + 1, num_rows), rng.integers(2, LENGTH - k, num_rows)
        prompts = [int(rng.integers(1, count)) for count in known]
        texts = [rng.integers(0, min(vocab_size, 5), count + k).tolist() for count in known]
        stops = [frozenset(rng.integers(0, vocab_size, 2).tolist()) for _ in range(num_rows)]
        # Another op masks tokens that a grammar forbids.
        drawn = [params_of(int(rng.integers(1, 1 << 16)), spec) for _ in range(num_rows)]
        params = [each.model_copy(update={"grammar": ()}) for each in drawn]
        scheduled = drafts + 1
        start = np.concatenate(([0], np.cumsum(scheduled)[:-1]))
        computed, ids = known - 1, np.full(int(scheduled.sum()), -7)
        for row in range(num_rows):
            # The host does not know the last token of each text.
            request = request_of(params[row], texts[row][: known[row] - 1], prompts[row], stops[row])
            lines[slots[row] * length : (slots[row] + 1) * length] = params_line(request, spec)
            ids[start[row] : start[row] + scheduled[row]] = texts[row][known[row] - 1 : known[row] + drafts[row]]
        logits = rng.integers(0, 1 << 24, (num_rows, 1 + k, vocab_size)).astype(np.float32)
        before, rows = logits.copy(), np.flatnonzero(rng.integers(0, 4, num_rows))
        write_history(WriteHistory(rows, slots, computed, start, scheduled, drafts, ids, lines, length, vocab_size))
        process_logits(
            ProcessLogits(rows, slots, computed, scheduled, drafts, lines, logits.reshape(-1), length, k, vocab_size)
        )
        for row in range(num_rows):
            for column in range(1 + k):
                wanted = before[row, column].tolist()
                if row in rows and column <= drafts[row]:
                    tokens = texts[row][: known[row] + column]
                    wanted = processed_logits(
                        [int(x) for x in wanted], Rules(params[row], stops[row]), tokens, prompts[row]
                    )
                assert logits[row, column].tolist() == wanted
                assert hashes(logits[row, column], vocab_size)[0] == hash_of(wanted)


@pytest.mark.parametrize(
    ("params", "tokens", "wanted"),
    [
        # Penalties on output tokens ignore two tokens of the prompt.
        (SamplingParams(presence_penalty=0.5), [3, 3, 1], [16, 16 - 8, 16, 16]),
        (SamplingParams(frequency_penalty=0.25), [3, 3, 1, 1, 1], [16, 16 - 12, 16, 16]),
        (SamplingParams(frequency_penalty=-0.25), [3, 3, 1, 1], [16, 16 + 8, 16, 16]),
        (SamplingParams(repetition_penalty=4.0), [3, 3, 1], [16, 4, 16, 4]),
        (SamplingParams(repetition_penalty=0.5, presence_penalty=1.0), [3, 3, 1], [16, 32 - 16, 16, 32]),
        (SamplingParams(allowed_tokens=(2, 0)), [3, 3], [16, -inf, 16, -inf]),
        (SamplingParams(min_tokens=2), [3, 3, 1], [-inf, 16, 16, 16]),
        (SamplingParams(min_tokens=2), [3, 3, 1, 1], [16, 16, 16, 16]),
        (SamplingParams(bad_words=((2,),)), [3, 3], [16, 16, -inf, 16]),
        (SamplingParams(bad_words=((3, 1, 2),)), [3, 3, 1], [16, 16, -inf, 16]),
        (SamplingParams(bad_words=((3, 1, 2),)), [3, 1, 3], [16, 16, 16, 16]),
        # A bad word that would start before the text does not match.
        (SamplingParams(bad_words=((0, 3, 3, 2),)), [3, 3], [16, 16, 16, 16]),
    ],
)
def test_oracle_processes_logits_by_sampling_parameters(
    params: SamplingParams, tokens: list[int], wanted: list[float]
) -> None:
    found = processed_logits([1 << 20] * 4, Rules(params, frozenset({0})), tokens, 2)
    assert [logit / (1 << 16) for logit in found] == wanted
