"""Model runner: the host writes a step's inputs, and enqueues the step's ops on streams."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scenarios.spec import EngineSpec
from workers.engine import host_observations, processing, spoiling
from workers.engine.captures import Captures
from workers.engine.context import Context, Forward, SpecialRows
from workers.engine.counts import CountsInFlight
from workers.engine.drafters.drafter import drafter_of
from workers.engine.drafters.host_drafters import DraftsToHost, HostDrafts
from workers.engine.forward import launch_inputs, launch_poison, launch_state_copy, launch_state_restore, launch_target
from workers.engine.functions import EngineFunctions
from workers.engine.grammar import Grammars
from workers.engine.input_batch import InputBatch
from workers.engine.logprobs import TokenLogprobs
from workers.engine.memory import FIELDS, NAMED, Memory, Staging
from workers.engine.observer import EngineObserver
from workers.engine.request import Plan, Request
from workers.engine.sampler import Sampler
from workers.engine.staging import (
    Shape,
    backup_tokens,
    blocks_to_poison,
    max_lengths,
    padded_shape,
    write_block_table,
    write_rows,
    write_tokens,
)
from workers.engine.step import Step
from workers.kernels.copies.definition import CopyInputs, CopyScript
from workers.kernels.poison.definition import Poison
from workers.kernels.sentinels import NO_TOKEN, PAD_ROW
from workers.lanes.lane import Machine
from workers.record.log import Corrected, Entry, Launched
from workers.record.observation import Observation, Recorder

LANES = ("compute", "h2d", "d2h_output", "d2h_counts")


class ModelRunner:
    """One model runner: its persistent batch, buffers, streams and ops."""

    def __init__(
        self,
        spec: EngineSpec,
        functions: EngineFunctions,
        machine: Machine,
        recorder: Recorder,
        log: list[Entry | Observation],
        observer: EngineObserver,
    ) -> None:
        self.spec = spec
        self.memory = Memory(spec, machine)
        self.batch = InputBatch(functions.initial_tokens, functions.permute_rows, functions.previous_row)
        self._functions = functions
        self._is_aligned = spec.is_aligned
        self._machine = machine
        self._log = log
        self._observer = observer
        self.compute, self.h2d, d2h_output, d2h_counts = (machine.lane(name) for name in LANES)
        self._inputs_ready = machine.event("inputs_ready")
        self._inputs_read = machine.event("inputs_read")
        self._dummy_done = [machine.event(f"dummy_done[{slot}]") for slot in range(spec.depth)]
        captures = Captures(spec, self.memory, self.compute, recorder)
        self.context = Context(
            spec,
            functions,
            self.memory,
            captures,
            compute=self.compute,
            h2d=self.h2d,
            d2h_output=d2h_output,
            d2h_counts=d2h_counts,
        )
        self._sampler = Sampler(self.context, machine)
        self._grammars = Grammars(self.context, machine)
        self._drafts_to_host = DraftsToHost(self.context, machine)
        self._drafter = drafter_of(spec)
        self.host_drafts = HostDrafts(spec, functions)
        self._previous: Step | None = None

    def launch(self, plan: Plan, permute: Callable[[int], Sequence[int]] | None, is_dummy: bool = False) -> Step:
        """Enqueue a step; then correct the host's counts by the previous step's results.

        A dummy step runs without rows.
        """
        machine, batch = self._machine, self.batch
        previous = self._previous
        newest = previous.number if previous is not None else plan.step - 1
        assert plan.step == newest + 1, f"step {plan.step} is launched after step {newest}"
        if previous is not None and previous.rows:
            previous.computed = tuple(row.num_computed for row in batch.rows)
        batch.update(plan, permute)
        if previous is not None and batch.moves:
            self._observer.rows_moved(permute is not None)
        machine.point("condense")
        step = self._enqueue(plan, previous) if batch.rows else self._idle(plan, is_dummy)
        machine.point("launched")
        if previous is not None:
            self._correct(previous)
        batch.remember()
        self._previous = step
        return step

    def _idle(self, plan: Plan, is_dummy: bool) -> Step:
        self._observer.step_was_empty(is_dummy)
        if is_dummy:
            return self._enqueue_dummy(plan)
        self._log.append(Launched(plan.step, (), 0, 0, False))
        return Step(plan.step)

    def _enqueue_dummy(self, plan: Plan) -> Step:
        """Enqueue a dummy run: one padding row, which changes no request's state."""
        assert not self.batch.rows, "a dummy step has no rows"
        memory, layout = self.memory, self.memory.layout
        shape = Shape(1, self.spec.token_multiple, (), False)
        view = memory.view(plan.step, shape.num_rows, shape.num_tokens)
        self._log.append(Launched(plan.step, (), shape.num_rows, shape.num_tokens, False))
        staging = memory.staging[self._functions.staging_slot(plan.step, len(memory.staging))]
        with self._machine.host(staging.inputs.all, "w") as staged:
            table = staged[: layout.tokens].reshape(len(FIELDS), -1)
            write_rows(table, (), shape, self._functions.pad_state_slots)
            # Ids and blocks of tokens without a row are never read.
            staged[layout.token_row : layout.token_row + shape.num_tokens].fill(PAD_ROW)
        self._copy_inputs(staging)
        self._inputs_ready.record(self.h2d)
        self.compute.wait(self._inputs_ready)
        forward = Forward(plan.step, view, (), plan.k_step, processing.NO_ROWS)
        launch_inputs(self.context, forward)
        launch_target(self.context, forward)
        self._inputs_read.record(self.compute)
        # There are no results, but the staging slot must stay valid until its copy has run.
        done = self._dummy_done[plan.step % len(self._dummy_done)]
        done.record(self.compute)
        return Step(plan.step, output_done=done)

    def _enqueue(self, plan: Plan, previous: Step | None) -> Step:
        batch, memory = self.batch, self.memory
        rows, keys = tuple(row.plan for row in batch.rows), tuple(row.key for row in batch.rows)
        requests = tuple(request for request, _ in keys)
        shape = padded_shape(rows, self.spec, self._functions.is_uniform)
        assert len(rows) <= shape.num_rows, f"step {plan.step}: {len(rows)} rows, padded to {shape.num_rows}"
        view = memory.view(plan.step, shape.num_rows, shape.num_tokens)
        step = Step(plan.step, rows, keys, plan.k_step)
        self._log.append(Launched(plan.step, requests, shape.num_rows, shape.num_tokens, shape.uniform))
        named = processing.special_rows(batch.rows)
        if named is not processing.NO_ROWS:
            self._observer.sampled_by_name(named, rows)
        self._stage(plan, step, previous, shape, named)
        length_max, num_queries_max = max_lengths(batch.rows)
        num_blocks = -(-length_max // self.spec.block_size)
        # Any upper bound is correct; powers of two keep the number of different launch arguments small.
        num_blocks_max = min(1 << (num_blocks - 1).bit_length(), memory.max_blocks)
        common = self._functions.common_blocks(batch.rows, self.spec) if self.spec.cascade else 0
        is_restored = self._is_aligned and any(row.scheduled.blocks.shared for row in rows)
        self._observer.enqueued(rows, shape.num_rows, shape.uniform, common, is_restored)
        forward = Forward(
            plan.step,
            view,
            requests,
            plan.k_step,
            named,
            num_blocks_max=num_blocks_max,
            num_queries_max=num_queries_max,
            num_common_blocks=common,
        )
        if is_restored:
            launch_state_restore(self.context, forward)
        if plan.is_spoiled:
            spoiling.launch_drafts(self.context, batch.rows, batch.prev_positions())
        launch_inputs(self.context, forward)
        self._grammars.launch_drafts(forward)
        self.context.captures.inputs(view, plan.step, requests)
        launch_target(self.context, forward)
        self._sampler.logprobs.keep(forward)
        if plan.is_spoiled:
            spoiling.launch_logits(self.context, forward, batch.rows)
        self._grammars.launch_masks(forward)
        processing.launch(self.context, forward)
        self._sampler.launch(forward, step)
        if self._is_aligned:
            launch_state_copy(self.context, forward)
        if self._functions.runs_drafter(rows):
            self._drafter(self.context, forward)
        step.drafts = self._drafts_to_host.launch(forward)
        self.context.captures.drafted(view, plan.step, requests)
        self.context.captures.state(view, plan.step, requests)
        self._inputs_read.record(self.compute)
        return step

    def _stage(self, plan: Plan, step: Step, previous: Step | None, shape: Shape, named: SpecialRows) -> None:
        """Write a step's inputs to pinned memory; enqueue their copies to the device."""
        machine, memory, functions, batch = self._machine, self.memory, self._functions, self.batch
        staging = memory.staging[functions.staging_slot(plan.step, len(memory.staging))]
        prev_positions = batch.prev_positions()
        accepted: Sequence[int] = ()
        if self.spec.accepted_counts == "host":
            counts = None
            if previous is not None and previous.accepted is not None and previous.counts_done is not None:
                counts = CountsInFlight(machine, previous.counts_done, previous.accepted, previous.number)
            accepted = functions.gather_counts(counts, prev_positions, step.rows, batch.moves)
        backups = backup_tokens(batch.rows, functions.backup_index)
        taken_over: Sequence[int] = ()
        if self.spec.prefix_cache and self._is_aligned:
            taken_over = tuple(functions.block_to_resume_from(row, self.spec.block_size) for row in step.rows)
        self._log.append(host_observations.observe_launch(plan.step, batch.rows, backups))
        fresh = blocks_to_poison(plan)
        before = previous.rows if previous is not None else ()
        with machine.host(staging.inputs.all, "w") as staged:
            table = staged[: memory.layout.tokens].reshape(len(FIELDS), -1)
            write_rows(
                table,
                batch.rows,
                shape,
                functions.pad_state_slots,
                before=before,
                prev_positions=prev_positions,
                backups=backups,
                accepted=accepted,
                taken_over=taken_over,
            )
            self._write(staged, shape, fresh, named)
            if plan.is_spoiled:
                spoiling.stage_drafts(self.context, staged, batch.rows, prev_positions)
        self._copy_inputs(staging)
        self._copy_scripts(plan, staging)
        processing.copy_lines(self.context, machine, plan, staging)
        if named.grammar:
            self._grammars.stage(plan, batch.rows)
        self._inputs_ready.record(self.h2d)
        self.compute.wait(self._inputs_ready)
        if fresh:
            start = memory.layout.fresh_blocks
            span = memory.inputs.span(start, start + len(fresh), "fresh_blocks")
            kv, drafter_kv, size = memory.kv.all, memory.drafter_kv.all, self.spec.block_size
            poisoned = self.context.arguments(Poison, span, kv, drafter_kv, len(fresh), size)
            self.compute.launch(functions.poison, poisoned)
            if self._is_aligned:
                launch_poison(self.context, span, len(fresh))
            self.context.captures.poisoned(fresh, plan.step, tuple(request for request, _ in step.keys))

    def _copy_inputs(self, staging: Staging) -> None:
        """Enqueue the copy of inputs to the device, after the last reader of the previous inputs."""
        copied = self.context.arguments(CopyInputs, staging.inputs.all, self.memory.inputs.all)
        self._functions.wait_for_readers(self.h2d, self._inputs_read)
        self.h2d.launch(self._functions.copy_inputs, copied)

    def _write(self, staged: NDArray[np.int64], shape: Shape, fresh: Sequence[int], named: SpecialRows) -> None:
        """Write tokens, block table and row fields of a step to pinned memory."""
        rows, layout = self.batch.rows, self.memory.layout
        ids = staged[layout.tokens : layout.tokens + shape.num_tokens]
        write_tokens(ids, staged[layout.token_row : layout.token_row + shape.num_tokens], rows, shape)
        drafts = self.host_drafts.columns
        if drafts:
            staged[layout.host_drafts : layout.host_drafts + len(drafts)] = drafts
        write_block_table(staged[layout.block_table : layout.fresh_blocks].reshape(-1, layout.max_blocks), rows)
        if fresh:
            staged[layout.fresh_blocks : layout.fresh_blocks + len(fresh)] = fresh
        if self._sampler.chance.is_needed(named):
            self._sampler.chance.stage(staged, rows)
        for index, indexes in enumerate(named[: len(NAMED)]):
            if indexes:
                start = layout.special_rows + index * self.memory.rows_max
                staged[start : start + len(indexes)] = indexes

    def _copy_scripts(self, plan: Plan, staging: Staging) -> None:
        """Write and copy the scripted draft tokens of starting requests."""
        length = self.spec.max_model_len
        for row in plan.rows:
            if row.scheduled.step_in_epoch == 0:
                slot = row.request.state_slot
                line = staging.scripts.span(slot * length, (slot + 1) * length)
                with self._machine.host(line, "w") as staged:
                    staged[:] = row.request.script
                target = self.memory.script.span(slot * length, (slot + 1) * length)
                self.h2d.launch(self._functions.copy_script, self.context.arguments(CopyScript, line, target))

    def _correct(self, step: Step) -> None:
        """Replace the computed counts of batch rows, which assume full acceptance, by the true ones."""
        if step.counts is not None and step.counts_done is not None:
            step.counts_done.synchronize()
            with self._machine.host(step.counts, "r", step.number) as landed:
                valid = tuple(landed.data)
            known = len(step.computed)
            assert known == len(step.keys), f"step {step.number}: {known} true counts for {len(step.keys)} rows"
            here = {row.key: row for row in self.batch.rows}
            for index, key in enumerate(step.keys):
                row = here.get(key)
                if row is not None:
                    row.num_computed = self._functions.true_count(step.computed[index], step.rows[index], valid[index])
            self._log += (Corrected(step.number), host_observations.observe_correction(step, here))
        else:
            self._log.append(Corrected(step.number))

    def output(self, step: Step) -> Sequence[Sequence[int]]:
        """Wait for a step's sampled tokens to arrive on the host; return them by row.

        Return the valid ones of each row, none for discarded rows.
        """
        if step.output_done is not None:
            self._functions.wait_for_output(step.output_done)
        if step.output is None:
            return ()
        with self._machine.host(step.output, "r", step.number) as landed:
            columns = tuple(landed.data)
        width, is_token = 1 + self.spec.num_speculative_tokens, NO_TOKEN.__ne__
        return tuple(
            () if row.discard else tuple(filter(is_token, columns[index * width : (index + 1) * width]))
            for index, row in enumerate(step.rows)
        )

    def logprobs(self, step: Step, outputs: Sequence[Sequence[int]]) -> Sequence[Sequence[TokenLogprobs]] | None:
        """Return a step's logprobs by row; call `output` first; None if no row wants logprobs."""
        if step.logprobs is None:
            return None
        return self._sampler.logprobs.read(step.logprobs, step.number, outputs, len(self.batch.rows))

    def drafts(self, step: Step) -> Sequence[Sequence[int]] | None:
        """Wait for a step's draft tokens to arrive on the host; return them by row.

        None if the host does not use them.
        """
        return self._drafts_to_host.read(step.drafts, step.number) if step.drafts is not None else None

    def release(self, request: Request) -> None:
        """Forget a request whose blocks are being freed; capture its KV cache for the judges."""
        if self._functions.forgets_drafts(request):
            self.host_drafts.forget(request)
        self.context.captures.caches(self._machine.step, request.index, request.blocks, "freed")
