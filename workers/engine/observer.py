"""Observer of an engine: counts the probes (named situations) that occur in its steps.

Scheduler, loop and runner call it, one line per place; the engine never reads it.
"""

from collections.abc import Iterable, Iterator, Sequence

from scenarios.spec import EngineSpec
from workers.engine.context import SpecialRows
from workers.engine.prefix_cache import CachingPool
from workers.engine.request import PlanRow, Request
from workers.engine.step import Step
from workers.kernels.process_logits.definition import BITS
from workers.kernels.sentinels import NO_DRAFT
from workers.record.log import UNSPOILED, Cause, SkipReason

# Counted reasons to leave a request out of a step: while it runs, and while it waits.
_LEFT_OUT_RUNNING: dict[SkipReason, str] = {"stalled": "stall", "grammar": "grammar_wait", "limit": "limit_wait"}
_LEFT_OUT_WAITING: dict[SkipReason, str] = {"stale": "stale_wait"}
_SHORT_WORD = 3
_SHORT_REQUEST = 64


class EngineObserver:
    """Counts how often each probe (named situation, see `scenarios.probes`) occurred.

    `run_ahead_max` is the largest number of launched steps that the device had not begun when another step was
    scheduled; `num_commits` counts processed results of requests.
    """

    def __init__(self, spec: EngineSpec, probes: dict[str, int]) -> None:
        self.probes = probes
        self.run_ahead_max = 0
        self.num_commits = 0
        self._spec = spec
        self._is_aligned = spec.is_aligned
        self._last_block, self._rows_max = spec.num_blocks - 1, spec.max_num_seqs
        self._drafter_max_len = spec.drafter_max_len

    # Scheduler decisions.

    def request_skipped(self, request: Request, reason: SkipReason) -> None:
        """Count a request that the step does not schedule, by reason."""
        probe = (_LEFT_OUT_RUNNING if request.running else _LEFT_OUT_WAITING).get(reason)
        if probe is not None:
            self.probes[probe] += 1

    def chunk_clipped(self) -> None:
        """Count a prefill chunk that ends early, at a block boundary."""
        self.probes["clipped_chunk"] += 1

    def admitted(self, request: Request, behind: Iterable[Request]) -> None:
        """Count an admission: first, resumed, or before a request that waited longer."""
        probes = self.probes
        probes["resume" if request.epoch else "admit"] += 1
        probes["overtaking"] += any(other.index < request.index for other in behind)
        probes["resume_in_flight"] += request.num_dropped > 0

    def row_planned(self, row: PlanRow) -> None:
        """Count the probes of a row that the scheduler added to the step."""
        probes, request = self.probes, row.request
        scheduled, spoils = row.scheduled, row.scheduled.spoils
        if spoils is not UNSPOILED:
            probes["no_valid_token"] += spoils.no_valid_token
            probes["nan_logits"] += spoils.nan_logits
            probes["spoiled_logit"] += spoils.logit is not None
            probes["spoiled_draft"] += spoils.draft is not None
        if row.discard:
            probes["discard"] += 1
            probes["third_chunk"] += scheduled.step_in_epoch == 2
        if scheduled.padded:
            probes["padded_decode"] += 1
            probes["padded_decode_restored"] += self._is_aligned and bool(scheduled.blocks.shared)
        if self._last_block in request.blocks:
            probes["last_block"] += 1
        if 0 in request.blocks:
            probes["first_block"] += 1
        if scheduled.d:
            if scheduled.d < request.num_drafts_next:
                probes["trimmed_drafts"] += 1
        else:
            probes["draftless_decode"] += row.num_computed > 0 and scheduled.n == 1

    def row_withdrawn(self) -> None:
        """Count a row removed from the step because its request is preempted."""
        self.probes["taken_out"] += 1

    def budget_returned(self) -> None:
        """Count a row that uses the token budget of a row removed from the step."""
        self.probes["budget_returned"] += 1

    def preempted(self, request: Request, cause: Cause) -> None:
        """Count a preemption."""
        self.probes["preemption"] += 1
        self.probes["preemption_in_flight"] += request.num_in_flight > 0
        self.probes["preemption_by_blocks"] += cause == "blocks"

    # Prefix-cache changes.

    def blocks_wanted(self, pool: CachingPool, count: int) -> None:
        """Count an eviction, if the allocation of `count` blocks evicts cached blocks."""
        self.probes["eviction"] += pool.num_free - len(pool.idle) < count <= pool.num_free

    def cache_reset(self, pool: CachingPool, preempts: bool) -> None:
        """Count a prefix-cache reset; with `preempts`, one that preempts requests."""
        self.probes["cache_reset"] += any(content is not None for content in pool.hash_of)
        self.probes["cache_reset_in_flight"] += preempts

    def joined(self, pool: CachingPool, shared: Sequence[int], rows: Sequence[PlanRow]) -> None:
        """Count the probes of an admitted request's prefix-cache hit with `shared` blocks."""
        if not shared:
            return
        probes, row = self.probes, rows[-1]
        probes["prefix_hit"] += 1
        probes["prefix_hit_shared"] += any(pool.references[block] > 1 for block in shared)
        probes["prefix_hit_on_resume"] += row.request.epoch > 0
        # If the last match is not reused, no hit leaves fewer tokens.
        num_left = len(row.request.tokens) - row.num_computed
        probes["prefix_hit_but_one"] += num_left == 1
        probes["prefix_hit_to_end"] += num_left == 1 + self._spec.block_size
        probes["prefix_hit_at_once"] += any(block in other.scheduled.blocks.new for other in rows for block in shared)

    # Engine-loop events.

    def submitted(self, num_prompt: int, is_reused_name: bool) -> None:
        """Count the probes of a submitted request."""
        self.probes["name_reused"] += is_reused_name
        self.probes["short_model"] += self._spec.max_model_len <= 1 + self._spec.num_speculative_tokens
        for edge in _prompt_edges(num_prompt, self._spec):
            self.probes["prompt_" + edge] += 1

    def aborted(self, request: Request) -> None:
        """Count an abort.

        A request that has already ended may still have a result in flight for the client.
        """
        if request.finish_reason is None:
            self.probes["abort"] += 1
            self.probes["abort_in_flight"] += request.num_in_flight > 0
        else:
            self.probes["abort_too_late"] += request.num_in_flight > 0

    def k_set(self, before: int, after: int, has_running: bool) -> None:
        """Count a change of the number of draft tokens per step."""
        self.probes["k_change"] += before != after
        self.probes["k_again"] += after > 0 == before and has_running

    def scheduled(self, rows: Sequence[PlanRow], in_flight: Iterable[Step], step_begun: int, num_gaps: int) -> None:
        """Count the probes of a scheduled step, given the steps in flight.

        `num_gaps` requests could run but are left out.
        """
        ahead = 0
        for step in in_flight:
            if step.rows and step.number > step_begun:
                ahead += 1
        assert ahead < self._spec.depth, f"{ahead} steps in flight have not begun, depth is {self._spec.depth}"
        if ahead > self.run_ahead_max:
            self.run_ahead_max = ahead
        probes = self.probes
        if num_gaps:
            probes["gap"] += num_gaps
        if len(rows) == self._rows_max:
            probes["full_batch"] += 1
        if any(row.discard for row in rows) and any(row.scheduled.d for row in rows):
            probes["discard_while_drafting"] += 1

    def committed(self, step: Step, outputs: Sequence[Sequence[int]]) -> None:
        """Count the probes of a processed step's results."""
        assert len(outputs) == len(step.rows), f"step {step.number}: {len(outputs)} results for {len(step.rows)} rows"
        self.num_commits += len(step.rows)
        for row, sampled in zip(step.rows, outputs, strict=True):
            if row.request.has_params:
                self._sampled_by_params(row, sampled)

    def _sampled_by_params(self, row: PlanRow, sampled: Sequence[int]) -> None:
        """Count tokens sampled with penalties, masks or other parameters."""
        probes, spec, params, tokens = self.probes, self._spec, row.request.params, row.request.tokens
        if params.temperature:
            probes["random_accept"] += len(sampled) > 1
            probes["random_reject"] += 0 < len(sampled) <= row.scheduled.d
            probes["drawn_in_later_tile"] += any(token % spec.vocab_block >= spec.vocab_tile for token in sampled)
            probes["drawn_in_later_block"] += any(token >= spec.vocab_block for token in sampled)
        if params.changes_logits:
            probes["later_mask_word"] += any(token >= BITS for token in sampled)
            probes["long_bad_word"] += any(
                len(word) > _SHORT_WORD and tuple(tokens[1 - len(word) :]) == word[:-1] for word in params.bad_words
            )

    # Runner launches.

    def step_was_empty(self, is_dummy: bool) -> None:
        """Count a step without scheduled tokens (with or without a dummy run)."""
        self.probes["empty_step"] += 1
        self.probes["dummy_step"] += is_dummy

    def rows_moved(self, permuted: bool) -> None:
        """Count a change of batch rows: by condensing, or permuted by a reorder event."""
        what = "reorder" if permuted else "condense"
        self.probes[what] += 1
        self.probes[what + "_in_flight"] += self._spec.depth > 1

    def enqueued(
        self, rows: Sequence[PlanRow], num_rows: int, is_uniform: bool, num_common_blocks: int, is_restored: bool
    ) -> None:
        """Count the probes of a launched batch: padding, shared blocks, restored states."""
        probes = self.probes
        if num_rows > len(rows):
            probes["padding"] += 1
        if is_uniform:
            probes["uniform"] += 1
        if num_common_blocks > 0:
            probes["cascade"] += 1
            probes["cascade_of_rows"] += len(rows) > 1
        if is_restored:
            probes["state_taken_over"] += 1

    def sampled_by_name(self, named: SpecialRows, rows: Sequence[PlanRow]) -> None:
        """Count the batch rows of each group in `SpecialRows`."""
        probes = self.probes
        probes["processed_logits"] += bool(named.processed)
        probes["processed_drafts"] += any(rows[index].scheduled.d for index in named.processed)
        probes["logprobs"] += bool(named.logprobs)
        if named.random:
            probes["mixed_batch"] += len(named.random) < sum(not row.discard for row in rows)
            probes["limited_decision"] += bool(named.limited)
            if self._spec.draft_sampling == "probabilistic":
                drawn = any(rows[index].scheduled.d for index in named.random if index not in named.grammar)
                probes["grammar_beside_drawn"] += drawn and bool(named.grammar)
        if named.grammar:
            checked = tuple(rows[index] for index in named.grammar if rows[index].request.drafts)
            probes["grammar_cut"] += any(NO_DRAFT in row.drafts for row in checked)
            probes["grammar_drafts"] += any(draft != NO_DRAFT for row in checked for draft in row.drafts)

    # Step results.

    def output_dropped(self, request: Request, sampled: Sequence[int]) -> None:
        """Count a result discarded because its request was preempted meanwhile."""
        self.probes["dropped_output"] += bool(sampled) and request.finish_reason is None

    def verified(self, request: Request, row: PlanRow, sampled: Sequence[int]) -> None:
        """Count how a row's draft tokens were verified."""
        probes, num_drafts, count = self.probes, row.scheduled.d, len(sampled)
        if num_drafts and count:
            if count == 1:
                probes["no_accept"] += 1
            elif count <= num_drafts:
                probes["partial_accept"] += 1
            elif count == 1 + num_drafts:
                probes["full_accept"] += 1
        length = len(request.tokens)
        if length + count > _SHORT_REQUEST:
            probes["long_request"] += 1
        if self._drafter_max_len:
            probes["drafter_full"] += self._drafter_max_len < length + count + self._spec.num_speculative_tokens
        if self._is_aligned and sampled:
            block_size = self._spec.block_size
            crossed = (length - 1 + count) // block_size - (length - 1) // block_size
            probes["boundary_in_run"] += crossed > 0
            probes["boundaries_in_run"] += crossed > 1

    def had_no_logit(self) -> None:
        """Count a row for which no token could be sampled."""
        self.probes["no_logit"] += 1

    def ended(self, request: Request, row: PlanRow, sampled: Sequence[int], count: int) -> None:
        """Count the probes of a request that ends after `count` of its row's sampled tokens."""
        for probe in _end_edges(request, row, sampled, count, self._spec):
            self.probes[probe] += 1


def _prompt_edges(length: int, spec: EngineSpec) -> list[str]:
    """Return the probes of a prompt length (1, K, block size ...), else "other"."""
    k, block = spec.num_speculative_tokens, spec.block_size
    edges = {
        "one": 1,
        "k": k,
        "k_plus_1": k + 1,
        "block_minus_1": block - 1,
        "block": block,
        "block_plus_1": block + 1,
    }
    return [name for name, edge in edges.items() if edge == length] or ["other"]


def _end_edges(request: Request, row: PlanRow, sampled: Sequence[int], count: int, spec: EngineSpec) -> Iterator[str]:
    """Yield the probes that a request's end hits: end inside accepted drafts, at a block end ..."""
    if count < len(sampled):
        yield f"{request.finish_reason}_inside_run"
    if row.scheduled.d and len(sampled) <= row.scheduled.d and len(request.tokens) % spec.block_size == 0:
        yield "end_on_block_edge"
    if len(request.tokens) == spec.max_model_len:
        yield "model_full"
    if spec.depth == 1:
        yield "end_at_depth_1"
    if request.finish_reason == "stop" and len(sampled) > 1:
        yield "stop_first" if count == 1 else "stop_last" if count == len(sampled) else "stop_between"
