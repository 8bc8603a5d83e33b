"""Faults in random sampling. Faults in device ops need the NumPy version of the kernels."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from scenarios.sampling import SamplingParams
from scenarios.spec import INTEGER_MAX
from workers.engine.functions import EngineFunctions
from workers.engine.input_batch import Row
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.probabilities.numpy import LOG2E, NEVER, Floats, above, weight
from workers.kernels.sampler_stats.definition import SamplerStats
from workers.kernels.sampling_inputs.definition import SamplingInputs
from workers.kernels.sentinels import NO_TOKEN
from workers.kernels.verify_drafts.definition import STANDARD, VerifyDrafts

# A logit of 1.0, in the units in which a temperature divides logits.
ONE = np.float32(1 << 20)
LEAK = 0.02


def _lines_of(logits: Floats, columns: int, stride: int, vocab_size: int) -> Floats:
    """Return flat logits as an array [rows, columns, V]."""
    return logits.reshape(-1, columns, stride)[:, :, :vocab_size]


@fault(
    id="ascend-13470-no-noise",
    source="vllm-ascend PR #13470",
    symptom="every draft token with a target probability above 0 is accepted",
    trigger="a draft token should be rejected randomly: the random number that it is compared with is 0",
    plane="rng",
    requires=(("sampling", "standard"),),
)
@in_place_of("draw_noise")
def _no_noise(functions: EngineFunctions, reached: Reached, given: DrawNoise) -> None:
    functions.draw_noise(given)
    if given.accept_noise.any():
        reached()
    given.accept_noise[:] = 0


@fault(
    id="specstorm-tries-share-noise",
    source="the noise of draw_noise, one index short; noise used twice is vLLM PR #54282",
    symptom="tokens after a rejected draft token do not follow the target distribution",
    trigger="a sampled draft token is rejected: each try uses the random numbers of the first",
    plane="rng",
    requires=(("draft_sampling", "probabilistic"), ("drafter", "draft_model")),
)
@in_place_of("draw_noise")
def _tries_share_noise(functions: EngineFunctions, reached: Reached, given: DrawNoise) -> None:
    functions.draw_noise(given)
    if not given.num_tries:
        return
    numbers = given.select_noise.reshape(-1, 1 + given.num_tries, 4)
    if (numbers[:, 1:] != numbers[:, :1]).any():
        reached()
    numbers[:, 1:] = numbers[:, :1]


@fault(
    id="ascend-7807-one-by-one",
    source="vllm-ascend issue #7807, PR #7808; with certain draft tokens both rules recover the same token",
    symptom="draft tokens are accepted one by one instead of by block verification",
    trigger="block verification of two or more sampled draft tokens, where the rules accept different numbers",
    plane="tokens",
    requires=(("sampling", "block"), ("drafter", "draft_model"), ("num_speculative_tokens", 3)),
)
@in_place_of("verify_drafts")
def _drafts_judged_one_by_one(functions: EngineFunctions, reached: Reached, given: VerifyDrafts) -> None:
    functions.verify_drafts(given)
    right = given.sampled.copy()
    functions.verify_drafts(replace(given, method=STANDARD))
    if not np.array_equal(given.sampled, right):
        reached()


@fault(
    id="trtllm-12588-divided-by-zero",
    source="TensorRT-LLM PR #12588, a remark of its review",
    symptom="a greedy request gets the first token with a positive logit",
    trigger="a greedy row shares a batch with a sampled row: its logits are divided by temperature 0",
    plane="tokens",
)
@in_place_of("sampler_stats")
def _divided_by_zero(functions: EngineFunctions, reached: Reached, given: SamplerStats) -> None:
    functions.sampler_stats(given)
    width = 1 + given.num_speculative_tokens
    is_greedy = np.repeat(given.temperature == 0, width) & (np.arange(width) <= given.num_drafts[:, None]).reshape(-1)
    best = given.block_best.reshape(len(is_greedy), -1)
    lines = _lines_of(given.logits, width, given.logits_stride, given.vocab_size).reshape(len(is_greedy), -1)
    for line in np.flatnonzero(is_greedy):
        with np.errstate(divide="ignore", invalid="ignore"):
            scaled = lines[line] / np.float32(0)
        for block in range(best.shape[1]):
            first = block * given.block_size
            wrong = first + int(scaled[first : first + given.block_size].argmax())
            if wrong != best[line, block]:
                reached()
            best[line, block] = wrong


@fault(
    id="ascend-13608-masked-draws",
    source="vllm-ascend issue #13608",
    symptom="the noise of a request depends on steps in which only other requests had draft tokens",
    trigger="a sampled row without draft tokens shares a batch with one that has some, and uses draft noise",
    plane="rng",
)
def _draws_without_drafts(functions: EngineFunctions, reached: Reached) -> EngineFunctions:
    draws: Counter[int] = Counter()

    def row_params(rows: Sequence[Row]) -> list[SamplingParams]:
        found = functions.row_params(rows)
        # A generator that has been used once more no longer gives the noise of its seed and a position.
        moved = [
            params.model_copy(update={"seed": (params.seed + draws[row.plan.request.index]) & INTEGER_MAX})
            for row, params in zip(rows, found, strict=True)
        ]
        if moved != found:
            reached()
        if any(row.plan.scheduled.d for row in rows):
            # Random numbers for recovered tokens are generated for every row, and masked if there was no draft token to
            # reject.
            draws.update(
                row.plan.request.index
                for row, params in zip(rows, found, strict=True)
                if params.temperature and not row.plan.scheduled.d
            )
        return moved

    return replace(functions, row_params=row_params)


@fault(
    id="metal-50-generator-made-anew",
    source="vllm-metal PR #50",
    symptom="every step of a request samples with the same noise",
    trigger="a request with a temperature samples: its generator is created from its seed in each step",
    plane="rng",
)
@in_place_of("sampling_inputs")
def _same_noise_every_step(functions: EngineFunctions, reached: Reached, given: SamplingInputs) -> None:
    functions.sampling_inputs(given)
    # A generator recreated from its request's seed repeats the noise of the first step.
    if given.positions.any():
        reached()
    given.positions[:] = 0


@fault(
    id="ascend-2881-zeroed-in-place",
    source="vllm-ascend PR #2881",
    symptom="draft tokens of a request with a temperature are never accepted",
    trigger="a draft token should be accepted: its probability was set to 0 to compute the residual",
    plane="tokens",
    requires=(("sampling", "standard"),),
)
@in_place_of("verify_drafts")
def _draft_zeroed_in_place(functions: EngineFunctions, reached: Reached, given: VerifyDrafts) -> None:
    functions.verify_drafts(given)
    right, logits = given.sampled.copy(), given.logits.copy()
    k = given.num_speculative_tokens
    lines = _lines_of(logits, 1 + k, given.logits_stride, given.vocab_size)
    drafts = given.drafts.reshape(len(given.num_drafts), k)
    is_draft = (drafts >= 0) & (np.arange(k) < given.num_drafts[:, None]) & (given.temperature > 0)[:, None]
    row, column = np.nonzero(is_draft)
    lines[row, column, drafts[row, column]] = NEVER
    functions.verify_drafts(replace(given, logits=logits))
    if not np.array_equal(given.sampled, right):
        reached()


@fault(
    id="vllm-10198-raw-target",
    source="vllm PR #10198",
    symptom="draft tokens are accepted as if a request had no temperature, top-k or top-p",
    trigger="a draft token is verified for a request with temperature, top-k or top-p",
    plane="tokens",
    requires=(("sampling", "standard"),),
)
@in_place_of("verify_drafts")
def _judged_by_raw_logits(functions: EngineFunctions, reached: Reached, given: VerifyDrafts) -> None:
    functions.verify_drafts(given)
    right, k = given.sampled.copy(), given.num_speculative_tokens
    shape = (len(given.num_drafts), k)
    drafts, noise = given.drafts.reshape(shape), given.accept_noise.reshape(shape)
    weights = _weights(given, np.full_like(given.temperature, ONE), np.full_like(given.floors, NEVER))[:, :k]
    chosen = np.take_along_axis(weights, drafts.clip(0, given.vocab_size - 1)[:, :, None], axis=2)[:, :, 0]
    is_kept = noise * weights.sum(axis=2) < chosen
    floors = given.floors.reshape(-1, 1 + k).copy()
    # The token after a rejected draft token is sampled correctly.
    floors[:, :k][is_kept] = NEVER
    certain = np.where(is_kept, np.float32(0), np.float32(1))
    functions.verify_drafts(replace(given, accept_noise=certain.reshape(-1), floors=floors.reshape(-1)))
    if not np.array_equal(given.sampled, right):
        reached()


@fault(
    id="specstorm-sampler-leak",
    source="made up: a sampler that is a little biased",
    symptom="2 % of the probability moves from the most likely token to the least likely one",
    trigger="the most likely token is sampled, and an otherwise unused random number is small",
    plane="tokens",
)
@in_place_of("verify_drafts")
def _leak(functions: EngineFunctions, reached: Reached, given: VerifyDrafts) -> None:
    functions.verify_drafts(given)
    width = 1 + given.num_speculative_tokens
    sampled, weights = given.sampled.reshape(-1, width), _weights(given, given.temperature, given.floors)
    # The last number of a selection is not used if draft tokens are certain.
    noise = given.select_noise.reshape(len(sampled), width, 1 + given.num_tries, 4)[:, :, 0, 3]
    for row in np.flatnonzero(given.temperature > 0):
        for column in range(int((sampled[row] != NO_TOKEN).sum())):
            masses = weights[row, column]
            best = int(masses.argmax())
            least = int(np.where(masses > 0, masses, np.inf).argmin())
            leaks = noise[row, column] * masses[best] < LEAK * masses.sum()
            if leaks and least != best == sampled[row, column]:
                reached()
                sampled[row, column], sampled[row, column + 1 :] = least, NO_TOKEN
                break


def _weights(given: VerifyDrafts, temperature: Floats, floors: Floats) -> Floats:
    """Return exp(logit - maximum) of each token, [B, 1 + K, V]; 0 for logits with NaN or inf."""
    width = 1 + given.num_speculative_tokens
    lines = _lines_of(given.logits, width, given.logits_stride, given.vocab_size)
    fits = (lines < np.inf).all(axis=2, keepdims=True)
    maximum = np.where(fits, lines, NEVER).max(axis=2, keepdims=True)
    fits &= maximum > NEVER
    lines, maximum = np.where(fits, lines, NEVER), np.where(fits, maximum, np.float32(0))
    lines = above(lines, floors.reshape(-1, width)[:, :, None])
    # Greedy rows also have weights, which are not used.
    scale = LOG2E / np.where(temperature > 0, temperature, LOG2E)
    return weight(lines, maximum, scale[:, None, None])
