"""State oracle: replays the scheduler log synchronously to compute every expected value.

The log says what was scheduled, where and when; tokens, draft tokens, counts and states are computed here.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf, nan

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.oracle.derived import length_limit
from workers.oracle.drafters import NO_DRAFT, Drafts
from workers.oracle.incremental_values import (
    IncrementalValues,
    RowOutcome,
    depends_on_drafts,
    samples_drafts,
    script_of,
    verify_row,
)
from workers.oracle.logits_processing import cut_off, rules_of
from workers.oracle.model_values import ModelValueCache, ModelValues, SpoiledLogit, max_positions
from workers.oracle.prefix_cache import BlockContents, CachedBlocks, Prefixes, cached_blocks
from workers.oracle.random_sampling import Drawn, with_undefined_logit
from workers.oracle.truth import Planned, Release, RowTruth, StepTruth, Truth
from workers.record.evidence import violation
from workers.record.log import (
    NO_BLOCKS,
    UNSPOILED,
    Aborted,
    CacheReset,
    Corrected,
    Entry,
    Freed,
    Launched,
    Preempted,
    Processed,
    Scheduled,
    ScheduledRow,
    Submitted,
)
from workers.record.rules import Rule

# The largest id below the vocabulary that is not a sentinel.
BELOW = -2
# Bits of a row's sampler status: a draft token outside the vocabulary; no target distribution after the kept tokens; a
# sampled draft token without a draft distribution.
OUTSIDE, NO_TARGET, UNDEFINED = 1, 2, 4


def spoiled_logit_of(row: ScheduledRow, spec: EngineSpec) -> SpoiledLogit | None:
    """Return the logit of a row that a trace event sets to NaN or infinity, or None."""
    event = row.spoils.logit
    if event is None:
        return None
    return SpoiledLogit(min(event.column, row.d), event.token % spec.vocab_size, inf if event.value == "inf" else nan)


def drafts_of(
    truth: Truth, row: ScheduledRow, base: int, was_sampled: bool, spec: EngineSpec
) -> tuple[list[int], Drawn]:
    """Return the draft tokens that a row verifies, and the distributions they were sampled from.

    The device has a request's proposal only if the request `was_sampled` in the previous step.
    """
    drafts = [NO_DRAFT] * row.d
    if truth.grammar:
        # The host stores the draft tokens, and removes those that the grammar forbids.
        drafts = (truth.drafts + drafts)[: row.d]
        drafts = cut_off(truth.grammar, truth.model_values.tokens[truth.num_prompt : base + 1], drafts, NO_DRAFT)
    elif was_sampled:
        drafts = (truth.drafts + drafts)[: row.d]
    drawn = truth.drawn and truth.drawn[: sum([draft != NO_DRAFT for draft in drafts])]
    if row.spoils is not UNSPOILED and was_sampled and not truth.grammar:
        return with_spoiled_draft(row, spec, drafts, drawn)
    return drafts, drawn


def with_spoiled_draft(row: ScheduledRow, spec: EngineSpec, drafts: list[int], drawn: Drawn) -> tuple[list[int], Drawn]:
    """Apply an event that makes a draft token invalid, or a draft logit NaN or infinite."""
    event = row.spoils.draft
    if event is None:
        return drafts, drawn
    at = min(event.draft, row.d - 1)
    match event.what:
        case "above" | "below":
            token = spec.vocab_size if event.what == "above" else BELOW
            return [*drafts[:at], token, *drafts[at + 1 :]], drawn
        case "nan" | "inf" if at < len(drawn):
            value = inf if event.what == "inf" else nan
            proposal = with_undefined_logit(drawn[at], event.token % spec.vocab_size, value)
            return drafts, (*drawn[:at], proposal, *drawn[at + 1 :])
        case _:
            return drafts, drawn


def status_of(row: ScheduledRow, spec: EngineSpec, drafts: Sequence[int], drawn: Drawn, outcome: RowOutcome) -> int:
    """Return a row's sampler error bits: invalid draft id, undefined target or draft logits."""
    if row.spoils.no_valid_token:
        return 0
    status = 0 if outcome.has_target else NO_TARGET
    if any(draft != NO_DRAFT and not 0 <= draft < spec.vocab_size for draft in drafts):
        status |= OUTSIDE
    # The draft distribution of an invalid draft token does not matter.
    if any(not each.masses and 0 <= draft < spec.vocab_size for each, draft in zip(drawn, drafts, strict=False)):
        status |= UNDEFINED
    return status


def happened_in(status: int, valid: int) -> Iterator[str]:
    """Yield the probes (situation counters) for a row's sampler error bits."""
    if status & OUTSIDE:
        yield "draft_outside"
    if status & UNDEFINED:
        yield "draft_undefined"
    if status & NO_TARGET and valid:
        yield "undefined_behind_drafts"


class LogError(Exception):
    """The decision log has an entry that a correct engine never writes; `violation` says why."""

    def __init__(self, rule: Rule, **values: object) -> None:
        super().__init__(rule.name)
        self.violation = violation(rule, **values)


class Oracle:
    """Expected state of all requests after the log entries processed so far.

    - `alive`: requests that have not ended.
    - `steps`, `releases`: expected values of captures to come.
    - `delivered`: tokens that each row of the last processed step delivers.
    - `num_decisions`: tokens sampled with a temperature so far. `num_ambiguous` of them were so close that an engine
      may have sampled others: nothing is known from the step of the first one on.
    - `happened`: counts of probes that only the oracle can see.
    """

    def __init__(self, trace: Trace, value_cache: ModelValueCache) -> None:
        self.spec: EngineSpec = trace.spec
        self.requests: list[Truth] = []
        self.alive: dict[int, Truth] = {}
        self.running: list[Truth] = []
        self.steps: dict[int, StepTruth] = {}
        self.releases: list[Release] = []
        self.delivered: list[tuple[int, ...]] = []
        self.num_decisions = self.num_ambiguous = 0
        self.happened: Counter[str] = Counter()
        self.cache = cached_blocks(self.spec.num_blocks) if self.spec.prefix_cache else None
        self.prefixes = Prefixes(self.spec.block_size)
        # Blocks that resets of the prefix cache have lost since the last step with rows.
        self._lost: set[int] = set()
        self._value_cache = value_cache
        self._submits = trace.submits()
        # The last submitted request of each name.
        self.newest: dict[str, Truth] = {}
        self._scheduled: Scheduled | None = None
        self._planned: dict[int, Planned] = {}
        # Whether each row of the last launched step was sampled, by row key.
        self._in_batch: dict[tuple[int, int], bool] = {}

    def consume(self, entry: Entry) -> None:
        """Process the next log entry: update the expected state.

        Raises:
            LogError: no engine may write this entry.
        """
        match entry:
            case Scheduled():
                self._take_schedule(entry)
            case Launched():
                self._launched(entry)
            case Processed(step=step):
                self._processed(step)
            case Corrected():
                pass
            case Submitted():
                self._submitted(entry)
            case Preempted():
                self._preempted(entry)
            case Aborted(request=request):
                self._finish(self._live(request), "abort")
            case Freed():
                self._freed(entry)
            case CacheReset():
                if self.cache is not None:
                    self._lost.update(self.cache.idle)
                    self.cache.reset()

    def _live(self, index: int) -> Truth:
        if index not in self.alive:
            raise LogError(Rule.NOT_ALIVE, request=index)
        return self.alive[index]

    def _submitted(self, entry: Submitted) -> None:
        event = self._submits[entry.submit]
        name, before = event.request, self.newest.get(event.request)
        if before is not None and before.finish_reason is None:
            raise LogError(Rule.NAME_IN_USE, name=name)
        prompt, rules = event.prompt, rules_of(event)
        assert isinstance(prompt, tuple), "the trace is explicit"
        if depends_on_drafts(event.params, self.spec):
            model_values: ModelValues = IncrementalValues(prompt, self.spec, rules)
        else:
            model_values = self._value_cache.model_values(
                prompt, self.spec, max_positions(len(prompt), event.max_tokens, self.spec), rules
            )
        limit = length_limit(self.spec, len(prompt), event.max_tokens)
        if entry.request != len(self.requests):
            raise LogError(Rule.SUBMITTED_OUT_OF_ORDER, request=entry.request)
        truth = self.newest[name] = Truth(
            index=entry.request,
            name=name,
            incarnation=before.incarnation + 1 if before is not None else 0,
            model_values=model_values,
            script=script_of(event, self.spec, self._value_cache),
            num_prompt=len(prompt),
            limit=limit,
            stop=frozenset(event.stop),
            committed=len(prompt),
            params=event.params,
            num_logprobs=event.params.num_logprobs,
            grammar=model_values.edges,
            priority=event.priority,
            draft_params=event.params if samples_drafts(event.params, self.spec) else None,
        )
        self.requests.append(truth)
        self.alive[truth.index] = truth

    def _take_schedule(self, entry: Scheduled) -> None:
        self._scheduled = entry
        self._planned = {}
        if self.cache is not None:
            self._take_blocks(self.cache, entry.rows)
        for row in entry.rows:
            truth = self._live(row.request)
            if not truth.running:
                truth.running = True
                self.running.append(truth)
                truth.state_slot = row.state_slot
                truth.sched_computed = truth.computed = row.blocks.hit_length
            if row.blocks is not NO_BLOCKS:
                size, blocks = self.spec.block_size, row.blocks.shared + row.blocks.new
                truth.blocks.extend(blocks)
                for block in blocks:
                    truth.slots.extend(range(block * size, (block + 1) * size))
            self._planned[row.request] = row, truth.sched_computed, truth.sched_placeholders, truth.committed
            truth.sched_computed += row.n
            if truth.sched_computed >= truth.committed + truth.sched_placeholders:
                truth.sched_placeholders += 1 + row.d

    def _take_blocks(self, cache: CachedBlocks, rows: Sequence[ScheduledRow]) -> None:
        """Allocate a row's new blocks and add references to its cached blocks.

        A joining request finds blocks registered before it.
        """
        joining = [row for row in rows if not self._live(row.request).running]
        for row in rows:
            if row not in joining:
                cache.claim(row.blocks.new)
        for row in rows:
            truth = self.requests[row.request]
            if row in joining:
                cache.share(row.blocks.shared)
                cache.claim(row.blocks.new)
                truth.num_cached = len(row.blocks.shared)
                self._take_over(truth, row, cache)
            blocks = [*truth.blocks, *row.blocks.shared, *row.blocks.new]
            self._register(truth, blocks, truth.sched_computed + row.blocks.hit_length + row.n)

    def _take_over(self, truth: Truth, row: ScheduledRow, cache: CachedBlocks) -> None:
        """Check that the shared blocks of a prefix-cache hit contain the request's tokens."""
        size = self.spec.block_size
        for index, block in enumerate(row.blocks.shared):
            found, first = cache.contents[block], index * size
            assert found is not None, "a block registered by the oracle has no contents"
            if (
                found.first != first
                or found.model_values.kv[first : first + size] != truth.model_values.kv[first : first + size]
            ):
                raise LogError(Rule.OTHER_CONTENTS, name=truth.name, block=block)
            truth.inherited.append(found)

    def _register(self, truth: Truth, blocks: Sequence[int], computed: int) -> None:
        """Register a request's full blocks whose tokens no later step computes again."""
        size, cache = self.spec.block_size, self.cache
        assert cache is not None
        prefixes = truth.prefixes_until(min(computed, truth.committed - 1), self.prefixes)
        for index in range(truth.num_cached, len(prefixes)):
            cache.register(
                blocks[index], prefixes[index], BlockContents(truth.model_values, truth.deltas, index * size)
            )
        truth.num_cached = max(truth.num_cached, len(prefixes))

    def _launched(self, entry: Launched) -> None:
        scheduled = self._scheduled
        if scheduled is None or scheduled.step != entry.step:
            raise LogError(Rule.NOT_THE_LAST_SCHEDULED, step=entry.step)
        planned, order, k_step = self._planned, entry.order, scheduled.k_step
        if sorted(planned) != sorted(order):
            raise LogError(Rule.OTHER_REQUESTS_RUN, step=entry.step, requests=sorted(order), due=sorted(planned))
        if self.cache is not None:
            self._inherit([planned[request] for request in order])
        rows = tuple([self._row(planned[request], k_step) for request in order])
        poisoned = self._lost.union(*[row.blocks.new for row in scheduled.rows])
        self.steps[entry.step] = StepTruth(
            entry.step, k_step, order, rows, entry.num_rows, entry.num_tokens, tuple(sorted(poisoned))
        )
        if rows:
            self._lost.clear()
        self._in_batch = {(row.row.request, row.row.epoch): not row.discard for row in rows}

    def _inherit(self, planned: Sequence[Planned]) -> None:
        """Record the blocks of a hit whose drafter KV entries differ from the request's own.

        Words that this step writes are included.
        """
        for row, sched_computed, placeholders, committed in planned:
            if sched_computed + row.n < committed + placeholders:
                truth = self.requests[row.request]
                truth.chunk_end(truth.computed + row.n, committed)
        for row, *_ in planned:
            truth = self.requests[row.request]
            for found in truth.inherited:
                for at in range(found.first, found.first + self.spec.block_size):
                    word = found.deltas.get(at, found.model_values.drafter.words[at])
                    if word != truth.model_values.drafter.words[at]:
                        truth.deltas[at] = word
            truth.inherited = []

    def _row(self, planned: Planned, k_step: int) -> RowTruth:
        """Compute a row's expected results and advance its request."""
        row, sched_computed, placeholders, committed = planned
        truth = self.requests[row.request]
        values, computed = truth.model_values, truth.computed
        base = computed + row.n - 1 - row.d
        discard = sched_computed + row.n < committed + placeholders
        was_sampled = self._in_batch.get((row.request, row.epoch), False)
        drafts, drawn = drafts_of(truth, row, base, was_sampled, self.spec)
        spoils = row.spoils
        if discard or spoils.no_valid_token or spoils.nan_logits:
            outcome = RowOutcome(has_target=spoils.no_valid_token or not spoils.nan_logits)
        else:
            outcome = self._verify(truth, row, base + 1, drafts, drawn)
        valid, status = outcome.valid, 0
        if not outcome.has_target or spoils is not UNSPOILED:
            status = status_of(row, self.spec, drafts, drawn, outcome)
            self.happened.update(happened_in(status, valid))
        kept = computed + row.n if discard else base + valid
        if kept + 1 >= len(values.tokens) and not isinstance(values, IncrementalValues):
            raise LogError(Rule.PAST_ITS_REACH, name=truth.name, position=kept)
        backup = values.tokens[committed - 1]
        accepted, next_token = (1, backup) if discard else (valid, values.tokens[base + valid])
        chunk_end = truth.chunk_end(kept, committed) if discard else 0
        if valid:
            room = self.spec.max_model_len - kept - 1
            num_drafts = k_step if k_step < room else max(0, room)
            drafted = values.drafter.drafts(kept, k_step, num_drafts, truth.script, truth.deltas, truth.draft_params)
            if drafted.drawn:
                self.num_decisions += len(drafted.drawn)
                self.num_ambiguous += sum([each.is_ambiguous for each in drafted.drawn])
        else:
            # The next step of a discarded row uses no draft tokens, so its proposal is scratch.
            drafted = Drafts(() if discard else (NO_DRAFT,) * k_step)
        found = RowTruth(
            truth,
            values,
            row,
            computed,
            base,
            kept,
            valid,
            discard=discard,
            accepted_read=truth.accepted,
            accepted=accepted,
            next_token=next_token,
            sched_computed=sched_computed,
            no_spec=committed + placeholders,
            backup=backup,
            slots=truth.slots[computed : computed + row.n],
            drafts=drafts,
            drawn=drawn,
            status=status,
            chunk_end=chunk_end,
            drafted=drafted,
        )
        truth.computed, truth.accepted = kept, accepted
        truth.drafts, truth.drawn = list(drafted.proposed), drafted.drawn
        return found

    def _verify(self, truth: Truth, row: ScheduledRow, first: int, drafts: list[int], drawn: Drawn) -> RowOutcome:
        """Verify a row's drafts from position `first` on; count results and situations."""
        if isinstance(truth.model_values, IncrementalValues) and first != len(truth.model_values.tokens):
            raise LogError(Rule.SAMPLES_ELSEWHERE, name=truth.name, position=first, due=len(truth.model_values.tokens))
        spoiled = None if row.spoils is UNSPOILED else spoiled_logit_of(row, self.spec)
        found = verify_row(truth, first, drafts, drawn, spoiled)
        if found.num_drawn:
            self.num_decisions += found.num_drawn
            self.num_ambiguous += found.num_ambiguous
        if found.happened:
            self.happened.update(found.happened)
        return found

    def _processed(self, step: int) -> None:
        done = self.steps.get(step)
        if done is None:
            raise LogError(Rule.PROCESSED_BEFORE_LAUNCH, step=step)
        self.delivered = []
        for row in done.rows:
            truth, epoch = row.truth, row.row.epoch
            if truth.finish_reason is not None or epoch < truth.drop_before:
                self.delivered.append(())
                continue
            first, stale = truth.committed, epoch != truth.epoch
            rejected = 0 if row.discard else 1 + row.row.d - row.valid
            if not stale:
                truth.sched_computed -= rejected
            if row.valid and row.base + 1 != first:
                raise LogError(
                    Rule.DELIVERED_ELSEWHERE, step=step, commit=row.commit_key, position=row.base + 1, due=first
                )
            self._commit(truth, row.valid)
            if not (row.valid or row.discard or row.row.spoils.no_valid_token):
                self._finish(truth, "error")
            if self.cache is not None and row.valid and not stale and truth.blocks:
                self._register(truth, truth.blocks, truth.sched_computed)
            delivered = tuple(truth.model_values.tokens[first : truth.committed])
            if not stale:
                truth.sched_placeholders -= rejected + len(delivered)
            self.delivered.append(delivered)

    def _commit(self, truth: Truth, count: int) -> None:
        """Append up to `count` tokens to the output; end the request if one of them ends it."""
        model_values, first, end = truth.model_values, truth.committed, truth.committed + count
        if end < truth.limit and end < model_values.final and truth.stop.isdisjoint(model_values.tokens[first:end]):
            truth.committed = end
            return
        for committed in range(first + 1, end + 1):
            truth.committed = committed
            stopped = model_values.tokens[committed - 1] in truth.stop or committed == model_values.final
            if stopped or committed >= truth.limit:
                self._finish(truth, "stop" if stopped else "length")
                return

    def _finish(self, truth: Truth, reason: str) -> None:
        truth.finish_reason = reason
        del self.alive[truth.index]
        truth.computed_at_release, truth.values_at_release = truth.computed, truth.model_values
        truth.deltas_at_release = truth.deltas
        if truth.running:
            truth.running = False
            self.running.remove(truth)

    def _preempted(self, entry: Preempted) -> None:
        truth = self._live(entry.request)
        if not truth.running or entry.epoch != truth.epoch + 1:
            raise LogError(Rule.PREEMPTED_WHILE_WAITING, name=truth.name, epoch=entry.epoch)
        truth.computed_at_release, truth.computed = truth.computed, 0
        truth.values_at_release = truth.model_values
        truth.deltas_at_release, truth.deltas = truth.deltas, {}
        if self.cache is not None:
            self.cache.claim(entry.returned)
            self.cache.release(entry.returned)
        truth.epoch = entry.epoch
        if entry.mode == "drop":
            truth.drop_before = entry.epoch
            if isinstance(truth.model_values, IncrementalValues):
                truth.model_values = truth.model_values.until(truth.committed)
        truth.sched_computed = truth.sched_placeholders = truth.accepted = 0
        truth.drafts, truth.drawn = [], ()
        truth.running = False
        self.running.remove(truth)

    def _freed(self, entry: Freed) -> None:
        truth = self.requests[entry.request]
        if truth.running:
            raise LogError(Rule.FREED_WHILE_RUNNING, name=truth.name)
        if list(entry.blocks) != truth.blocks or entry.state_slot != truth.state_slot:
            raise LogError(Rule.OTHER_BLOCKS_FREED, name=truth.name, blocks=entry.blocks, due=truth.blocks)
        length, model_values = truth.computed_at_release, truth.values_at_release
        assert model_values is not None, "a request frees blocks only after a preemption or its end"
        has_cache = not TRAITS[self.spec.drafter].goes_through_host
        drafter_length = min(length, self.spec.drafter_max_len or length) if has_cache else 0
        drafter_kv = list(model_values.drafter.words[:drafter_length])
        for position, word in truth.deltas_at_release.items():
            if position < drafter_length:
                drafter_kv[position] = word
        commit = f"{truth.request_label}/{truth.epoch}/freed"
        self.releases.append(Release(truth, model_values, commit, tuple(model_values.kv[:length]), tuple(drafter_kv)))
        if self.cache is not None:
            self.cache.release(truth.blocks)
        truth.blocks, truth.slots, truth.state_slot, truth.num_cached = [], [], -1, 0

    def still_in_batch(self, step: int) -> list[RowTruth]:
        """Return the rows of a step that are also rows of the last launched step."""
        return [row for row in self.steps[step].rows if row.key in self._in_batch]
