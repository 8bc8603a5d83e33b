"""Batches of draft tokens to verify, and the verifying ops in order, with poisoned outputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.workers.kernels.calls import run as run_op
from workers.kernels.residual_mass import numpy as residual_mass
from workers.kernels.sampler_stats import numpy as sampler_stats
from workers.kernels.verify_drafts import numpy as verify_drafts
from workers.kernels.verify_drafts.definition import BLOCK

Array = NDArray[Any]
Run = Callable[..., dict[str, Array]]

INT_POISON = -0x5EED_DEAD_BEEF
# At this temperature a logit is the binary logarithm of a weight, so integers have exact weights.
BINARY = np.float32(1.4426950408889634)


@dataclass(frozen=True, slots=True)
class Drafts:
    """All values that the ops after the model take as arguments.

    Shapes: logits [B, 1 + K, V]; draft_logits [slots, K, V]; floors [B, 1 + K]; drafts, accept_noise [B, K];
    select_noise [B, 1 + K, 1 + tries, 4]; rates [K]; all others [B]. `padding` follows each row of logits.
    """

    logits: Array
    draft_logits: Array
    drafts: Array
    num_drafts: Array
    temperature: Array
    point_mass: Array
    accept_noise: Array
    select_noise: Array
    method: int
    block_size: int
    tile_size: int
    floors: Array
    num_scheduled: Array
    invalid: Array
    rates: Array
    draft_slots: Array
    padding: int = 0

    @property
    def num_tries(self) -> int:
        return int(self.select_noise.shape[2]) - 1


def drafts_of(method: int, block_size: int, tile_size: int, **arrays: Any) -> Drafts:
    """Return a batch of draft tokens; by default without floors, rates or invalid rows."""
    num_rows, width, _ = arrays["logits"].shape
    given = {
        "floors": np.full((num_rows, width), -np.inf, dtype=np.float32),
        "num_scheduled": np.full(num_rows, width, dtype=np.int64),
        "invalid": np.zeros(num_rows, dtype=np.int64),
        "rates": np.zeros(width - 1, dtype=np.float32),
        "draft_slots": np.arange(num_rows),
    }
    return Drafts(method=method, block_size=block_size, tile_size=tile_size, **{**given, **arrays})


def define(op: Callable[..., None], outputs: tuple[str, ...], **arguments: Any) -> dict[str, Array]:
    """Run a definition and return its outputs."""
    run_op(op, **arguments)
    return {name: arguments[name] for name in outputs}


def verify(batch: Drafts, run: Run = define, ops: tuple[Callable[..., None], ...] | None = None) -> dict[str, Array]:
    """Run the verifying ops in order and return their outputs; `run` calls one op."""
    stats, mass, decide = ops or (sampler_stats.sampler_stats, residual_mass.residual_mass, verify_drafts.verify_drafts)
    num_rows, width, vocab_size = batch.logits.shape
    k = width - 1
    num_blocks = -(-vocab_size // batch.block_size)

    def lines(logits: Array) -> Array:
        filled = np.full((*logits.shape[:2], vocab_size + batch.padding), np.nan, dtype=np.float32)
        filled[:, :, :vocab_size] = logits
        return filled.ravel()

    def floats(length: int) -> Array:
        return np.full(length, np.nan, dtype=np.float32)

    given = {
        "logits": lines(batch.logits),
        "draft_logits": lines(batch.draft_logits),
        "draft_slots": batch.draft_slots,
        "floors": batch.floors.ravel(),
        "temperature": batch.temperature,
    }
    sizes = {"num_speculative_tokens": k, "vocab_size": vocab_size}
    strides = {"logits_stride": vocab_size + batch.padding, "draft_stride": vocab_size + batch.padding}
    found = run(
        stats,
        ("block_max", "block_sum", "block_best", "tile_sum"),
        **given,
        num_drafts=batch.num_drafts,
        point_mass=batch.point_mass,
        block_max=floats(num_rows * (width + k) * num_blocks),
        block_sum=floats(num_rows * (width + k) * num_blocks),
        block_best=np.full(num_rows * width * num_blocks, INT_POISON, dtype=np.int64),
        tile_sum=floats(num_rows * width * num_blocks * (batch.block_size // batch.tile_size)),
        **sizes,
        **strides,
        block_size=batch.block_size,
        tile_size=batch.tile_size,
    )
    known = {"drafts": batch.drafts.ravel(), "num_drafts": batch.num_drafts}
    of_blocks = {"block_max": found["block_max"], "block_sum": found["block_sum"]}
    found["residual"] = floats(num_rows * k * num_blocks)
    if batch.method == BLOCK:
        found |= run(
            mass,
            ("residual",),
            **given,
            **known,
            point_mass=batch.point_mass,
            **of_blocks,
            accept_noise=batch.accept_noise.ravel(),
            residual=found["residual"],
            **sizes,
            **strides,
            block_size=batch.block_size,
        )
    return found | run(
        decide,
        ("sampled", "status"),
        **given,
        **known,
        num_scheduled=batch.num_scheduled,
        invalid=batch.invalid,
        point_mass=batch.point_mass,
        rates=batch.rates,
        **of_blocks,
        block_best=found["block_best"],
        tile_sum=found["tile_sum"],
        residual=found["residual"],
        accept_noise=batch.accept_noise.ravel(),
        select_noise=batch.select_noise.ravel(),
        sampled=np.full(num_rows * width, INT_POISON, dtype=np.int64),
        status=np.full(num_rows, INT_POISON, dtype=np.int64),
        method=batch.method,
        num_tries=batch.num_tries,
        **sizes,
        **strides,
        block_size=batch.block_size,
        tile_size=batch.tile_size,
    )


def random_drafts(
    num_rows: int, k: int, vocab_size: int, method: int, block_size: int, tile_size: int, seed: int = 0, tries: int = 3
) -> Drafts:
    """Return greedy and random rows, with and without draft logits, NaN, and invalid drafts.

    Logits are small integers or -inf, so that weights, their sums and products are exact in float32 in any order.
    """
    rng = np.random.default_rng([num_rows, k, vocab_size, method, seed])

    def logits(columns: int) -> Array:
        values = rng.integers(0, 3, (num_rows, columns, vocab_size)).astype(np.float32)
        values[rng.random(values.shape) < min(0.5, 1 - 12 / (vocab_size + 12))] = -np.inf
        broken = rng.random((num_rows, columns))
        values[broken < 0.02, rng.integers(vocab_size)] = np.nan
        values[(broken > 0.02) & (broken < 0.04), rng.integers(vocab_size)] = np.inf
        values[(broken > 0.04) & (broken < 0.06)] = -np.inf
        return values

    target, draft = logits(1 + k), logits(k)
    close = rng.random((num_rows, k)) < 0.5
    draft[close] = target[:, :k][close]
    drafts = np.where(rng.random((num_rows, k)) < 0.6, np.nan_to_num(target[:, :k]).argmax(axis=2), -1)
    likely = np.nan_to_num(draft, posinf=0, neginf=-9).argmax(axis=2) if k else drafts
    # Rows have their draft logits in any slot, and a few have none.
    slots, kept = rng.permutation(num_rows + 2)[:num_rows], np.full((num_rows + 2, k, vocab_size), np.nan, np.float32)
    kept[slots] = draft
    slots[rng.random(num_rows) < 0.05] = -1
    drafts = np.where(drafts < 0, likely, drafts)
    odd = rng.random((num_rows, k))
    drafts[odd < 0.04] = -1
    drafts[(odd > 0.04) & (odd < 0.06)] = vocab_size
    drafts[(odd > 0.06) & (odd < 0.07)] = -2
    drafts[(odd > 0.07) & (odd < 0.08)] = 1 << 40
    floors = np.where(rng.random((num_rows, 1 + k)) < 0.3, rng.integers(0, 3, (num_rows, 1 + k)), -np.inf)
    noise = rng.integers(0, 1 << 24, num_rows * (k + (1 + k) * (1 + tries) * 4)).astype(np.float32) * np.float32(2**-24)
    greedy = rng.random(num_rows) < 0.3
    return drafts_of(
        method,
        block_size,
        tile_size,
        logits=target,
        draft_logits=kept,
        draft_slots=slots,
        drafts=drafts.astype(np.int64),
        num_drafts=rng.integers(0, k + 1, num_rows),
        temperature=np.where(greedy, np.float32(0), BINARY),
        point_mass=rng.integers(0, 2, num_rows),
        accept_noise=noise[: num_rows * k].reshape(num_rows, k),
        select_noise=noise[num_rows * k :].reshape(num_rows, 1 + k, 1 + tries, 4),
        floors=floors.astype(np.float32),
        num_scheduled=rng.integers(0, 9, num_rows).clip(max=1),
        invalid=(rng.random(num_rows) < 0.05).astype(np.int64),
        rates=rng.random(k).astype(np.float32),
        padding=int(rng.integers(0, 3)),
    )
