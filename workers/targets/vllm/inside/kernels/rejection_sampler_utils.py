"""NumPy definitions of the rejection-sampling kernels in `...rejection_sampler_utils`.

Not defined, hence interpreted: block verification, synthetic acceptance rates, and watermarks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given, Memory
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest, padded, total, uniform
from workers.targets.vllm.inside.kernels.gumbel import noised

MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"
_ZERO = np.float32(0)


def compute_local_logits_stats(programs: tuple[int, ...], given: Given) -> None:
    """Write the best token, or maximum and sum of exponentials, of each logits block.

    Bonus rows are skipped.
    """
    num_lines, num_blocks = programs[:2]
    for line in range(num_lines):
        step = given.expanded_local_pos_ptr[line]
        if _is_bonus(line, step, given):
            continue
        state = given.expanded_idx_mapping_ptr[line]
        temperature = np.float32(given.temp_ptr[state])
        for block in range(num_blocks):
            first = block * given.BLOCK_SIZE
            count = min(given.BLOCK_SIZE, given.vocab_size - first)
            logits = given.target_logits_ptr.span(line * given.target_logits_stride + first, count)
            logits = logits.astype(np.float32, copy=False)
            at_max = line * given.target_local_max_stride + block
            at_mass = line * given.target_local_sumexp_stride + block
            if temperature == 0:
                given.target_local_max_ptr[at_max], place = highest(logits, given.BLOCK_SIZE)
                given.target_local_argmax_ptr[line * given.target_local_argmax_stride + block] = first + place
                continue
            mass = _mass(logits, given.BLOCK_SIZE)
            given.target_local_max_ptr[at_max], given.target_local_sumexp_ptr[at_mass] = mass
            if given.HAS_DRAFT_LOGITS:
                at = state * given.draft_logits_stride_0 + step * given.draft_logits_stride_1 + first
                logits = given.draft_logits_ptr.span(at, count).astype(np.float32, copy=False) / temperature
                mass = _mass(logits, given.BLOCK_SIZE)
                given.draft_local_max_ptr[line * given.draft_local_max_stride + block] = mass[0]
                given.draft_local_sumexp_ptr[line * given.draft_local_sumexp_stride + block] = mass[1]


def _is_bonus(line: int, step: int, given: Given) -> bool:
    """Return whether a logits row samples the bonus token, i.e. no draft token follows it."""
    if hasattr(given, "num_logits"):
        return line + 1 >= given.num_logits or bool(given.expanded_local_pos_ptr[line + 1] == 0)
    return bool(step >= given.num_speculative_steps)


def _mass(logits: Array, width: int) -> tuple[Any, Any]:
    """Return a block's maximum logit, and the sum of exponentials relative to it."""
    most = highest(logits, width)[0]
    return most, total(np.exp(logits - most), width) if most > LOWEST else _ZERO


class _Sums(NamedTuple):
    """Maxima and sums of exponentials of logits rows, one per vocabulary block."""

    maxima: Memory
    maxima_stride: int
    masses: Memory
    masses_stride: int

    def of(self, line: int, num_blocks: int, width: int) -> Any:
        """Return the log-sum-exp of a logits row over its vocabulary blocks."""
        maxima = padded(self.maxima.span(line * self.maxima_stride, num_blocks), width, LOWEST)
        masses = padded(self.masses.span(line * self.masses_stride, num_blocks), width, _ZERO)
        most = np.nanmax(maxima)
        return most + np.log(np.sum(masses * np.exp(maxima - most)))


def rejection(programs: tuple[int, ...], given: Given) -> None:
    """Write each row's accepted draft tokens, their count, and log-sum-exps for resampling."""
    for row in range(programs[0]):
        state, first = given.idx_mapping_ptr[row], given.cu_num_logits_ptr[row]
        num_drafts = given.cu_num_logits_ptr[row + 1] - first - 1
        seed, temperature = given.seed_ptr[state], np.float32(given.temp_ptr[state])
        kept, sums = 0, (_ZERO, _ZERO)
        for step in range(num_drafts):
            draft = given.draft_sampled_ptr[first + step + 1]
            if temperature == 0:
                best = _best(first + step, given)
                is_kept = 0 <= draft == best
                given.sampled_ptr[row * given.sampled_stride + step] = best
            else:
                if draft < 0:
                    break
                is_kept, sums = _is_kept(state, first, step, draft, (seed, temperature), given)
                given.sampled_ptr[row * given.sampled_stride + step] = draft
            if not is_kept:
                break
            kept += 1
        given.rejected_steps_ptr[row] = kept
        given.target_rejected_logsumexp_ptr[row], given.draft_rejected_logsumexp_ptr[row] = sums


def _best(line: int, given: Given) -> int:
    """Return the token with the highest logit of a logits row."""
    maxima = given.target_local_max_ptr.span(line * given.target_local_max_stride, given.vocab_num_blocks)
    block = highest(maxima, 1 + given.PADDED_VOCAB_NUM_BLOCKS)[1]
    found: int = given.target_local_argmax_ptr[line * given.target_local_argmax_stride + block]
    return found


def _is_kept(
    state: int, first: int, step: int, draft: int, drawn: tuple[int, Any], given: Given
) -> tuple[bool, tuple[Any, Any]]:
    """Return (whether a sampled row accepts a draft token, log-sum-exps of target and drafter)."""
    seed, temperature = drawn
    line, blocks = first + step, (given.vocab_num_blocks, given.PADDED_VOCAB_NUM_BLOCKS)
    u = uniform(seed, given.pos_ptr[line])
    target = _Sums(
        given.target_local_max_ptr,
        given.target_local_max_stride,
        given.target_local_sumexp_ptr,
        given.target_local_sumexp_stride,
    ).of(line, *blocks)
    likely = np.float32(given.target_logits_ptr[line * given.target_logits_stride + draft]) - target
    drafter, proposed = _ZERO, _ZERO
    if given.HAS_DRAFT_LOGITS:
        at = state * given.draft_logits_stride_0 + step * given.draft_logits_stride_1 + draft
        drafter = _Sums(
            given.draft_local_max_ptr,
            given.draft_local_max_stride,
            given.draft_local_sumexp_ptr,
            given.draft_local_sumexp_stride,
        ).of(line, *blocks)
        proposed = np.float32(given.draft_logits_ptr[at]) / temperature - drafter
    return bool(likely > np.log(u) + proposed), (target, drafter)


def resample(programs: tuple[int, ...], given: Given) -> None:
    """Sample from the logits row after the accepted drafts: token and noisy logit per block."""
    num_rows, num_blocks = programs[:2]
    for row in range(num_rows):
        line = given.cu_num_logits_ptr[row] + given.rejected_step_ptr[row]
        state = given.expanded_idx_mapping_ptr[line]
        temperature, is_bonus = np.float32(given.temp_ptr[state]), line == given.cu_num_logits_ptr[row + 1] - 1
        if temperature == 0 and not is_bonus:
            continue
        rejected = -1 if is_bonus else given.draft_sampled_ptr[line + 1]
        drawn_at = given.seed_ptr[state], given.pos_ptr[line]
        for block in range(num_blocks):
            first = block * given.BLOCK_SIZE
            count = min(given.BLOCK_SIZE, given.vocab_size - first)
            logits = given.target_logits_ptr.span(line * given.target_logits_stride + first, count)
            logits = logits.astype(np.float32)
            if rejected >= 0 and given.HAS_DRAFT_LOGITS:
                logits = _residual(row, state, first, logits, temperature, given)
            elif first <= rejected < first + count:
                logits[rejected - first] = LOWEST
            value, place = noised(logits, first, given.BLOCK_SIZE, temperature, drawn_at, given.USE_FP64)
            at = row * given.resampled_local_argmax_stride + block
            given.resampled_local_argmax_ptr[at] = first + place
            given.resampled_local_max_ptr[row * given.resampled_local_max_stride + block] = value


def _residual(row: int, state: int, first: int, logits: Array, temperature: Any, given: Given) -> Array:
    """Return log(target - draft probability) of a block's tokens; -inf where it is not positive."""
    at = state * given.draft_logits_stride_0 + given.rejected_step_ptr[row] * given.draft_logits_stride_1 + first
    proposed = given.draft_logits_ptr.span(at, len(logits)).astype(np.float32, copy=False) / temperature
    likely = logits - np.float32(given.target_rejected_logsumexp_ptr[row])
    ratio = np.exp(proposed - np.float32(given.draft_rejected_logsumexp_ptr[row]) - likely)
    return np.where(ratio < 1, likely + np.log(np.float32(1) - ratio), LOWEST)


def insert_resampled(programs: tuple[int, ...], given: Given) -> None:
    """Append the resampled token after each row's accepted draft tokens, and count it."""
    for row in range(programs[0]):
        count = given.num_sampled_ptr[row]
        line = given.cu_num_logits_ptr[row] + count
        is_bonus = line == given.cu_num_logits_ptr[row + 1] - 1
        state = given.expanded_idx_mapping_ptr[line]
        given.num_sampled_ptr[row] = count + 1
        if given.temp_ptr[state] == 0 and not is_bonus:
            continue
        maxima = given.resampled_local_max_ptr.span(row * given.resampled_local_max_stride, given.resample_num_blocks)
        block = highest(maxima, 1 + given.PADDED_RESAMPLE_NUM_BLOCKS)[1]
        token = given.resampled_local_argmax_ptr[row * given.resampled_local_argmax_stride + block]
        given.sampled_ptr[row * given.sampled_stride + count] = token


def _is_standard(given: Mapping[str, Any]) -> bool:
    return not (given["SYNTHETIC_MODE"] or given["USE_BLOCK_VERIFICATION"] or given.get("FLY_WINDOW_SIZE"))


def _is_drawn(given: Mapping[str, Any]) -> bool:
    return not (given["USE_BLOCK_VERIFICATION"] or given["WATERMARK"])


DEFINITIONS = {
    "_compute_local_logits_stats_kernel": Definition(
        compute_local_logits_stats,
        "3e0a89b6ded6d05b",
        others=(Definition(compute_local_logits_stats, "956d97fc63e86b04"),),
    ),
    "_rejection_kernel": Definition(
        rejection, "5b5887d6bac9d00e", _is_standard, others=(Definition(rejection, "1526b26931d9428b", _is_standard),)
    ),
    "_resample_kernel": Definition(
        resample, "5234a92ef8150a4e", _is_drawn, others=(Definition(resample, "eeca18cfffe9c741", _is_drawn),)
    ),
    "_insert_resampled_kernel": Definition(insert_resampled, "79146f45ddb9fe4c"),
}
