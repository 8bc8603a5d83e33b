"""Launches of vLLM's sampling kernels: processing logits, sampling, verification."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.conformance.vllm_kernels.batches import POISON, Array, Batch
from benchmarks.conformance.vllm_kernels.launches import GPU, Launch, Wide, num_blocks_of, power_of_2

_SAMPLE = f"{GPU}.sample"
_DECODE = f"{GPU}.spec_decode"
_IDS_MAX = 8


def _sampled(count: int, blocks: int, dtype: Any) -> Array:
    return np.full((count, blocks), POISON, dtype=dtype)


def of_logits(b: Batch) -> Iterator[Launch]:
    """Yield launches of kernels that change rows of logits."""
    sizes, count = b.sizes, b.num_logits
    common = {
        "logits_ptr": Wide(b.lines(count)),
        "expanded_idx_mapping_ptr": b.expanded(),
        "vocab_size": sizes.vocab,
        "BLOCK_SIZE": 8192,
    }
    blocks = num_blocks_of(sizes.vocab, 8192)
    yield Launch(
        f"{_SAMPLE}.gumbel._temperature_kernel", (count, blocks), {**common, "temperature_ptr": b.temperatures()}
    )
    least = b.random.choice(np.array([0, 0.05, 0.5, 1], dtype=np.float32), sizes.requests)
    yield Launch(f"{_SAMPLE}.min_p._min_p_kernel", (count,), {**common, "min_p_ptr": least, "BLOCK_SIZE": 1024})
    choices = [np.array([neutral, 0.5, 1.3, -0.7], dtype=np.float32) for neutral in (1, 0, 0)]
    choices[0] = np.abs(choices[0])
    words = num_blocks_of(sizes.vocab, 32)
    yield Launch(
        f"{_SAMPLE}.penalties._penalties_kernel",
        (count, blocks),
        {
            **common,
            "token_ids_ptr": b.drafts(count + 1),
            "expanded_local_pos_ptr": b.local(),
            "repetition_penalty_ptr": b.random.choice(choices[0], sizes.requests),
            "frequency_penalty_ptr": b.random.choice(choices[1], sizes.requests),
            "presence_penalty_ptr": b.random.choice(choices[2], sizes.requests),
            "prompt_bin_mask_ptr": b.random.integers(-(1 << 31), 1 << 31, (sizes.requests, words)).astype(np.int32),
            "output_bin_counts_ptr": b.random.integers(0, 3, (sizes.requests, sizes.vocab)).astype(np.int32),
        },
    )
    prefill = np.maximum(b.prompt, b.prefill).clip(max=sizes.length)
    yield Launch(
        f"{_SAMPLE}.penalties._bincount_kernel",
        (sizes.rows, num_blocks_of(sizes.length, 1024)),
        {
            "expanded_idx_mapping_ptr": b.states,
            "all_token_ids_ptr": b.tokens(sizes.requests, sizes.length),
            "prompt_len_ptr": b.of_requests(b.prompt),
            "prefill_len_ptr": b.of_requests(prefill),
            "prompt_bin_mask_ptr": np.zeros((sizes.requests, words), dtype=np.int32),
            "output_bin_counts_ptr": np.zeros((sizes.requests, sizes.vocab), dtype=np.int32),
            "BLOCK_SIZE": 1024,
        },
    )
    yield from _masked(b, common)


def _masked(b: Batch, common: dict[str, Any]) -> Iterator[Launch]:
    """Yield launches of kernels that mask tokens."""
    sizes, count = b.sizes, b.num_logits

    def counts() -> Array:
        return np.where(b.random.integers(0, 2, sizes.requests), b.random.integers(0, _IDS_MAX + 1, sizes.requests), 0)

    ids = {f"{name}_token_ids_ptr": b.tokens(sizes.requests, _IDS_MAX) for name in ("allowed", "bias", "stop")}
    for restores in (False, True):
        yield Launch(
            f"{_SAMPLE}.logit_bias._bias_kernel",
            (count,),
            {
                **common,
                **ids,
                "num_allowed_token_ids_ptr": counts().astype(np.int32),
                "num_logit_bias_ptr": counts().astype(np.int32),
                "bias_ptr": b.lines(sizes.requests, _IDS_MAX),
                "pos_ptr": b.random.integers(0, 9, count),
                "min_lens_ptr": b.random.integers(0, 9, sizes.requests).astype(np.int32),
                "num_stop_token_ids_ptr": counts().astype(np.int32),
                "restore_when_all_masked_ptr": b.random.integers(0, 2, sizes.requests).astype(np.int32),
                "BLOCK_SIZE": _IDS_MAX,
                "LOGITS_BLOCK_SIZE": 8192,
                "CHECK_ALL_MASKED_ROWS": restores,
            },
        )
    few = _few(b)
    yield Launch(
        f"{_SAMPLE}.bad_words._bad_words_kernel",
        (count, 3),
        {
            **{name: common[name] for name in ("logits_ptr", "expanded_idx_mapping_ptr")},
            **few,
            "bad_word_offsets_ptr": np.tile(np.array([0, 1, 3, 6], dtype=np.int32), (sizes.requests, 1)),
            "num_bad_words_ptr": b.random.integers(0, 4, sizes.requests).astype(np.int32),
            "prompt_len_ptr": b.of_requests(b.prompt),
            "total_len_ptr": b.of_requests(b.total),
            "expanded_local_pos_ptr": b.local(),
        },
    )
    stride = sizes.drafts + 1
    rows = b.random.integers(0, max(1, sizes.rows), sizes.rows)
    mapping = rows * stride + b.random.integers(0, stride, sizes.rows)
    words = b.random.integers(-(1 << 31), 1 << 31, (sizes.rows, num_blocks_of(sizes.vocab, 32) - (sizes.vocab > 64)))
    yield Launch(
        f"{GPU}.structured_outputs._apply_grammar_bitmask_kernel",
        (sizes.rows, num_blocks_of(sizes.vocab, 8192)),
        {
            **common,
            "logits_indices_ptr": mapping.astype(np.int32),
            "cu_num_logits_ptr": b.cu_logits.astype(np.int32),
            "bitmask_ptr": words.astype(np.int32),
            "MASK_STRIDE": stride,
        },
    )


def _few(b: Batch) -> dict[str, Any]:
    """Return tokens, bad words and draft tokens from so small a vocabulary that words match."""
    sizes, most = b.sizes, min(2, b.sizes.vocab)
    shapes = {"bad_word_token_ids_ptr": (sizes.requests, 6), "all_token_ids_ptr": (sizes.requests, sizes.length)}
    shapes["input_ids_ptr"] = (b.num_logits + 1,)  # type: ignore[assignment]
    return {name: b.random.integers(0, most, shape).astype(np.int32) for name, shape in shapes.items()}


def of_logprobs(b: Batch) -> Iterator[Launch]:
    """Yield launches of kernels that compute logprobs."""
    sizes, count, told = b.sizes, b.num_logits, 1 + b.seed % 5
    lines = Wide(b.lines(count))
    yield Launch(
        f"{_SAMPLE}.logprob._topk_log_softmax_kernel",
        (count,),
        {
            "output_ptr": np.full((count, told), np.nan, dtype=np.float32),
            "logits_ptr": lines,
            "topk_ids_ptr": b.tokens(count, told, dtype=np.int64),
            "topk": told,
            "vocab_size": sizes.vocab,
            "BLOCK_SIZE": 1024,
            "TOPK_BLOCK_SIZE": 2,
        },
    )
    yield Launch(
        f"{_SAMPLE}.logprob._ranks_kernel",
        (count,),
        {
            "output_ptr": np.full(count, POISON, dtype=np.int64),
            "logits_ptr": lines,
            "token_ids_ptr": b.tokens(count, dtype=np.int64),
            "vocab_size": sizes.vocab,
            "BLOCK_SIZE": 8192,
        },
    )
    yield Launch(
        f"{_SAMPLE}.logprob._fill_logprob_token_ids_kernel",
        (count,),
        {
            "out_token_ids_ptr": np.full((count, 6), POISON, dtype=np.int64),
            "out_valid_mask_ptr": np.zeros((count, 6), dtype=bool),
            "sampled_token_ids_ptr": b.tokens(count, dtype=np.int64),
            "topk_indices_ptr": b.tokens(count, 3),
            "expanded_idx_mapping_ptr": b.expanded(),
            "num_per_req_token_ids_ptr": b.random.integers(0, 6, sizes.requests).astype(np.int32),
            "per_req_token_ids_ptr": b.tokens(sizes.requests, 8),
            "NUM_TOPK": b.seed % 4,
            "PADDED_COLS": 8,
        },
    )


def of_draws(b: Batch) -> Iterator[Launch]:
    """Yield launches of kernels that sample tokens and cache draft logits."""
    sizes, count, blocks = b.sizes, b.num_logits, num_blocks_of(b.sizes.vocab, 1024)
    for in_float64, drafting in ((False, False), (True, False), (False, True)):
        cache = b.lines(sizes.requests * (sizes.drafts + 1)).reshape(sizes.requests, sizes.drafts + 1, -1)
        kept = Wide(b.lines(count))
        yield Launch(
            f"{_SAMPLE}.gumbel._gumbel_sample_kernel",
            (count, blocks),
            {
                "local_argmax_ptr": _sampled(count, blocks, np.int64),
                "local_max_ptr": _sampled(count, blocks, np.float64 if in_float64 else np.float32),
                "logits_cache_ptr": cache if drafting else None,
                "logits_cache_stride_0": cache[0].size if drafting else 0,
                "logits_cache_stride_1": sizes.vocab if drafting else 0,
                "logits_cache_col_ptr": b.random.integers(0, sizes.drafts + 1, count) if drafting else None,
                "logits_cache_source_ptr": kept if drafting else None,
                "logits_ptr": Wide(b.lines(count)),
                "expanded_idx_mapping_ptr": np.where(b.random.integers(0, 5, count) == 0, -1, b.expanded()),
                "seeds_ptr": b.seeds(),
                "pos_ptr": b.positions(count),
                "temp_ptr": b.temperatures(),
                "vocab_size": sizes.vocab,
                "BLOCK_SIZE": 1024,
                "IS_DRAFTING": drafting,
                "APPLY_TEMPERATURE": drafting,
                "USE_FP64": in_float64,
                "PER_TOKEN_COL": drafting,
            },
        )


def of_drafts(b: Batch) -> Iterator[Launch]:
    """Yield launches of kernels that verify draft tokens and sample after the accepted ones."""
    sizes, count, rows = b.sizes, b.num_logits, b.sizes.rows
    of_drafter = b.lines(sizes.requests * (sizes.drafts + 1)).reshape(sizes.requests, sizes.drafts + 1, -1)
    logits, proposed = np.nan_to_num(b.lines(count), nan=1.0), b.drafts(count + 1)
    # Draft tokens are often the target's best token, so that several are accepted.
    best = np.append(np.argmax(logits, axis=1), 0) if count else proposed
    drafts = np.where(b.random.integers(0, 3, count + 1) > 0, np.roll(best, 1), proposed).astype(np.int32)
    common = {
        "target_logits_ptr": Wide(logits),
        "expanded_idx_mapping_ptr": b.expanded(),
        "idx_mapping_ptr": b.states,
        "cu_num_logits_ptr": b.cu_logits.astype(np.int32),
        "temp_ptr": b.temperatures(),
        "seed_ptr": b.seeds(),
        "pos_ptr": b.positions(count),
        "draft_sampled_ptr": drafts,
        "sampled_ptr": np.full((rows, sizes.drafts + 1), POISON, dtype=np.int64),
        "vocab_size": sizes.vocab,
        "draft_logits_stride_0": of_drafter[0].size,
        "draft_logits_stride_1": sizes.vocab,
    }
    for is_drawn in (False, True):
        given = {**common, "draft_logits_ptr": of_drafter if is_drawn else None, "HAS_DRAFT_LOGITS": is_drawn}
        yield from _verified(b, given)
    kept = np.array([b.random.integers(0, each) for each in b.logits], dtype=np.int32)
    blocks = num_blocks_of(sizes.vocab, 1024)
    for in_float64, is_drawn in ((False, False), (True, False), (False, True)):
        found = {
            "resampled_local_argmax_ptr": b.tokens(rows, blocks, dtype=np.int64),
            "resampled_local_max_ptr": b.lines(rows, blocks).astype(np.float64 if in_float64 else np.float32),
        }
        given = {**common, **found, "draft_logits_ptr": of_drafter if is_drawn else None}
        nothing = dict.fromkeys(("cumulative_log_p_ptr", "contexts_ptr", "watermarking_ptr"))
        off = dict.fromkeys(("USE_BLOCK_VERIFICATION", "WATERMARK", "DEDUPLICATE_CONTEXTS"), False)
        yield Launch(
            f"{_DECODE}.rejection_sampler_utils._resample_kernel",
            (rows, blocks),
            {
                **given,
                **nothing,
                **off,
                "HAS_DRAFT_LOGITS": is_drawn,
                "watermarking_skip_mask_ptr": None,
                "target_rejected_logsumexp_ptr": b.random.normal(3, 2, rows).astype(np.float32),
                "draft_rejected_logsumexp_ptr": b.random.normal(3, 2, rows).astype(np.float32),
                "rejected_step_ptr": kept,
                "watermark_key_0": 0,
                "watermark_key_1": 0,
                "BLOCK_SIZE": 1024,
                "USE_FP64": in_float64,
                "CONTEXT_WIDTH": 1,
            },
        )
        padding = {"resample_num_blocks": blocks, "PADDED_RESAMPLE_NUM_BLOCKS": power_of_2(blocks)}
        name = f"{_DECODE}.rejection_sampler_utils._insert_resampled_kernel"
        yield Launch(name, (rows,), {**given, **padding, "num_sampled_ptr": kept})
    yield from _gathered(b, kept)


def _verified(b: Batch, given: dict[str, Any]) -> Iterator[Launch]:
    sizes, count, rows = b.sizes, b.num_logits, b.sizes.rows
    width = 8192 if sizes.vocab > 64 else 16
    blocks = num_blocks_of(sizes.vocab, width)
    lines = np.pad(
        given["target_logits_ptr"].array, ((0, 0), (0, blocks * width - sizes.vocab)), constant_values=-np.inf
    )
    parts = lines.reshape(count, blocks, width)
    maxima = parts.max(2).astype(np.float32) if count else np.zeros((0, blocks), np.float32)
    with np.errstate(all="ignore"):
        masses = np.exp(parts - maxima[..., None]).sum(2).astype(np.float32)
    names = ("target_local_max_ptr", "target_local_sumexp_ptr", "draft_local_max_ptr", "draft_local_sumexp_ptr")
    outs = {name: np.full((count, blocks), np.nan, dtype=np.float32) for name in names}
    yield Launch(
        f"{_DECODE}.rejection_sampler_utils._compute_local_logits_stats_kernel",
        (count, blocks),
        {
            **given,
            **outs,
            "target_local_argmax_ptr": _sampled(count, blocks, np.int64),
            "expanded_local_pos_ptr": b.local(),
            "num_speculative_steps": sizes.drafts,
            "num_logits": count,
            "BLOCK_SIZE": width,
        },
    )
    argmax = (parts.argmax(2) + width * np.arange(blocks)) if count else np.zeros((0, blocks), int)
    yield Launch(
        f"{_DECODE}.rejection_sampler_utils._rejection_kernel",
        (rows,),
        {
            **given,
            "rejected_steps_ptr": np.full(rows, POISON, dtype=np.int32),
            "target_rejected_logsumexp_ptr": np.full(rows, np.nan, dtype=np.float32),
            "draft_rejected_logsumexp_ptr": np.full(rows, np.nan, dtype=np.float32),
            "target_local_argmax_ptr": argmax,
            **dict.fromkeys(names[::2], maxima),
            **dict.fromkeys(names[1::2], masses),
            "synthetic_conditional_rates_ptr": None,
            "cumulative_log_p_ptr": None,
            "local_residual_mass_ptr": None,
            "fly_entropy_ptr": None,
            "fly_entropy_threshold": 0.0,
            "FLY_WINDOW_SIZE": 0,
            "vocab_num_blocks": blocks,
            "PADDED_VOCAB_NUM_BLOCKS": power_of_2(blocks),
            "SYNTHETIC_MODE": False,
            "USE_BLOCK_VERIFICATION": False,
        },
    )


def _gathered(b: Batch, kept: Array) -> Iterator[Launch]:
    sizes, count = b.sizes, b.num_logits
    yield Launch(
        f"{_DECODE}.rejection_sampler._flatten_sampled_kernel",
        (sizes.rows,),
        {
            "flat_sampled_ptr": np.full(count, POISON, dtype=np.int64),
            "sampled_ptr": b.tokens(sizes.rows, sizes.drafts + 1, dtype=np.int64),
            "num_sampled_ptr": kept + 1,
            "cu_num_logits_ptr": b.cu_logits.astype(np.int32),
        },
    )
    ends = np.repeat(b.starts[1:] - b.logits, b.logits) + b.local()
    yield Launch(
        f"{_DECODE}.rejection_sampler._gather_draft_sampled_kernel",
        (num_blocks_of(count, 1024),),
        {
            "draft_sampled_ptr": np.full(count, POISON, dtype=np.int32),
            "pos_ptr": np.full(count, POISON, dtype=np.int64),
            "input_ids_ptr": b.tokens(b.num_tokens + 1),
            "positions_ptr": b.random.integers(0, sizes.length, b.num_tokens + 1),
            "logits_indices_ptr": ends.astype(np.int64),
            "expanded_idx_mapping_ptr": b.expanded(),
            "expanded_local_pos_ptr": b.local(),
            "prefill_len_ptr": b.of_requests(b.prefill),
            "num_logits": count,
            "BLOCK_SIZE": 1024,
        },
    )


SAMPLING: tuple[Callable[[Batch], Iterator[Launch]], ...] = (of_logits, of_logprobs, of_draws, of_drafts)
