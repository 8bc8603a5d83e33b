"""NumPy definitions of the rejection-sampling kernels in `...rejection_sampler_utils`.

Not defined, hence interpreted: block verification, synthetic acceptance rates, and watermarks.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given, Memory
from workers.targets.vllm.inside.kernels.arithmetic import LOWEST, highest, pad_line, total, uniform
from workers.targets.vllm.inside.kernels.gumbel import noisy_maximum

MODULE = "vllm.v1.worker.gpu.spec_decode.rejection_sampler_utils"
_ZERO = np.float32(0)


def compute_local_logits_stats(programs: tuple[int, ...], args: Given) -> None:
    """Write the best token, or maximum and sum of exponentials, of each logits block.

    Bonus rows are skipped.
    """
    num_lines, num_blocks = programs[:2]
    for line in range(num_lines):
        step = args.expanded_local_pos_ptr[line]
        if _is_bonus(line, step, args):
            continue
        state = args.expanded_idx_mapping_ptr[line]
        temperature = np.float32(args.temp_ptr[state])
        for block in range(num_blocks):
            first = block * args.BLOCK_SIZE
            count = min(args.BLOCK_SIZE, args.vocab_size - first)
            logits = args.target_logits_ptr.span(line * args.target_logits_stride + first, count)
            logits = logits.astype(np.float32, copy=False)
            at_max = line * args.target_local_max_stride + block
            at_mass = line * args.target_local_sumexp_stride + block
            if temperature == 0:
                args.target_local_max_ptr[at_max], place = highest(logits, args.BLOCK_SIZE)
                args.target_local_argmax_ptr[line * args.target_local_argmax_stride + block] = first + place
                continue
            mass = _mass(logits, args.BLOCK_SIZE)
            args.target_local_max_ptr[at_max], args.target_local_sumexp_ptr[at_mass] = mass
            if args.HAS_DRAFT_LOGITS:
                at = state * args.draft_logits_stride_0 + step * args.draft_logits_stride_1 + first
                logits = args.draft_logits_ptr.span(at, count).astype(np.float32, copy=False) / temperature
                mass = _mass(logits, args.BLOCK_SIZE)
                args.draft_local_max_ptr[line * args.draft_local_max_stride + block] = mass[0]
                args.draft_local_sumexp_ptr[line * args.draft_local_sumexp_stride + block] = mass[1]


def _is_bonus(line: int, step: int, args: Given) -> bool:
    """Return whether a logits row samples the bonus token, i.e. has no draft token to verify."""
    if hasattr(args, "num_logits"):
        return line + 1 >= args.num_logits or bool(args.expanded_local_pos_ptr[line + 1] == 0)
    return bool(step >= args.num_speculative_steps)


def _mass(logits: Array, width: int) -> tuple[Any, Any]:
    """Return a block's maximum logit, and its sum of exponentials relative to that."""
    most = highest(logits, width)[0]
    return most, total(np.exp(logits - most), width) if most > LOWEST else _ZERO


class _Sums(NamedTuple):
    """Maximum and sum of exponentials of each vocabulary block, for some logits rows."""

    maxima: Memory
    maxima_stride: int
    masses: Memory
    masses_stride: int

    def of(self, line: int, num_blocks: int, width: int) -> Any:
        """Return the log-sum-exp of a logits row over its vocabulary blocks."""
        maxima = pad_line(self.maxima.span(line * self.maxima_stride, num_blocks), width, LOWEST)
        masses = pad_line(self.masses.span(line * self.masses_stride, num_blocks), width, _ZERO)
        most = np.nanmax(maxima)
        return most + np.log(np.sum(masses * np.exp(maxima - most)))


def rejection(programs: tuple[int, ...], args: Given) -> None:
    """Write each row's accepted draft tokens, their count, and the log-sum-exps for resampling."""
    for row in range(programs[0]):
        state, first = args.idx_mapping_ptr[row], args.cu_num_logits_ptr[row]
        num_drafts = args.cu_num_logits_ptr[row + 1] - first - 1
        seed, temperature = args.seed_ptr[state], np.float32(args.temp_ptr[state])
        kept, sums = 0, (_ZERO, _ZERO)
        for step in range(num_drafts):
            draft = args.draft_sampled_ptr[first + step + 1]
            if temperature == 0:
                best = _best(first + step, args)
                is_kept = 0 <= draft == best
                args.sampled_ptr[row * args.sampled_stride + step] = best
            else:
                if draft < 0:
                    break
                is_kept, sums = _is_kept(state, first, step, draft, (seed, temperature), args)
                args.sampled_ptr[row * args.sampled_stride + step] = draft
            if not is_kept:
                break
            kept += 1
        args.rejected_steps_ptr[row] = kept
        args.target_rejected_logsumexp_ptr[row], args.draft_rejected_logsumexp_ptr[row] = sums


def _best(line: int, args: Given) -> int:
    """Return the token with the largest logit of a row."""
    maxima = args.target_local_max_ptr.span(line * args.target_local_max_stride, args.vocab_num_blocks)
    block = highest(maxima, 1 + args.PADDED_VOCAB_NUM_BLOCKS)[1]
    found: int = args.target_local_argmax_ptr[line * args.target_local_argmax_stride + block]
    return found


def _is_kept(
    state: int, first: int, step: int, draft: int, drawn: tuple[int, Any], args: Given
) -> tuple[bool, tuple[Any, Any]]:
    """Return whether a sampled draft token is accepted, and both models' log-sum-exps."""
    seed, temperature = drawn
    line, blocks = first + step, (args.vocab_num_blocks, args.PADDED_VOCAB_NUM_BLOCKS)
    u = uniform(seed, args.pos_ptr[line])
    target = _Sums(
        args.target_local_max_ptr,
        args.target_local_max_stride,
        args.target_local_sumexp_ptr,
        args.target_local_sumexp_stride,
    ).of(line, *blocks)
    likely = np.float32(args.target_logits_ptr[line * args.target_logits_stride + draft]) - target
    drafter, proposed = _ZERO, _ZERO
    if args.HAS_DRAFT_LOGITS:
        at = state * args.draft_logits_stride_0 + step * args.draft_logits_stride_1 + draft
        drafter = _Sums(
            args.draft_local_max_ptr,
            args.draft_local_max_stride,
            args.draft_local_sumexp_ptr,
            args.draft_local_sumexp_stride,
        ).of(line, *blocks)
        proposed = np.float32(args.draft_logits_ptr[at]) / temperature - drafter
    return bool(likely > np.log(u) + proposed), (target, drafter)


def resample(programs: tuple[int, ...], args: Given) -> None:
    """Sample the token after the accepted draft tokens: the best of each vocabulary block."""
    num_rows, num_blocks = programs[:2]
    for row in range(num_rows):
        line = args.cu_num_logits_ptr[row] + args.rejected_step_ptr[row]
        state = args.expanded_idx_mapping_ptr[line]
        temperature, is_bonus = np.float32(args.temp_ptr[state]), line == args.cu_num_logits_ptr[row + 1] - 1
        if temperature == 0 and not is_bonus:
            continue
        rejected = -1 if is_bonus else args.draft_sampled_ptr[line + 1]
        drawn_at = args.seed_ptr[state], args.pos_ptr[line]
        for block in range(num_blocks):
            first = block * args.BLOCK_SIZE
            count = min(args.BLOCK_SIZE, args.vocab_size - first)
            logits = args.target_logits_ptr.span(line * args.target_logits_stride + first, count)
            logits = logits.astype(np.float32)
            if rejected >= 0 and args.HAS_DRAFT_LOGITS:
                logits = _residual(row, state, first, logits, temperature, args)
            elif first <= rejected < first + count:
                logits[rejected - first] = LOWEST
            value, place = noisy_maximum(logits, first, args.BLOCK_SIZE, temperature, drawn_at, args.USE_FP64)
            at = row * args.resampled_local_argmax_stride + block
            args.resampled_local_argmax_ptr[at] = first + place
            args.resampled_local_max_ptr[row * args.resampled_local_max_stride + block] = value


def _residual(row: int, state: int, first: int, logits: Array, temperature: Any, args: Given) -> Array:
    """Return log(target - draft probability) of a block's tokens; -inf if not positive."""
    at = state * args.draft_logits_stride_0 + args.rejected_step_ptr[row] * args.draft_logits_stride_1 + first
    proposed = args.draft_logits_ptr.span(at, len(logits)).astype(np.float32, copy=False) / temperature
    likely = logits - np.float32(args.target_rejected_logsumexp_ptr[row])
    ratio = np.exp(proposed - np.float32(args.draft_rejected_logsumexp_ptr[row]) - likely)
    return np.where(ratio < 1, likely + np.log(np.float32(1) - ratio), LOWEST)


def insert_resampled(programs: tuple[int, ...], args: Given) -> None:
    """Append the resampled token after each row's accepted draft tokens, and count it."""
    for row in range(programs[0]):
        count = args.num_sampled_ptr[row]
        line = args.cu_num_logits_ptr[row] + count
        is_bonus = line == args.cu_num_logits_ptr[row + 1] - 1
        state = args.expanded_idx_mapping_ptr[line]
        args.num_sampled_ptr[row] = count + 1
        if args.temp_ptr[state] == 0 and not is_bonus:
            continue
        maxima = args.resampled_local_max_ptr.span(row * args.resampled_local_max_stride, args.resample_num_blocks)
        block = highest(maxima, 1 + args.PADDED_RESAMPLE_NUM_BLOCKS)[1]
        token = args.resampled_local_argmax_ptr[row * args.resampled_local_argmax_stride + block]
        args.sampled_ptr[row * args.sampled_stride + count] = token


def _is_standard(args: Mapping[str, Any]) -> bool:
    return not (args["SYNTHETIC_MODE"] or args["USE_BLOCK_VERIFICATION"] or args.get("FLY_WINDOW_SIZE"))


def _is_drawn(args: Mapping[str, Any]) -> bool:
    return not (args["USE_BLOCK_VERIFICATION"] or args["WATERMARK"])


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
