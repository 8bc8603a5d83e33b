"""NumPy definitions of the kernels in `...gpu.sample.gumbel`: temperature and sampling."""

from typing import Any

import numpy as np

from workers.simulated_torch.kernel_definitions import Array, Definition, Given
from workers.targets.vllm.inside.kernels.arithmetic import highest, noise

MODULE = "vllm.v1.worker.gpu.sample.gumbel"
# Makes the noise of draft tokens differ from the noise of their verification.
_DRAFT_SALT = 1 << 30
# A drafter's step number is shifted by this many bits into the seed.
_STEP_BITS = 32


def apply_temperature(programs: tuple[int, ...], args: Given) -> None:
    """Divide each logits row by its request's temperature; skip temperatures 0 and 1."""
    for row in range(programs[0]):
        temperature = np.float32(args.temperature_ptr[args.expanded_idx_mapping_ptr[row]])
        if temperature not in (0, 1):
            line = args.logits_ptr.span(row * args.logits_stride, args.vocab_size)
            line[:] = line.astype(np.float32, copy=False) / temperature


def gumbel_sample(programs: tuple[int, ...], args: Given) -> None:
    """Write the maximum of each logits block after adding Gumbel noise (if temperature > 0)."""
    _sample(programs, args, of_steps=False)


def gumbel_sample_of_steps(programs: tuple[int, ...], args: Given) -> None:
    """Sample like `gumbel_sample`; with cached draft logits, with one seed per draft step."""
    _sample(programs, args, of_steps=True)


def _sample(programs: tuple[int, ...], args: Given, of_steps: bool) -> None:
    num_rows, num_blocks = programs[:2]
    for row in range(num_rows):
        state = args.expanded_idx_mapping_ptr[row]
        temperature, seed = np.float32(0), 0
        if state >= 0:
            temperature, seed = np.float32(args.temp_ptr[state]), args.seeds_ptr[state]
        if of_steps and args.logits_cache_ptr is not None:
            seed ^= _column(row, args) << _STEP_BITS
        for block in range(num_blocks):
            first = block * args.BLOCK_SIZE
            count = min(args.BLOCK_SIZE, args.vocab_size - first)
            _keep_logits(row, state, first, count, args)
            line = args.logits_ptr.span(row * args.logits_stride + first, count).astype(np.float32, copy=False)
            if args.APPLY_TEMPERATURE and temperature != 0:
                line = line / temperature
            position = args.pos_ptr[row] + (_DRAFT_SALT if args.IS_DRAFTING else 0)
            value, place = noisy_maximum(line, first, args.BLOCK_SIZE, temperature, (seed, position), args.USE_FP64)
            args.local_argmax_ptr[row * args.local_argmax_stride + block] = first + place
            args.local_max_ptr[row * args.local_max_stride + block] = value


def noisy_maximum(
    line: Array, first: int, width: int, temperature: Any, drawn_at: tuple[int, int], in_float64: bool
) -> tuple[Any, int]:
    """Return maximum and index of a logits block with Gumbel noise (none for temperature 0)."""
    if in_float64:
        line = line.astype(np.float64)
    if temperature != 0:
        line = line + noise(*drawn_at, np.arange(first, first + len(line)), in_float64)
    return highest(line, width)


def _keep_logits(row: int, state: int, first: int, count: int, args: Given) -> None:
    """Copy a block of draft logits, before temperature, to the draft-logits cache, if any."""
    if args.logits_cache_ptr is None:
        return
    column = _column(row, args)
    kept = args.logits_cache_source_ptr.span(row * args.logits_cache_source_stride + first, count)
    if state >= 0:
        at = state * args.logits_cache_stride_0 + column * args.logits_cache_stride_1 + first
        args.logits_cache_ptr.span(at, count)[:] = kept


def _column(row: int, args: Given) -> int:
    """Return the draft step of a logits row, which is its column in the draft-logits cache."""
    found: int = args.logits_cache_col_ptr[row if args.PER_TOKEN_COL else 0]
    return found


DEFINITIONS = {
    "_temperature_kernel": Definition(apply_temperature, "930f5bc1b88a3642"),
    "_gumbel_sample_kernel": Definition(
        gumbel_sample, "456e87678d3111f7", others=(Definition(gumbel_sample_of_steps, "dd614c9147a1a899"),)
    ),
}
