"""Apply each request's sampling parameters to its logits: masks, bad words, penalties."""

import triton.language as tl

from workers.kernels.launch.triton import UNKNOWN_TOKEN, kernel, launch
from workers.kernels.process_logits import definition as shared
from workers.kernels.process_logits.definition import ProcessLogits, WriteHistory, line_of

BITS = tl.constexpr(shared.BITS)
BAD_WORDS = tl.constexpr(shared.BAD_WORDS)
BAD_WORD_LENGTH = tl.constexpr(shared.BAD_WORD_LENGTH)
PENALTY_SHIFT = tl.constexpr(shared.PENALTY_SHIFT)
BLOCK_VERIFIED = 16
BLOCK_VOCABULARY = 128
BLOCK_HISTORY = 64


def write_history(a: WriteHistory) -> None:
    inputs = (a.rows, a.state_slot, a.num_computed, a.query_start, a.num_scheduled, a.num_drafts, a.input_ids)
    launch(_history_kernel, (a.rows.numel(),))(
        *inputs, a.lines,
        a.line_length, line_of(a.vocab_size).tokens,
        BLOCK_VERIFIED,
    )  # fmt: skip


def process_logits(a: ProcessLogits) -> None:
    inputs = (a.rows, a.state_slot, a.num_computed, a.num_scheduled, a.num_drafts, a.lines)
    at = line_of(a.vocab_size)
    grid = (a.rows.numel(), 1 + a.num_speculative_tokens, -(-a.vocab_size // BLOCK_VOCABULARY))
    launch(_logits_kernel, grid)(
        *inputs, a.logits,
        1 + a.num_speculative_tokens, a.vocab_size, a.line_length, at.stop, at.bad_words, at.tokens,
        at.num_prompt, at.min_length, at.presence, at.frequency, at.repetition, at.allowed,
        BLOCK_VOCABULARY, BLOCK_HISTORY,
    )  # fmt: skip


@kernel()
def _history_kernel(
    p_rows, p_state_slot, p_num_computed, p_query_start, p_num_scheduled, p_num_drafts, p_input_ids, p_lines,
    line_length, at_tokens,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i_row = tl.load(p_rows + tl.program_id(0))
    width = 1 + tl.load(p_num_drafts + i_row)
    skipped = tl.load(p_num_scheduled + i_row) - width
    p_history = p_lines + tl.load(p_state_slot + i_row) * line_length + at_tokens
    p_history += tl.load(p_num_computed + i_row) + skipped
    p_verified = p_input_ids + tl.load(p_query_start + i_row) + skipped
    for start in range(0, width, BLOCK):
        o_token = start + tl.arange(0, BLOCK)
        b_token = tl.load(p_verified + o_token, mask=o_token < width, other=UNKNOWN_TOKEN)
        tl.store(p_history + o_token, b_token, mask=o_token < width)


@kernel()
def _logits_kernel(
    p_rows, p_state_slot, p_num_computed, p_num_scheduled, p_num_drafts, p_lines, p_logits,
    width, vocab_size, line_length, at_stop, at_bad_words, at_tokens,
    NUM_PROMPT: tl.constexpr, MIN_LENGTH: tl.constexpr, PRESENCE: tl.constexpr, FREQUENCY: tl.constexpr,
    REPETITION: tl.constexpr, ALLOWED: tl.constexpr,
    BLOCK_VOCABULARY: tl.constexpr, BLOCK_HISTORY: tl.constexpr,
):  # fmt: skip
    i_row = tl.load(p_rows + tl.program_id(0))
    i_column = tl.program_id(1)
    num_drafts = tl.load(p_num_drafts + i_row)
    if i_column > num_drafts:
        return
    p_line = p_lines + tl.load(p_state_slot + i_row) * line_length
    length = tl.load(p_num_computed + i_row) + tl.load(p_num_scheduled + i_row) - num_drafts + i_column
    o_token = tl.program_id(2) * BLOCK_VOCABULARY + tl.arange(0, BLOCK_VOCABULARY)
    is_token = o_token < vocab_size
    p_scores = p_logits + (i_row * width + i_column) * vocab_size + o_token
    b_score = tl.load(p_scores, mask=is_token, other=0.0)

    num_prompt = tl.load(p_line + NUM_PROMPT)
    b_seen = tl.zeros([BLOCK_VOCABULARY], dtype=tl.int64)
    b_count = tl.zeros([BLOCK_VOCABULARY], dtype=tl.int64)
    for start in range(0, length, BLOCK_HISTORY):
        o_history = start + tl.arange(0, BLOCK_HISTORY)
        b_history = tl.load(p_line + at_tokens + o_history, mask=o_history < length, other=UNKNOWN_TOKEN)
        b_is = (b_history[None, :] == o_token[:, None]).to(tl.int64)
        b_seen += tl.sum(b_is, axis=1)
        b_count += tl.sum(tl.where((o_history >= num_prompt)[None, :], b_is, 0), axis=1)
    repetition = tl.load(p_line + REPETITION)
    b_exponent = tl.where(b_seen > 0, tl.where(b_score > 0, -repetition, repetition), 0)
    b_score *= ((b_exponent + 127).to(tl.int32) << 23).to(tl.float32, bitcast=True)
    b_penalty = tl.load(p_line + FREQUENCY) * b_count
    b_penalty += tl.where(b_count > 0, tl.load(p_line + PRESENCE), 0)
    b_score -= (b_penalty << PENALTY_SHIFT).to(tl.float32)

    b_allowed = tl.load(p_line + ALLOWED + o_token // BITS, mask=is_token, other=0)
    b_stop = tl.load(p_line + at_stop + o_token // BITS, mask=is_token, other=0)
    is_masked = ((b_allowed >> (o_token % BITS)) & 1) == 0
    is_masked = is_masked | ((((b_stop >> (o_token % BITS)) & 1) == 1) & (length < tl.load(p_line + MIN_LENGTH)))
    # A bad word is at the end of its field; UNKNOWN_TOKEN before it matches any token.
    o_word, o_place = tl.arange(0, BAD_WORDS) * BAD_WORD_LENGTH, tl.arange(0, BAD_WORD_LENGTH)
    b_word = tl.load(p_line + at_bad_words + o_word[:, None] + o_place[None, :])
    o_before = length - (BAD_WORD_LENGTH - 1) + o_place
    is_before = (o_before >= 0) & (o_place < BAD_WORD_LENGTH - 1)
    b_before = tl.load(p_line + at_tokens + o_before, mask=is_before, other=UNKNOWN_TOKEN)
    is_match = (b_word == UNKNOWN_TOKEN) | (b_word == b_before[None, :]) | (o_place == BAD_WORD_LENGTH - 1)[None, :]
    b_matches = tl.sum(is_match.to(tl.int32), axis=1)
    b_last = tl.load(p_line + at_bad_words + o_word + BAD_WORD_LENGTH - 1)
    b_bad = tl.where(b_matches == BAD_WORD_LENGTH, b_last, UNKNOWN_TOKEN)
    is_bad = tl.max((b_bad[:, None] == o_token[None, :]).to(tl.int32), axis=0) > 0
    tl.store(p_scores, tl.where(is_masked | is_bad, float("-inf"), b_score), mask=is_token)
