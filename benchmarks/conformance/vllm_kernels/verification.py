"""Compare kernels that verify draft tokens, greedily and by rejection sampling.

Both sides use the same noise for acceptance.

Both sides sample the token after the accepted draft tokens in different ways: this module compares whether it can be
sampled at all, `frequencies` how often it is.
"""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from vllm.triton_utils import tl, triton
from vllm.v1.sample import rejection_sampler as v1
from vllm.v1.worker.gpu.sample.gumbel import tl_rand32
from vllm.v1.worker.gpu.spec_decode import rejection_sampler_utils as v2

from benchmarks.conformance.vllm_kernels.comparison import Array, Comparison, Found, Ours, first_of
from tests.workers.kernels.cases import rejection_sample
from tests.workers.kernels.cases.residual_mass import known
from tests.workers.kernels.cases.sampling import HOSTILE, LARGE, REAL, UNTRIED, Sizes, batch, made
from workers.kernels.probabilities.definition import (
    LogitsLine,
    PointMass,
    is_defined,
    joint_ratios,
    num_usable,
    proposal_of,
    residual_of,
    scaled_probabilities,
    target_blocks,
    target_of,
)
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.residual_mass.definition import ResidualMass, residual_mass
from workers.kernels.sentinels import NO_TOKEN
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, VerifyDrafts
from workers.targets.vllm.inside.replacements import cuda_library_functions

UNDEFINED = "a row of logits with NaN or inf, or with -inf only"
OUTSIDE = "a draft token outside the vocabulary"
NOT_KEPT = "a draft token without cached draft logits"
UNLIKELY_DRAFT = "a draft token with probability 0 under its drafter"
IMPOSSIBLE = "noise of 0 and a draft token with target probability 0"
ON_THE_BOUND = "noise equal to the bound, up to rounding"
v2.tldevice = cuda_library_functions(v2.tldevice)
# vLLM computes float32 logarithms, our op quotients.
_ROUNDING = 2e-6
_SEEDS = (1, 2, 4)


def greedy_v1(ours: Ours) -> Iterator[Found]:
    """Compare our definitions with rejection_greedy_sample_kernel and with the argmax before it."""
    for case in rejection_sample.cases():
        if case.num_speculative_tokens:
            rows, found = _real(case), _sampled(case, ours)
            yield from _found_greedy(case, rows, found, _greedy_v1(case, rows))


def greedy_v2(ours: Ours) -> Iterator[Found]:
    """Compare the v2 model runner's rejection sampler at temperature 0."""
    for case in rejection_sample.cases():
        rows, found = _real(case), _sampled(case, ours)
        logits = case.logits.reshape(-1, 1 + case.num_speculative_tokens, case.vocab_size)
        drafts = case.scheduled_drafts.reshape(len(found), -1)
        given = [logits[r, : 1 + case.num_drafts[r]] for r in rows], [drafts[r] for r in rows]
        theirs = sample_v2(*given, None, np.zeros(len(rows)), np.arange(len(rows)), case.num_speculative_tokens)
        yield from _found_greedy(case, rows, found, theirs)


def _found_greedy(case: RejectionSample, rows: list[int], found: Array, theirs: list[list[int]]) -> Iterator[Found]:
    lines = case.logits.reshape(len(found), -1, case.vocab_size)
    for row, their in zip(rows, theirs, strict=True):
        ours = [token for token in found[row].tolist() if token != NO_TOKEN]
        # Rows of logits after the first rejected draft token are not read.
        seen = lines[row, : min(1 + int(case.num_drafts[row]), len(ours) + 1)]
        is_undefined = any(not (line < np.inf).all() or not (line > -np.inf).any() for line in seen)
        yield Found(UNDEFINED if is_undefined else "", ours, their)


def _real(case: RejectionSample | VerifyDrafts) -> list[int]:
    return [row for row in range(len(case.num_drafts)) if case.num_scheduled[row] > 0 and case.invalid[row] <= 0]


def _sampled(case: RejectionSample | VerifyDrafts, ours: Ours) -> Array:
    sampled: Array = ours(case)["sampled"].reshape(len(case.num_drafts), -1)
    return sampled


def _greedy_v1(case: RejectionSample, rows: list[int]) -> list[list[int]]:
    logits = case.logits.reshape(-1, 1 + case.num_speculative_tokens, case.vocab_size)
    drafts, counts = case.scheduled_drafts.reshape(len(logits), -1), case.num_drafts[rows]
    sampled = v1.rejection_sample(
        torch.tensor(np.concatenate([drafts[r, :d] for r, d in zip(rows, counts, strict=True)]), dtype=torch.int32),
        counts.tolist(),
        case.num_speculative_tokens,
        torch.tensor(np.cumsum(counts), dtype=torch.int32),
        None,
        torch.tensor(np.concatenate([logits[r, :d] for r, d in zip(rows, counts, strict=True)])),
        torch.tensor(np.stack([logits[r, d] for r, d in zip(rows, counts, strict=True)])).argmax(1, keepdim=True),
        SimpleNamespace(all_greedy=True, all_random=False, generators={}),
    )
    return _without_padding(sampled)


def _without_padding(sampled: torch.Tensor) -> list[list[int]]:
    return [[token for token in row if token != NO_TOKEN] for row in sampled.tolist()]


def sample_v2(
    logits: list[Array],
    drafts: list[Array],
    kept: Array | None,
    temperature: Array,
    seeds: Array,
    k: int,
    is_block: bool = False,
) -> list[list[int]]:
    """Return the tokens that the v2 model runner samples for given logits and draft tokens.

    Row i is request i, and its column j is at position j; `kept` are the logits that draft tokens were sampled from,
    None for deterministic draft tokens.
    """
    widths = [len(lines) for lines in logits]
    # In the input a request's first token to verify precedes its draft tokens.
    tokens = [token for each, width in zip(drafts, widths, strict=True) for token in (0, *each[: width - 1])]
    steps = np.concatenate([np.arange(width) for width in widths])
    rows = np.arange(len(widths))
    sampled, counts = v2.rejection_sample(
        torch.tensor(np.concatenate(logits)),
        None if kept is None else torch.tensor(kept),
        torch.tensor(tokens, dtype=torch.int64),
        torch.tensor([0, *np.cumsum(widths)], dtype=torch.int32),
        torch.tensor(steps, dtype=torch.int64),
        torch.tensor(rows, dtype=torch.int32),
        torch.tensor(np.repeat(rows, widths), dtype=torch.int32),
        torch.tensor(steps, dtype=torch.int32),
        torch.tensor(temperature, dtype=torch.float32),
        torch.tensor(seeds, dtype=torch.int64),
        k,
        use_block_verification=is_block,
    )
    return [row[:count] for row, count in zip(sampled.tolist(), counts.tolist(), strict=True)]


@triton.jit  # type: ignore[untyped-decorator]
def _noise_kernel(numbers: Any, seed: Any, position: Any) -> None:
    i_draft = tl.program_id(0)
    noise = tl_rand32(tl.load(seed + i_draft), tl.load(position + i_draft), includes_zero=False)
    tl.store(numbers + i_draft, noise)


def _noise_v2(seeds: Array, k: int) -> Array:
    """Return the noise by which the v2 model runner accepts the draft tokens of each row."""
    numbers = torch.zeros(len(seeds) * k, dtype=torch.float32)
    at = torch.arange(k, dtype=torch.int64).repeat(len(seeds))
    _noise_kernel[(len(numbers),)](numbers, torch.tensor(np.repeat(seeds, k)), at)
    drawn: Array = numbers.numpy()
    return drawn


def _case(sizes: Sizes, seed: int, method: int, is_exact: bool, noise: Array | None = None) -> VerifyDrafts:
    """Return a verification case; `noise` replaces the acceptance noise."""
    drawn = batch(sizes, seed, method, is_exact)
    if noise is not None:
        drawn["accept_noise"] = noise
    given = known(drawn)
    if method == BLOCK:
        residual_mass(made(ResidualMass, given))
    return made(VerifyDrafts, given)


class _Row(NamedTuple):
    """A row to verify, its condition, and its processed target and draft logits (`kept`)."""

    row: int
    condition: str
    target: Array
    kept: Array


def _rows(case: VerifyDrafts, found: Array, is_certain: bool) -> Iterator[_Row]:
    """Yield the rows with certain (point mass) draft tokens, or the rows with sampled ones."""
    k, size = case.num_speculative_tokens, case.vocab_size
    logits = case.logits.reshape(-1, 1 + k, case.logits_stride)[:, :, :size]
    drafts, floors = case.drafts.reshape(-1, k), case.floors.reshape(-1, 1 + k)
    for row in _real(case):
        if (case.point_mass[row] != 0) != is_certain:
            continue
        d, temperature = int(case.num_drafts[row]), case.temperature[row]
        target = logits[row, : 1 + d].copy()
        if temperature > 0:
            target[target < floors[row, : 1 + d, None]] = -np.inf
            target = (target / temperature).astype(np.float32)
        slot = int(case.draft_slots[row])
        kept = np.zeros((k, size), dtype=np.float32)
        if not is_certain and slot >= 0:
            kept[:d] = case.draft_logits.reshape(-1, k, case.draft_stride)[slot, :d, :size]
        if any(draft >= size for draft in drafts[row, :d]):
            condition = OUTSIDE
        elif not is_certain and slot < 0 and temperature > 0:
            condition = NOT_KEPT
        else:
            # Logits after the first rejected draft token are not read, except by block verification.
            seen = d if case.method == BLOCK else min(int((found[row] != NO_TOKEN).sum()), d)
            met = [_condition(case, row, column) for column in range(seen + 1)]
            condition = UNDEFINED if UNDEFINED in met else first_of(met)
        yield _Row(row, condition, target, kept)


def _condition(case: VerifyDrafts, row: int, column: int) -> str:
    """Return what is special about a column of logits if all drafts before it are accepted."""
    if not is_defined(case.block_max[target_blocks(case, row, column)]):
        return UNDEFINED
    if column >= case.num_drafts[row] or case.temperature[row] == 0:
        return ""
    at = row * case.num_speculative_tokens + column
    draft, noise = int(case.drafts[at]), float(case.accept_noise[at])
    if draft < 0:
        return ""
    target, proposal = target_of(case, row, column), proposal_of(case, row, column)
    if target is None or proposal is None:
        return UNDEFINED
    if column >= num_usable(case, row):
        return ""
    joint_ratio = joint_ratios(case, row, num_usable(case, row))[column] if case.method == BLOCK else np.float32(1)
    p, q = (float(each) for each in scaled_probabilities(target, proposal, draft, joint_ratio))
    if q == 0:
        return UNLIKELY_DRAFT
    if case.method == BLOCK:
        return ""
    if p == 0 and noise == 0:
        return IMPOSSIBLE
    return ON_THE_BOUND if abs(noise - p / q) <= _ROUNDING * max(noise, p / q) else ""


def standard_v1(ours: Ours) -> Iterator[Found]:
    """Compare rejection_random_sample_kernel, and the greedy kernel for rows of temperature 0."""
    sizes = [(HOSTILE, True), (UNTRIED, True), (REAL, False)]
    for case in (_case(each, seed, STANDARD, is_exact) for each, is_exact in sizes for seed in _SEEDS):
        found = _sampled(case, ours)
        for is_certain in (True, False):
            rows = list(_rows(case, found, is_certain))
            yield from (Found(row.condition, found[row.row], None) for row in rows if row.condition in _NOT_GIVEN)
            rows = [row for row in rows if row.condition not in _NOT_GIVEN]
            theirs = _standard_v1(case, rows, found, is_certain)
            for row, their in zip(rows, theirs, strict=True):
                yield Found(row.condition, found[row.row], their)


_NOT_GIVEN = (OUTSIDE, NOT_KEPT)


def _standard_v1(case: VerifyDrafts, rows: list[_Row], found: Array, is_certain: bool) -> list[list[int]]:
    """Return the tokens of each row; recovered and bonus tokens are given as inputs.

    They equal the tokens of our op.
    """
    k, size = case.num_speculative_tokens, case.vocab_size
    counts = [len(row.target) - 1 for row in rows]
    if not sum(counts):
        return [found[row.row].tolist() for row in rows]
    drafts = case.drafts.reshape(-1, k)
    temperature = np.array([case.temperature[row.row] for row in rows], dtype=np.float32)
    scale = np.where(temperature > 0, temperature, np.float32(1))
    target = torch.tensor(np.concatenate([row.target[:-1] for row in rows]))
    kept = np.concatenate([row.kept[:d] / scale[at] for at, (row, d) in enumerate(zip(rows, counts, strict=True))])
    recovered, bonus = [], []
    for row, d in zip(rows, counts, strict=True):
        # Where our op samples no token, the input is a token outside the vocabulary.
        tokens = np.where(found[row.row] == NO_TOKEN, size + np.arange(1 + k), found[row.row])
        recovered += tokens[:d].tolist()
        bonus.append(int(tokens[d]))
    output = torch.full((len(rows), 1 + k), NO_TOKEN, dtype=torch.int32)
    shared = (
        torch.tensor(np.cumsum(counts), dtype=torch.int32),
        torch.tensor(
            np.concatenate([drafts[row.row, :d] for row, d in zip(rows, counts, strict=True)]).astype(np.int32)
        ),
    )
    noise = np.concatenate([case.accept_noise.reshape(-1, k)[r.row, :d] for r, d in zip(rows, counts, strict=True)])
    is_greedy, bonus_tokens = torch.tensor(temperature == 0), torch.tensor(bonus)[:, None]
    v1._rejection_greedy_sample(output, *shared, target.argmax(1), bonus_tokens, is_greedy, k, None, None)
    v1._rejection_random_sample(
        output,
        *shared,
        None if is_certain else torch.softmax(torch.tensor(kept), 1),
        torch.softmax(target, 1),
        bonus_tokens,
        torch.tensor(recovered, dtype=torch.int32),
        torch.tensor(noise, dtype=torch.float64),
        is_greedy,
        k,
        None,
    )
    return output.tolist()


def standard_v2(ours: Ours) -> Iterator[Found]:
    """Compare the v2 model runner's sampler with standard verification."""
    return _chance_v2(ours, STANDARD)


def block_v2(ours: Ours) -> Iterator[Found]:
    """Compare the v2 model runner's sampler with block verification."""
    return _chance_v2(ours, BLOCK)


def _chance_v2(ours: Ours, method: int) -> Iterator[Found]:
    sizes = [(HOSTILE, True), (UNTRIED, True), (LARGE, True), (REAL, False)]
    for each, is_exact in sizes:
        for number in _SEEDS:
            seeds = np.arange(each.num_rows) + 1000 * number
            case = _case(each, number, method, is_exact, _noise_v2(seeds, each.k))
            found = _sampled(case, ours)
            for is_certain in (True, False):
                rows = list(_rows(case, found, is_certain))
                yield from (Found(row.condition, found[row.row], None) for row in rows if row.condition in _NOT_GIVEN)
                rows = [row for row in rows if row.condition not in _NOT_GIVEN]
                if rows:
                    yield from _found_v2(case, rows, found, seeds, is_certain)


def _found_v2(case: VerifyDrafts, rows: list[_Row], found: Array, seeds: Array, is_certain: bool) -> Iterator[Found]:
    numbers = [row.row for row in rows]
    drafts = case.drafts.reshape(len(found), -1)
    theirs = sample_v2(
        [row.target for row in rows],
        [drafts[row] for row in numbers],
        None if is_certain else np.stack([row.kept for row in rows]),
        case.temperature[numbers],
        seeds[numbers],
        case.num_speculative_tokens,
        case.method == BLOCK,
    )
    for row, their in zip(rows, theirs, strict=True):
        own = [int(token) for token in found[row.row] if token != NO_TOKEN]
        if row.condition == UNDEFINED:
            yield Found(UNDEFINED, own, their)
        else:
            yield Found(row.condition, _acceptance_text(case, row.row, own), _acceptance_text(case, row.row, their))


def _acceptance_text(case: VerifyDrafts, row: int, tokens: list[int]) -> str:
    """Return which draft tokens are accepted, and whether the next token can follow them."""
    *kept, last = tokens or [NO_TOKEN]
    if last == NO_TOKEN or case.temperature[row] == 0:
        return str(tokens)
    may_come = last in _possible(case, row, len(kept))
    return f"{kept}, and a token that {'can' if may_come else 'cannot'} follow them"


def _possible(case: VerifyDrafts, row: int, accepted: int) -> set[int]:
    """Return the token ids that can be sampled after `accepted` draft tokens."""
    target = target_of(case, row, accepted)
    if target is None:
        return set()
    tokens = {token for token in range(case.vocab_size) if target.weight(token) > 0}
    usable = num_usable(case, row)
    if accepted >= usable:
        return tokens
    proposal = proposal_of(case, row, accepted)
    assert isinstance(proposal, LogitsLine | PointMass)
    joint_ratio = joint_ratios(case, row, usable)[accepted] if case.method == BLOCK else np.float32(1)
    return {token for token in tokens if residual_of(target, proposal, joint_ratio, token) > 0} or tokens


COMPARISONS = (
    Comparison("rejection_greedy_sample_kernel", "sample/rejection_sampler.py", "rejection_sample", greedy_v1),
    Comparison("rejection_random_sample_kernel", "sample/rejection_sampler.py", "verify_drafts, standard", standard_v1),
    Comparison(
        "_rejection_kernel, greedy", "worker/gpu/spec_decode/rejection_sampler_utils.py", "rejection_sample", greedy_v2
    ),
    Comparison(
        "_rejection_kernel, _resample_kernel",
        "worker/gpu/spec_decode/rejection_sampler_utils.py",
        "verify_drafts, standard",
        standard_v2,
    ),
    Comparison(
        "_rejection_kernel, block verification",
        "worker/gpu/spec_decode/rejection_sampler_utils.py",
        "verify_drafts, block",
        block_v2,
    ),
)
