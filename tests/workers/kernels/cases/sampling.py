"""Batches for the sampling ops: rows of every kind, with exact or rounded weights."""

from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from tests.workers.kernels.cases.batch import INT_POISON, Array, integers
from workers.kernels.argument import Arguments
from workers.kernels.sentinels import NO_DRAFT

# At this temperature a logit is the binary logarithm of a weight, so integers have exact weights.
BINARY = np.float32(1.4426950408889634)
# What the engine divides a logit by at a temperature of 1: its logits are integers below 2^24.
ENGINE = np.float32(1 << 20)
# One more than a logit that is exact may be.
LOGITS = 1 << 24

Made = TypeVar("Made", bound=Arguments)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a batch; each row of logits is followed by `padding` unused values."""

    num_rows: int
    k: int
    vocab_size: int
    block_size: int
    tile_size: int
    num_tries: int
    padding: int = 0

    @property
    def num_blocks(self) -> int:
        return -(-self.vocab_size // self.block_size)


# Vocabularies of one token more than two blocks, and than one; smaller than a block; as the engine has them.
HOSTILE = Sizes(num_rows=21, k=3, vocab_size=9, block_size=4, tile_size=2, num_tries=1, padding=3)
# Not a single try: what a rejected draft leaves is always added up.
UNTRIED = replace(HOSTILE, num_tries=0)
LARGE = Sizes(num_rows=4, k=4, vocab_size=129, block_size=128, tile_size=16, num_tries=0)
FEW = Sizes(num_rows=3, k=0, vocab_size=3, block_size=4, tile_size=4, num_tries=0)
REAL = Sizes(num_rows=4, k=2, vocab_size=33, block_size=128, tile_size=128, num_tries=2)
SINGLE = Sizes(num_rows=1, k=1, vocab_size=33, block_size=16, tile_size=16, num_tries=0)


def made(op: type[Made], given: dict[str, Any]) -> Made:
    """Return the arguments of an op for these values."""
    arguments: Made = op(**{name: given[name] for name in op.modes()})
    return arguments


def batch(sizes: Sizes, seed: int, method: int = 0, is_exact: bool = True, is_certain: bool = False) -> dict[str, Any]:
    """Return all values that the sampling ops take as arguments, by name; outputs are poison.

    Exact weights are powers of two, so that their sums are the same in any order. Where all drafts are certain there
    are no draft logits.
    """
    rng, rows, k = np.random.default_rng([sizes.num_rows, sizes.k, sizes.vocab_size, seed]), sizes.num_rows, sizes.k
    target = _lines(rng, (rows, 1 + k, sizes.vocab_size), is_exact)
    draft = _lines(rng, (rows, k, sizes.vocab_size), is_exact)
    alike = rng.random((rows, k)) < 0.5
    draft[alike] = target[:, :k][alike]
    likely = np.where(rng.random((rows, k)) < 0.6, target[:, :k].argmax(axis=2), draft.argmax(axis=2))
    floors = np.where(rng.random((rows, 1 + k)) < 0.3, np.median(target, axis=2), -np.inf)
    slots = rng.permutation(rows + 2)[:rows]
    given: dict[str, Any] = {
        "logits": target,
        "draft_logits": draft,
        "draft_slots": slots,
        "floors": floors.astype(np.float32),
        "temperature": np.where(rng.random(rows) < 0.25, np.float32(0), BINARY if is_exact else ENGINE * 2),
        "drafts": likely,
        "num_drafts": rng.integers(k // 2, k + 1, rows),
        "num_scheduled": rng.integers(1, 9, rows),
        "invalid": np.zeros(rows, dtype=np.int64),
        "point_mass": np.ones(rows, dtype=np.int64) if is_certain else rng.integers(0, 2, rows),
        "rates": rng.integers(0, 9, k).astype(np.float32) / np.float32(8),
        "accept_noise": _noise(rng, rows * k, is_exact),
        "select_noise": _noise(rng, rows * (1 + k) * (1 + sizes.num_tries) * 4, is_exact),
    }
    _spoil(given, sizes)
    kept = np.full((0 if is_certain else rows + 2, k, sizes.vocab_size), np.nan, dtype=np.float32)
    if not is_certain:
        kept[slots] = given["draft_logits"]
    given["draft_logits"] = kept
    for name in ("logits", "draft_logits"):
        behind = np.full((*given[name].shape[:2], sizes.padding), np.nan, dtype=np.float32)
        given[name] = np.concatenate([given[name], behind], axis=2).ravel()
    for name in ("floors", "drafts"):
        given[name] = given[name].ravel()
    return given | _outputs(sizes) | _integers(sizes, method)


def _lines(rng: np.random.Generator, shape: tuple[int, ...], is_exact: bool) -> Array:
    """Return logits; if exact, half of the tokens are impossible (-inf)."""
    if not is_exact:
        return rng.integers(0, LOGITS, shape).astype(np.float32)
    values = rng.integers(0, 3, shape).astype(np.float32)
    values[rng.random(shape) < 0.5] = -np.inf
    # At least one token is possible.
    values[..., rng.integers(shape[-1])] = 1
    return values


def _noise(rng: np.random.Generator, count: int, is_exact: bool) -> Array:
    """Return random numbers as the device makes them; if exact, often equal to a bound."""
    words = rng.integers(0, 8, count) << 21 if is_exact else rng.integers(0, LOGITS, count)
    words[rng.random(count) < 0.1] = LOGITS - 1
    return words.astype(np.float32) * np.float32(2**-24)


def _spoil(given: dict[str, Any], sizes: Sizes) -> None:
    """Make the last rows padding or invalid; unused draft positions of some rows hold tokens."""
    num_drafts, drafts, temperature = given["num_drafts"], given["drafts"], given["temperature"]
    if sizes in (HOSTILE, UNTRIED):
        _undefine(given, sizes)
        _decide(given, sizes)
    if sizes.num_rows > 2:
        given["invalid"][-2] = 1
    if sizes.num_rows > 1:
        given["num_scheduled"][-1] = num_drafts[-1] = temperature[-1] = 0
    behind = np.arange(sizes.k) >= num_drafts[:, None]
    given["draft_logits"][behind], given["logits"][:, 1:][behind] = np.nan, np.nan
    given["logits"][given["num_scheduled"] == 0] = np.nan
    behind[1:-1:2] = False
    drafts[behind] = INT_POISON


def _undefine(given: dict[str, Any], sizes: Sizes) -> None:
    """Make some rows unverifiable, each for another reason."""
    names = ("temperature", "num_drafts", "drafts", "logits", "draft_logits", "point_mass", "floors")
    temperature, num_drafts, drafts, logits, draft_logits, point_mass, floors = (given[name] for name in names)
    end = sizes.vocab_size - 1
    num_drafts[:9], temperature[:7], temperature[7:9], point_mass[:6], floors[:9] = sizes.k, BINARY, 0, 0, -np.inf
    drafts[0] = (end, NO_DRAFT, end)
    drafts[1, 2], drafts[2, 1], drafts[3, 0] = sizes.vocab_size, NO_DRAFT - 1, 1 << 40
    draft_logits[0, 0] = logits[0, 0]
    draft_logits[1, 0, end], draft_logits[2, 0] = np.nan, -np.inf
    given["draft_slots"][3] = -1
    logits[4, 1, end], logits[5, 2, 0], logits[6, 3] = np.nan, np.inf, -np.inf
    logits[7, 0, end], logits[8, 1] = np.nan, -np.inf


def _decide(given: dict[str, Any], sizes: Sizes) -> None:
    """Make some rows certain: one possible token, or random numbers equal to a bound."""
    names = ("logits", "draft_logits", "drafts", "accept_noise", "select_noise")
    logits, draft_logits, drafts, accept, select = (given[name] for name in names)
    accept, select = accept.reshape(sizes.num_rows, sizes.k), select.reshape(sizes.num_rows, -1)
    given["num_drafts"][9:18], given["temperature"][9:18], given["floors"][9:18] = sizes.k, BINARY, -np.inf
    given["point_mass"][9:18], given["point_mass"][[14, 17]] = 1, 0
    # The target allows only the draft token, and then excludes it.
    logits[9, :2], drafts[9, :2] = -np.inf, 8
    logits[9, :2, 8] = 0
    logits[10, 0, 8], drafts[10, 0], accept[10] = -np.inf, 8, 0
    logits[11, :2], logits[11, :2, 0], logits[11, 2, 8] = -np.inf, 0, -np.inf
    drafts[11], accept[11, 2] = (0, 0, 8), 0
    # All draft tokens are accepted, and the next token equals the last of them.
    logits[12, :3], logits[12, :, 0], drafts[12], select[12] = -np.inf, 1, 0, 0
    # Without the draft token its block has no mass, and the previous block has some.
    logits[13, 0], drafts[13, 0], accept[13, 0], select[13, 0] = -np.inf, 6, 0.875, 0.75
    logits[13, 0, 3] = logits[13, 0, 6] = 2
    logits[13, 0, 8] = 0
    # The id after the last draft token would be correct.
    logits[15], drafts[15], given["num_drafts"][15], given["temperature"][15] = -1, 0, 1, 0
    logits[15, :, 0] = 1
    # The first token is rejected.
    logits[16, 0], drafts[16, 0], accept[16, 0], select[16] = -np.inf, 0, 0.875, 0
    logits[16, 0, 0], logits[16, 0, 5] = 1, 0
    # A token that is tried is as likely under the drafter.
    logits[14, 0], draft_logits[14, 0], drafts[14, 0], accept[14, 0] = -np.inf, -np.inf, 1, 0.875
    logits[14, 0, :3], draft_logits[14, 0, :3], select[14, :4] = (2, 1, 1), (1, 2, 1), (0, 0.875, 0, 0)
    # A draft token unknown to both sides is rejected, and leaves no mass of the target.
    logits[17, 0], drafts[17, 0], accept[17, 0], select[17] = -np.inf, 8, 0.5, 0.75
    logits[17, 0, :7] = 1
    draft_logits[17, 0] = logits[17, 0]


def _outputs(sizes: Sizes) -> dict[str, Any]:
    rows, k, blocks = sizes.num_rows, sizes.k, sizes.num_blocks
    of_floats = {
        "block_max": rows * (1 + 2 * k) * blocks,
        "block_sum": rows * (1 + 2 * k) * blocks,
        "tile_sum": rows * (1 + k) * blocks * (sizes.block_size // sizes.tile_size),
        "residual": rows * k * blocks,
    }
    of_integers = {"block_best": rows * (1 + k) * blocks, "sampled": rows * (1 + k), "status": rows}
    poison = {name: np.full(length, np.nan, dtype=np.float32) for name, length in of_floats.items()}
    return poison | {name: integers(length) for name, length in of_integers.items()}


def _integers(sizes: Sizes, method: int) -> dict[str, int]:
    return {
        "method": method,
        "num_tries": sizes.num_tries,
        "num_speculative_tokens": sizes.k,
        "vocab_size": sizes.vocab_size,
        "logits_stride": sizes.vocab_size + sizes.padding,
        "draft_stride": sizes.vocab_size + sizes.padding,
        "block_size": sizes.block_size,
        "tile_size": sizes.tile_size,
    }
