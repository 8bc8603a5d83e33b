"""Faults in logits processing: wrong token history, skipped steps.

Faults in device ops exist only on the NumPy tier.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scenarios.spec import EngineSpec
from workers.engine.functions import EngineFunctions
from workers.engine.request import Request
from workers.faults.fault import Reached, fault, in_place_of, op_like
from workers.kernels.process_logits.definition import ProcessLogits, WriteHistory, line_of
from workers.kernels.process_logits.numpy import mask, penalise, rules_of


def _verified(given: WriteHistory | ProcessLogits, row: int) -> tuple[NDArray[Any], int, int]:
    """Return (parameter line, first verified position, number of drafts) of a batch row."""
    d = int(given.num_drafts[row])
    base = int(given.num_computed[row] + given.num_scheduled[row]) - 1 - d
    return given.lines.reshape(-1, given.line_length)[given.state_slot[row]], base, d


@fault(
    id="vllm-26467-placeholder-history",
    source="vllm PR #26467",
    symptom="penalties and bad words ignore output tokens sampled since the request joined",
    trigger="a request with penalties or bad words samples with the previous step in flight",
    plane="logits",
    requires=(("depth", 2),),
)
@in_place_of("write_history")
def _placeholders_stay(functions: EngineFunctions, reached: Reached, given: WriteHistory) -> None:
    # Tokens that are unknown when a row joins stay placeholders.
    if np.any(given.lines != _with_history(functions, given)):
        reached()


def _with_history(functions: EngineFunctions, given: WriteHistory) -> NDArray[Any]:
    lines: NDArray[Any] = given.lines.copy()
    functions.write_history(replace(given, lines=lines))
    return lines


@fault(
    id="vllm-52311-bad-words-shifted",
    source="vllm PR #52311",
    symptom="a bad word is returned, or an allowed token is banned",
    trigger="the tokens before the last one of a bad word are draft tokens",
    plane="logits",
)
@in_place_of("process_logits")
def _drafts_shifted(functions: EngineFunctions, reached: Reached, given: ProcessLogits) -> None:
    at = line_of(given.vocab_size)
    scores = given.logits.reshape(-1, 1 + given.num_speculative_tokens, given.vocab_size)
    for row in given.rows:
        line, base, d = _verified(given, row)
        rules = rules_of(line, at, given.vocab_size)
        for column in range(1 + d):
            history = line[at.tokens : at.tokens + base + column + 1].tolist()
            shifted = [*history[: base + 1], *history[base:-1]]
            penalise(scores[row, column], rules, history)
            right = scores[row, column].copy()
            mask(right, rules, history)
            mask(scores[row, column], rules, shifted)
            if not np.array_equal(right, scores[row, column]):
                reached()


@fault(
    id="mlxlm-1291-history-rewound",
    source="mlx-lm commit 91d0a054 (#1291)",
    symptom="penalties count removed tokens and miss others",
    trigger="a draft token of a request with logits processing is rejected",
    plane="logits",
)
def _rewound_too_far(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    ends: dict[int, int] = {}

    def body(given: WriteHistory) -> None:
        computed = given.num_computed.copy()
        for row in given.rows:
            slot = int(given.state_slot[row])
            _, base, d = _verified(given, row)
            # Some draft tokens of the previous step were rejected: one token too many is rolled back.
            if 0 < base < ends.get(slot, 0):
                reached()
                computed[row] -= 1
            ends[slot] = base + 1 + d
        functions.write_history(replace(given, num_computed=computed))

    return replace(functions, write_history=op_like(functions.write_history, body))


@fault(
    id="trtllm-17701-penalties-ignored",
    source="TensorRT-LLM PR #17701; vllm issue #18902",
    symptom="a request is sampled without its penalties, and without an error",
    trigger="a request with penalties samples",
    plane="logits",
)
@in_place_of("params_line")
def _penalties_ignored(functions: EngineFunctions, reached: Reached, request: Request, spec: EngineSpec) -> list[int]:
    line, at = functions.params_line(request, spec), line_of(spec.vocab_size)
    penalties = (at.presence, at.frequency, at.repetition)
    if any(line[place] for place in penalties):
        reached()
    for place in penalties:
        line[place] = 0
    return line


@fault(
    id="vllm-32642-stops-at-drafts",
    source="vllm PR #32642",
    symptom="a request stops before it has min_tokens output tokens",
    trigger="a draft token of a request with stop tokens is verified before min_tokens is reached",
    plane="logits",
)
@in_place_of("process_logits")
def _stops_at_drafts(functions: EngineFunctions, reached: Reached, given: ProcessLogits) -> None:
    at = line_of(given.vocab_size)
    scores = given.logits.reshape(-1, 1 + given.num_speculative_tokens, given.vocab_size)
    before = scores.copy()
    functions.process_logits(given)
    for row in given.rows:
        line, base, d = _verified(given, row)
        rules = rules_of(line, at, given.vocab_size)._replace(min_length=0)
        for column in range(d):
            history = line[at.tokens : at.tokens + base + column + 1].tolist()
            right = scores[row, column].copy()
            scores[row, column] = before[row, column]
            penalise(scores[row, column], rules, history)
            mask(scores[row, column], rules, history)
            if not np.array_equal(right, scores[row, column]):
                reached()
