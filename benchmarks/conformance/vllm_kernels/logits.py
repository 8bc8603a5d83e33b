"""Compare kernels that process logits: masks, bad words, penalties, grammars, logprobs.

Our logits are integers in units of 2^-20, and so are penalties; the second runner's parameters are translated.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from vllm.v1.worker.gpu import structured_outputs
from vllm.v1.worker.gpu.sample import bad_words, logit_bias, logprob, penalties

from benchmarks.conformance.vllm_kernels.comparison import WORD_BITS, Array, Comparison, Found, Ours
from tests.workers.kernels.cases import grammar, logprobs, process_logits
from workers.kernels.grammar.definition import ApplyMasks
from workers.kernels.logprobs.definition import LOGIT_SCALE, LOGPROBS_MAX, TokenLogprobs
from workers.kernels.process_logits.definition import (
    BAD_WORD_LENGTH,
    BAD_WORDS,
    PENALTY_SHIFT,
    LineLayout,
    ProcessLogits,
    line_of,
)
from workers.kernels.sentinels import NO_TOKEN, UNKNOWN_TOKEN

ROUNDED = "a penalised logit that float32 rounds, or an inexact sum of penalties"
IN_THE_PROMPT = "draft tokens inside the prompt"
MASKED = "a sampled token whose logit is -inf"
NAN = "a logit that is NaN"
# Integers up to this are exact in float32.
_EXACT = float(1 << 24)
# Tolerance of float32 sums of exponentials, the same as for our own twins.
_LOGPROBS_TOLERANCE = 2e-5


class _Requests:
    """Inputs of the v2 model runner's kernels for the rows of a case, in padded tables."""

    def __init__(self, case: ProcessLogits) -> None:
        self.case, self.at = case, line_of(case.vocab_size)
        lines = case.lines.reshape(-1, case.line_length)
        self.lines = [lines[case.state_slot[row]] for row in case.rows]
        self.first = [
            int(case.num_computed[row] + case.num_scheduled[row] - 1 - case.num_drafts[row]) for row in case.rows
        ]
        self.widths = [1 + int(case.num_drafts[row]) for row in case.rows]

    def history(self, index: int) -> list[int]:
        """Return the request's tokens up to and including the first token to verify."""
        tokens = self.at.tokens
        return [int(token) for token in self.lines[index][tokens : tokens + self.first[index] + 1]]

    def column_tokens(self, index: int) -> list[int]:
        """Return the first token to verify and the draft tokens."""
        begin = self.at.tokens + self.first[index]
        return [int(token) for token in self.lines[index][begin : begin + self.widths[index]]]

    def masked(self, index: int, begin: int, end: int) -> list[int]:
        """Return the tokens with a set bit in a mask of a line."""
        return tokens_of(self.lines[index][begin:end], self.case.vocab_size)


def tokens_of(words: Array, vocab_size: int) -> list[int]:
    """Return the tokens with a set bit in words of WORD_BITS bits."""
    return [token for token in range(vocab_size) if (int(words[token // WORD_BITS]) >> (token % WORD_BITS)) & 1]


def _padded(rows: list[list[int]]) -> torch.Tensor:
    width = max(1, *map(len, rows))
    return torch.tensor([row + [0] * (width - len(row)) for row in rows], dtype=torch.int32)


def processed_v2(ours: Ours) -> Iterator[Found]:
    """Compare the v2 model runner's masks, penalties and bad words, in its sampler's order."""
    for case in process_logits.cases():
        if isinstance(case, ProcessLogits):
            # vLLM applies penalties after masks, our op before them; a masked logit is -inf either way.
            known = _known(case)
            theirs, found = (
                _processed_v2(known),
                ours(known)["logits"].reshape(len(case.num_drafts), -1, case.vocab_size),
            )
            start, requests = 0, _Requests(known)
            for index, row in enumerate(case.rows):
                for column in range(requests.widths[index]):
                    given = known.logits.reshape(found.shape)[row, column]
                    yield from _found_line(requests, index, column, given, found[row, column], theirs[start + column])
                start += requests.widths[index]


def _known(case: ProcessLogits) -> ProcessLogits:
    """Return the case with unknown history tokens replaced by token 0, as in vLLM's tables."""
    lines = case.lines.reshape(-1, case.line_length).copy()
    tokens = lines[:, line_of(case.vocab_size).tokens :]
    tokens[tokens == UNKNOWN_TOKEN] = 0
    return replace(case, lines=lines.ravel())


def _found_line(
    requests: _Requests, index: int, column: int, given: Array, own: Array, their: Array
) -> Iterator[Found]:
    """Yield the logits of one column of a row; logits subject to rounding are separate."""
    line, at = requests.lines[index], requests.at
    count = requests.first[index] + 1 + column
    largest = np.abs(given).astype(np.float64) * 2.0 ** abs(int(line[at.repetition]))
    largest += (abs(int(line[at.presence])) + abs(int(line[at.frequency])) * count) * 2.0**PENALTY_SHIFT
    is_exact = (
        (given == np.trunc(given)) & (given * 2.0 ** -abs(int(line[at.repetition])) % 1 == 0) & (largest < _EXACT)
    )
    is_exact |= np.isinf(given)
    is_nan = np.isnan(given)
    if column and line[at.num_prompt] > requests.first[index] + 1:
        yield Found(IN_THE_PROMPT, own[is_exact], their[is_exact])
        return
    yield Found("", own[is_exact], their[is_exact])
    yield Found(NAN, own[is_nan], their[is_nan])
    is_other = ~is_exact & ~is_nan
    if is_other.any():
        yield Found(ROUNDED, own[is_other], their[is_other], tolerance=float(np.nanmax(largest[is_other])) * 2.0**-22)


def _processed_v2(case: ProcessLogits) -> Array:
    """Return the logits of all rows after the v2 model runner's sampler changed them."""
    asked = _Requests(case)
    at, size, widths = asked.at, case.vocab_size, asked.widths
    logits = case.logits.reshape(-1, 1 + case.num_speculative_tokens, size)
    changed = torch.tensor(np.concatenate([logits[row, :width] for row, width in zip(case.rows, widths, strict=True)]))
    rows = range(len(widths))
    numbers = torch.tensor(np.repeat(rows, widths), dtype=torch.int32)
    columns = torch.tensor(np.concatenate([np.arange(width) for width in widths]), dtype=torch.int32)
    ids = torch.tensor([token for index in rows for token in asked.column_tokens(index)], dtype=torch.int32)
    allowed = [asked.masked(index, at.allowed, at.stop) for index in rows]
    stops = [asked.masked(index, at.stop, at.bad_words) for index in rows]
    zeros = torch.zeros(len(widths), 1, dtype=torch.int32)
    logit_bias.apply_logit_bias(
        changed,
        numbers,
        torch.tensor(asked.first)[numbers.long()] + columns,
        torch.tensor([len(tokens) for tokens in allowed], dtype=torch.int32),
        _padded(allowed),
        zeros[:, 0],
        zeros,
        zeros.float(),
        torch.tensor([int(line[at.min_length]) for line in asked.lines], dtype=torch.int32),
        torch.tensor([len(tokens) for tokens in stops], dtype=torch.int32),
        zeros[:, 0],
        _padded(stops),
    )
    _penalise(changed, asked, numbers, ids, columns)
    _ban(changed, asked, numbers, ids, columns)
    return changed.numpy()


def _penalise(
    changed: torch.Tensor, asked: _Requests, numbers: torch.Tensor, ids: torch.Tensor, columns: torch.Tensor
) -> None:
    at, size, rows = asked.at, asked.case.vocab_size, range(len(asked.lines))
    histories = [asked.history(index) for index in rows]
    prompts = [
        min(int(line[at.num_prompt]), len(history)) for line, history in zip(asked.lines, histories, strict=True)
    ]
    masks = torch.zeros(len(histories), -(-size // WORD_BITS), dtype=torch.int32)
    counts = torch.zeros(len(histories), size, dtype=torch.int32)
    penalties.bincount(
        torch.arange(len(histories), dtype=torch.int32),
        _padded(histories),
        torch.tensor(prompts, dtype=torch.int32),
        torch.tensor([len(history) for history in histories], dtype=torch.int32),
        masks,
        counts,
        max(map(len, histories)),
    )

    def field(offset: int, scale: float) -> torch.Tensor:
        return torch.tensor([int(line[offset]) * scale for line in asked.lines], dtype=torch.float32)

    penalties.apply_penalties(
        changed,
        numbers,
        ids,
        columns,
        2.0 ** field(at.repetition, 1.0),
        field(at.frequency, 2.0**PENALTY_SHIFT),
        field(at.presence, 2.0**PENALTY_SHIFT),
        masks,
        counts,
    )


def _ban(
    changed: torch.Tensor, asked: _Requests, numbers: torch.Tensor, ids: torch.Tensor, columns: torch.Tensor
) -> None:
    rows = range(len(asked.lines))
    histories = [asked.history(index) for index in rows]
    words = [_bad_words(asked.lines[index], asked.at) for index in rows]
    offsets = [[0, *np.cumsum([len(word) for word in each]).tolist()] for each in words]
    num_words = torch.tensor([len(each) for each in words], dtype=torch.int32)
    bad_words.apply_bad_words(
        changed,
        numbers,
        _padded([[token for word in each for token in word] for each in words]),
        _padded(offsets),
        num_words,
        _padded(histories),
        # vLLM searches the output alone for the beginnings of bad words, our op all tokens.
        torch.zeros(len(histories), dtype=torch.int32),
        torch.tensor([len(history) for history in histories], dtype=torch.int32),
        ids,
        columns,
        int(num_words.max()),
    )


def _bad_words(line: Array, at: LineLayout) -> list[list[int]]:
    words = line[at.bad_words : at.tokens].reshape(BAD_WORDS, BAD_WORD_LENGTH)
    return [word for row in words if (word := [int(token) for token in row if token != UNKNOWN_TOKEN])]


def masked_v2(ours: Ours) -> Iterator[Found]:
    """Compare _apply_grammar_bitmask_kernel; each mask is for a request with one column."""
    for case in grammar.cases():
        if isinstance(case, ApplyMasks):
            size, theirs = case.vocab_size, torch.tensor(case.logits.reshape(-1, case.vocab_size))
            masks = torch.tensor(case.masks.astype(np.uint32).view(np.int32).reshape(len(case.columns), -1))
            structured_outputs._apply_grammar_bitmask_kernel[(len(masks), 1)](
                theirs,
                theirs.stride(0),
                torch.tensor(case.columns, dtype=torch.int32),
                torch.arange(len(theirs) + 1, dtype=torch.int32),
                masks,
                masks.stride(0),
                size,
                MASK_STRIDE=1,
                BLOCK_SIZE=8192,
            )
            yield Found("", ours(case)["logits"].reshape(-1, size), theirs.numpy())


def logprobs_v2(ours: Ours) -> Iterator[Found]:
    """Compare _topk_log_softmax_kernel and _ranks_kernel on sampled and most likely tokens."""
    for case in logprobs.cases():
        if isinstance(case, TokenLogprobs):
            found, size = ours(case), case.vocab_size
            logits = case.logits.reshape(-1, size) * LOGIT_SCALE
            ids, values = (found[name].reshape(-1, LOGPROBS_MAX) for name in ("ids", "logprobs"))
            width = 1 + case.num_speculative_tokens
            places = [row * width + column for row in case.rows.tolist() for column in range(width)]
            for place in places:
                if case.sampled[place] != NO_TOKEN:
                    yield from _found_logprobs(logits[place], ids[place], values[place], int(case.sampled[place]))


def _found_logprobs(logits: Array, ids: Array, values: Array, sampled: int) -> Iterator[Found]:
    wanted = ids != NO_TOKEN
    line = torch.tensor(logits[None])
    scores: Any = logprob.compute_topk_scores(line, int(wanted.sum()) - 1, torch.tensor([sampled]))
    # Among equal logits any token may be in the top k: the values are compared, and the rank by its definition.
    yield Found("", values[wanted], scores.logprobs[0].numpy(), tolerance=_LOGPROBS_TOLERANCE)
    rank = int((logits >= logits[sampled]).sum())
    yield Found(MASKED if logits[sampled] == -np.inf else "", rank, int(scores.selected_token_ranks[0]))


_FOLDER = "worker/gpu/sample"
COMPARISONS = (
    Comparison(
        "_bias_kernel, _bincount_kernel, _penalties_kernel, _bad_words_kernel",
        f"{_FOLDER}/logit_bias.py, penalties.py, bad_words.py",
        "process_logits",
        processed_v2,
    ),
    Comparison("_apply_grammar_bitmask_kernel", "worker/gpu/structured_outputs.py", "apply_masks", masked_v2),
    Comparison("_topk_log_softmax_kernel, _ranks_kernel", f"{_FOLDER}/logprob.py", "token_logprobs", logprobs_v2),
)
