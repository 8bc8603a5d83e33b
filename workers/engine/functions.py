"""The functions of an engine that a planted fault can replace, by name."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from scenarios.events import PreemptMode
from scenarios.features import DEPTH_MAX
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec
from workers.engine import rules, staging
from workers.engine.block_pool import Pool
from workers.engine.counts import CountsInFlight, backup_index, gather_counts, true_count
from workers.engine.grammar_rules import checked_drafts, mask_rows, num_masks, waits_for_tokens
from workers.engine.input_batch import Key, Row, initial_tokens, permute_rows, previous_row
from workers.engine.params_line import params_line
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import PlanRow, Request
from workers.kernels.attention.definition import Attention
from workers.kernels.attention.numpy import attention
from workers.kernels.cascade_attention.definition import CascadeAttention
from workers.kernels.cascade_attention.numpy import cascade_attention
from workers.kernels.compute_logits.definition import ComputeLogits
from workers.kernels.compute_logits.numpy import compute_logits
from workers.kernels.copies import definition as copies
from workers.kernels.count_sampled.definition import CountSampled, count_sampled
from workers.kernels.dflash.definition import DflashBlock, DflashContext
from workers.kernels.dflash.numpy import dflash_block, dflash_context
from workers.kernels.draft_model.definition import DraftModelChain, DraftModelPass
from workers.kernels.draft_model.numpy import draft_model_chain, draft_model_pass
from workers.kernels.draft_sampling.definition import DraftNoise, DrawnChain
from workers.kernels.draft_sampling.numpy import draft_noise, drawn_chain
from workers.kernels.draft_slots.definition import DraftSlots, draft_slots
from workers.kernels.drafter_limit.definition import LimitDrafts, LimitSlots, limit_drafts, limit_slots
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.draw_noise.numpy import draw_noise
from workers.kernels.eagle.definition import DraftChain, DraftFirstPass
from workers.kernels.eagle.numpy import draft_chain, draft_first_pass
from workers.kernels.extract_hidden_states.definition import ExtractHiddenStates, extract_hidden_states
from workers.kernels.grammar.definition import ApplyMasks, GrammarDrafts, grammar_drafts
from workers.kernels.grammar.numpy import apply_masks
from workers.kernels.keep_logits.definition import KeepLogits, keep_logits
from workers.kernels.kv_write.definition import KvWrite
from workers.kernels.kv_write.numpy import kv_write
from workers.kernels.logit_floors.definition import LogitFloors
from workers.kernels.logit_floors.numpy import logit_floors
from workers.kernels.logprobs.definition import FlattenLogprobs, TokenLogprobs, flatten_logprobs
from workers.kernels.logprobs.numpy import token_logprobs
from workers.kernels.medusa.definition import MedusaHeads
from workers.kernels.medusa.numpy import medusa_heads
from workers.kernels.mtp.definition import MtpChain, MtpPass
from workers.kernels.mtp.numpy import mtp_chain, mtp_pass
from workers.kernels.ngram.definition import NgramSearch, WriteTokens
from workers.kernels.ngram.numpy import ngram_search, write_tokens
from workers.kernels.poison.definition import Poison, PoisonStates, poison, poison_states
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.prepare_inputs.numpy import prepare_inputs
from workers.kernels.process_logits.definition import ProcessLogits, WriteHistory, write_history
from workers.kernels.process_logits.numpy import process_logits
from workers.kernels.recurrent_update.definition import RecurrentUpdate
from workers.kernels.recurrent_update.numpy import recurrent_update
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.kernels.rejection_sample.numpy import rejection_sample
from workers.kernels.residual_mass.definition import ResidualMass
from workers.kernels.residual_mass.numpy import residual_mass
from workers.kernels.sampler_stats.definition import SamplerStats
from workers.kernels.sampler_stats.numpy import sampler_stats
from workers.kernels.sampling_inputs.definition import SamplingInputs, sampling_inputs
from workers.kernels.spoil_logits.definition import (
    SpoilLogits,
    SpoilOneDraft,
    SpoilOneLogit,
    spoil_logits,
    spoil_one_draft,
    spoil_one_logit,
)
from workers.kernels.state_copy.definition import StateCopy, state_copy
from workers.kernels.state_restore.definition import StateRestore, state_restore
from workers.kernels.verify_drafts.definition import VerifyDrafts
from workers.kernels.verify_drafts.numpy import verify_drafts
from workers.lanes.lane import A, Lane, LaneEvent, Span
from workers.record import model

Kernel: TypeAlias = Callable[[A], None]


def last_admitted(running: Sequence[Request]) -> Request:
    """Return the running request that was admitted last, to be preempted."""
    return running[-1]


def least_urgent(running: Sequence[Request]) -> Request:
    """Return the least urgent running request, to be preempted; on a tie the last submitted."""
    return max(running, key=lambda request: (request.priority, request.index))


def roll_back(request: Request, num_drafts: int, num_valid: int) -> None:
    """Subtract rejected drafts from the scheduler's optimistic counts of a request."""
    rejected = 1 + num_drafts - num_valid
    request.num_computed -= rejected
    request.num_placeholders -= rejected


def must_process(num_in_flight: int, depth: int) -> bool:
    """Return whether the oldest step must be processed before the next is scheduled.

    Corrections reach back by only one step.
    """
    return num_in_flight >= min(depth, DEPTH_MAX)


@dataclass(frozen=True, slots=True)
class EngineFunctions:
    """The scheduling, count and sampling functions of one engine, which a fault can replace."""

    must_process: Callable[[int, int], bool] = must_process
    choose_victim: Callable[[Sequence[Request]], Request] = last_admitted
    choose_victim_by_priority: Callable[[Sequence[Request]], Request] = least_urgent
    roll_back: Callable[[Request, int, int], None] = roll_back
    blocks_to_cover: Callable[[Request, int, EngineSpec], int] = rules.blocks_to_cover
    blocks_to_free: Callable[[Request, int], list[int]] = rules.blocks_to_free
    block_to_resume_from: Callable[[PlanRow, int], int] = rules.block_to_resume_from
    clip_to_block: Callable[[Request, int, int], int] = rules.clip_to_block
    block_hash: Callable[[int, Iterable[int]], int] = model.block_hash
    usable_hits: Callable[[list[int]], list[int]] = rules.usable_hits
    tokens_to_cache: Callable[[Request, Sequence[int]], list[int]] = rules.tokens_to_cache
    num_cacheable: Callable[[int, int], int] = rules.num_cacheable
    take_blocks: Callable[[CachingPool, Sequence[int], int], tuple[int, ...] | None] = rules.take_blocks
    blocks_still_lost: Callable[[Sequence[int], Sequence[int]], list[int]] = rules.blocks_still_lost
    forgets_drafts: Callable[[Request], bool] = rules.forgets_drafts
    drafts_after: Callable[[PlanRow, int], int] = rules.drafts_after
    budget_used: Callable[[int, int], int] = rules.budget_used
    room_for: Callable[[Request, int, int], int] = rules.room_for
    placeholders_for: Callable[[PlanRow], int] = rules.placeholders_for
    has_state: Callable[[Request, Pool], bool] = rules.has_state
    take_state_slot: Callable[[Request, Pool], int] = rules.take_state_slot
    subtract_stale: Callable[[Request, PlanRow, Sequence[int]], None] = rules.subtract_stale
    reset_counts: Callable[[Request, PreemptMode], None] = rules.reset_counts
    deliver_stale: Callable[[Request, PlanRow, Sequence[int]], Sequence[int]] = rules.deliver_stale
    has_ended: Callable[[Request], bool] = rules.has_ended
    abort_reason: Callable[[Request], str] = rules.abort_reason
    runs_drafter: Callable[[Sequence[PlanRow]], bool] = rules.runs_drafter
    accepted_length: Callable[[Request, Sequence[int]], tuple[int, str | None]] = rules.accepted_length
    initial_tokens: Callable[[PlanRow], list[int]] = initial_tokens
    tokens_to_search: Callable[[Request], Sequence[int]] = rules.tokens_to_search
    params_line: Callable[[Request, EngineSpec], list[int]] = params_line
    permute_rows: Callable[[list[Row], Sequence[int]], list[Row]] = permute_rows
    previous_row: Callable[[Row, Mapping[Key, int]], int] = previous_row
    is_uniform: Callable[[Sequence[PlanRow], int], bool] = staging.is_uniform
    row_params: Callable[[Sequence[Row]], Sequence[SamplingParams]] = staging.row_params
    pad_state_slots: Callable[[Sequence[Row], int], Sequence[int]] = staging.pad_state_slots
    common_blocks: Callable[[Sequence[Row], EngineSpec], int] = staging.common_blocks
    staging_slot: Callable[[int, int], int] = staging.staging_slot
    wait_for_readers: Callable[[Lane, LaneEvent], None] = staging.wait_for_readers
    wait_for_output: Callable[[LaneEvent], None] = staging.wait_for_output
    waits_for_tokens: Callable[[Request], bool] = waits_for_tokens
    checked_drafts: Callable[[Request, int], Sequence[int]] = checked_drafts
    mask_rows: Callable[[PlanRow, int], Iterable[tuple[int, ...]]] = mask_rows
    num_masks: Callable[[PlanRow], int] = num_masks
    logits_for_logprobs: Callable[[Span, Span], Span] = rules.logits_for_logprobs
    logprob_rows: Callable[[Sequence[int], int], Sequence[int]] = rules.logprob_rows
    backup_index: Callable[[int, int], int] = backup_index
    true_count: Callable[[int, PlanRow, int], int] = true_count
    gather_counts: Callable[
        [CountsInFlight | None, Sequence[int], Sequence[PlanRow], Sequence[tuple[int, int]]], Sequence[int]
    ] = gather_counts
    copy_inputs: Kernel[copies.CopyInputs] = copies.copy_inputs
    copy_script: Kernel[copies.CopyScript] = copies.copy_script
    copy_line: Kernel[copies.CopyLine] = copies.copy_line
    copy_output: Kernel[copies.CopyOutput] = copies.copy_output
    copy_masks: Kernel[copies.CopyMasks] = copies.copy_masks
    copy_drafts: Kernel[copies.CopyDrafts] = copies.copy_drafts
    copy_logprobs: Kernel[copies.CopyLogprobs] = copies.copy_logprobs
    copy_counts: Kernel[copies.CopyCounts] = copies.copy_counts
    copy_accepted: Kernel[copies.CopyAccepted] = copies.copy_accepted
    poison: Kernel[Poison] = poison
    poison_states: Kernel[PoisonStates] = poison_states
    prepare_inputs: Kernel[PrepareInputs] = prepare_inputs
    kv_write: Kernel[KvWrite] = kv_write
    attention: Kernel[Attention] = attention
    cascade_attention: Kernel[CascadeAttention] = cascade_attention
    recurrent_update: Kernel[RecurrentUpdate] = recurrent_update
    state_copy: Kernel[StateCopy] = state_copy
    state_restore: Kernel[StateRestore] = state_restore
    compute_logits: Kernel[ComputeLogits] = compute_logits
    spoil_logits: Kernel[SpoilLogits] = spoil_logits
    spoil_one_logit: Kernel[SpoilOneLogit] = spoil_one_logit
    spoil_one_draft: Kernel[SpoilOneDraft] = spoil_one_draft
    write_history: Kernel[WriteHistory] = write_history
    process_logits: Kernel[ProcessLogits] = process_logits
    grammar_drafts: Kernel[GrammarDrafts] = grammar_drafts
    apply_masks: Kernel[ApplyMasks] = apply_masks
    keep_logits: Kernel[KeepLogits] = keep_logits
    rejection_sample: Kernel[RejectionSample] = rejection_sample
    sampling_inputs: Kernel[SamplingInputs] = sampling_inputs
    draw_noise: Kernel[DrawNoise] = draw_noise
    logit_floors: Kernel[LogitFloors] = logit_floors
    sampler_stats: Kernel[SamplerStats] = sampler_stats
    residual_mass: Kernel[ResidualMass] = residual_mass
    verify_drafts: Kernel[VerifyDrafts] = verify_drafts
    token_logprobs: Kernel[TokenLogprobs] = token_logprobs
    flatten_logprobs: Kernel[FlattenLogprobs] = flatten_logprobs
    count_sampled: Kernel[CountSampled] = count_sampled
    draft_first_pass: Kernel[DraftFirstPass] = draft_first_pass
    draft_slots: Kernel[DraftSlots] = draft_slots
    draft_chain: Kernel[DraftChain] = draft_chain
    draft_model_pass: Kernel[DraftModelPass] = draft_model_pass
    draft_model_chain: Kernel[DraftModelChain] = draft_model_chain
    draft_noise: Kernel[DraftNoise] = draft_noise
    drawn_chain: Kernel[DrawnChain] = drawn_chain
    mtp_pass: Kernel[MtpPass] = mtp_pass
    mtp_chain: Kernel[MtpChain] = mtp_chain
    dflash_context: Kernel[DflashContext] = dflash_context
    dflash_block: Kernel[DflashBlock] = dflash_block
    extract_hidden_states: Kernel[ExtractHiddenStates] = extract_hidden_states
    write_tokens: Kernel[WriteTokens] = write_tokens
    ngram_search: Kernel[NgramSearch] = ngram_search
    medusa_heads: Kernel[MedusaHeads] = medusa_heads
    limit_slots: Kernel[LimitSlots] = limit_slots
    limit_drafts: Kernel[LimitDrafts] = limit_drafts
