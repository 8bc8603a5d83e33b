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


def apply_temperature(programs: tuple[int, ...], given: Given) -> None:
    """Divide each logits row by its request's temperature; skip temperatures 0 and 1."""
    for row in range(programs[0]):
        temperature = np.float32(given.temperature_ptr[given.expanded_idx_mapping_ptr[row]])
        if temperature not in (0, 1):
            line = given.logits_ptr.span(row * given.logits_stride, given.vocab_size)
            line[:] = line.astype(np.float32, copy=False) / temperature


def gumbel_sample(programs: tuple[int, ...], given: Given) -> None:
    """Write the sampled token and noisy logit of each logits block; temperature 0: no noise."""
    _sample(programs, given, of_steps=False)


def gumbel_sample_of_steps(programs: tuple[int, ...], given: Given) -> None:
    """Like `gumbel_sample`, but with a seed per draft step if draft logits are cached."""
    _sample(programs, given, of_steps=True)


def _sample(programs: tuple[int, ...], given: Given, of_steps: bool) -> None:
    num_rows, num_blocks = programs[:2]
    for row in range(num_rows):
        state = given.expanded_idx_mapping_ptr[row]
        temperature, seed = np.float32(0), 0
        if state >= 0:
            temperature, seed = np.float32(given.temp_ptr[state]), given.seeds_ptr[state]
        if of_steps and given.logits_cache_ptr is not None:
            seed ^= _column(row, given) << _STEP_BITS
        for block in range(num_blocks):
            first = block * given.BLOCK_SIZE
            count = min(given.BLOCK_SIZE, given.vocab_size - first)
            _keep_logits(row, state, first, count, given)
            line = given.logits_ptr.span(row * given.logits_stride + first, count).astype(np.float32, copy=False)
            if given.APPLY_TEMPERATURE and temperature != 0:
                line = line / temperature
            position = given.pos_ptr[row] + (_DRAFT_SALT if given.IS_DRAFTING else 0)
            value, place = noised(line, first, given.BLOCK_SIZE, temperature, (seed, position), given.USE_FP64)
            given.local_argmax_ptr[row * given.local_argmax_stride + block] = first + place
            given.local_max_ptr[row * given.local_max_stride + block] = value


def noised(
    line: Array, first: int, width: int, temperature: Any, drawn_at: tuple[int, int], in_float64: bool
) -> tuple[Any, int]:
    """Return (maximum, its index) of a logits block with Gumbel noise; temperature 0: no noise."""
    if in_float64:
        line = line.astype(np.float64)
    if temperature != 0:
        line = line + noise(*drawn_at, np.arange(first, first + len(line)), in_float64)
    return highest(line, width)


def _keep_logits(row: int, state: int, first: int, count: int, given: Given) -> None:
    """Copy a block of draft logits, before temperature, to the logits cache if there is one."""
    if given.logits_cache_ptr is None:
        return
    column = _column(row, given)
    kept = given.logits_cache_source_ptr.span(row * given.logits_cache_source_stride + first, count)
    if state >= 0:
        at = state * given.logits_cache_stride_0 + column * given.logits_cache_stride_1 + first
        given.logits_cache_ptr.span(at, count)[:] = kept


def _column(row: int, given: Given) -> int:
    """Return the column of a logits row in the draft-logits cache: its draft step."""
    found: int = given.logits_cache_col_ptr[row if given.PER_TOKEN_COL else 0]
    return found


DEFINITIONS = {
    "_temperature_kernel": Definition(apply_temperature, "930f5bc1b88a3642"),
    "_gumbel_sample_kernel": Definition(
        gumbel_sample, "456e87678d3111f7", others=(Definition(gumbel_sample_of_steps, "dd614c9147a1a899"),)
    ),
}
