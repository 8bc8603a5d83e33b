"""Prepare a step on the host and enqueue it on the lanes."""

from collections.abc import Callable, Sequence

from scenarios.spec import EngineSpec
from workers.engine.counts import CountsInFlight
from workers.engine.input_batch import InputBatch
from workers.engine.memory import FIELDS, Memory, Staging, View
from workers.engine.parts import Parts
from workers.engine.probes import Probes
from workers.engine.request import Plan, Request
from workers.engine.staging import Shape, backup_tokens, row_table, shape_of, token_table, write_block_table
from workers.engine.step import Step
from workers.kernels.signature import NO_TOKEN
from workers.lanes.simulated import Machine
from workers.log import Corrected, Entry, Launched
from workers.observation import Observation, Recorder

LANES = ("compute", "h2d", "d2h_output", "d2h_counts")


class Runner:
    """One worker: its input batch, its buffers, its lanes."""

    def __init__(
        self,
        spec: EngineSpec,
        parts: Parts,
        machine: Machine,
        recorder: Recorder,
        log: list[Entry | Observation],
        probes: dict[str, int],
    ) -> None:
        self.spec = spec
        self.memory = Memory(spec, machine)
        self.batch = InputBatch(parts.tokens_of, parts.permute_rows)
        self._parts = parts
        self._machine = machine
        self._log = log
        self._probes = probes
        self.compute, self.h2d, self.d2h_output, self.d2h_counts = (machine.lane(name) for name in LANES)
        self.inputs_ready = machine.event("inputs_ready")
        self.inputs_read = machine.event("inputs_read")
        self.sampled_ready = machine.event("sampled_ready")
        self.output_done = [machine.event("output_done") for _ in self.memory.outputs]
        self.counts_done = [machine.event("counts_done") for _ in self.memory.counts]
        self.probes = Probes(spec, self.memory, self.compute, recorder)
        self._previous: Step | None = None

    def launch(self, plan: Plan, permute: Callable[[int], Sequence[int]] | None) -> Step:
        """Enqueue a step, then correct the host's mirrors by the step before."""
        machine, batch = self._machine, self.batch
        previous = self._previous
        if previous is not None and previous.rows:
            previous.computed = [row.num_computed for row in batch.rows]
        batch.update(plan, permute)
        self._count_moves(previous, permute is not None)
        machine.point("condense")
        step = self._enqueue(plan, previous) if batch.rows else self._skip(plan)
        machine.point("launched")
        if previous is not None:
            self._correct(previous)
        batch.remember()
        self._previous = step
        return step

    def _skip(self, plan: Plan) -> Step:
        self._probes["empty_step"] += 1
        self._log.append(Launched(plan.step, (), 0, 0, False))
        return Step(plan.step)

    def _count_moves(self, previous: Step | None, permuted: bool) -> None:
        moves = self.batch.moves
        if previous is None or not moves:
            return
        what = "reorder" if permuted else "condense"
        self._probes[what] += 1
        if self.spec.depth > 1:
            self._probes[what + "_in_flight"] += 1

    def _enqueue(self, plan: Plan, previous: Step | None) -> Step:
        batch, memory = self.batch, self.memory
        rows = tuple(row.plan for row in batch.rows)
        keys = tuple(row.key for row in batch.rows)
        requests = tuple(key[0] for key in keys)
        shape = shape_of(batch.rows, self.spec, self._parts.is_uniform)
        self._probes["padding"] += shape.num_rows > len(rows)
        self._probes["uniform"] += shape.uniform
        view = memory.view(shape.num_rows, shape.num_tokens)
        step = Step(plan.step, rows, keys)
        self._log.append(Launched(plan.step, requests, shape.num_rows, shape.num_tokens, shape.uniform))
        self._stage(plan, previous, shape)
        length_max = max(row.num_computed + row.plan.n for row in batch.rows)
        num_blocks_max = min(-(-length_max // self.spec.block_size), memory.max_blocks)
        self._launch_inputs(view, plan.step, requests)
        self._launch_target(view, num_blocks_max, max(row.n for row in rows))
        self._launch_sampler(view, step, requests, previous)
        self._launch_drafter(view, num_blocks_max, plan.k_step)
        self.probes.state(view, plan.step, requests)
        self.inputs_read.record(self.compute)
        return step

    def _stage(self, plan: Plan, previous: Step | None, shape: Shape) -> None:
        """Write the step's inputs into its slot of the staging ring, and enqueue their copies."""
        machine, memory, parts, batch = self._machine, self.memory, self._parts, self.batch
        staging = memory.staging[parts.staging_slot(plan.step, len(memory.staging))]
        prev_positions = batch.prev_positions()
        accepted = [0] * len(batch.rows)
        if self.spec.accepted_counts == "host":
            counts = None
            if previous is not None and previous.accepted is not None and previous.counts_done is not None:
                counts = CountsInFlight(machine, previous.counts_done, previous.accepted, previous.number)
            accepted = parts.gather_counts(counts, prev_positions, [row.plan for row in batch.rows], batch.moves)
        backups = backup_tokens(batch.rows, parts.backup_index)
        before = previous.rows if previous is not None else ()
        table = row_table(batch.rows, before, shape, prev_positions, backups, accepted, parts.pad_state_slots)
        self._log.append(
            Observation(
                "launched",
                plan.step,
                tuple(row.key[0] for row in batch.rows),
                {
                    "mirror_computed": [row.num_computed for row in batch.rows],
                    "mirror_no_spec": [row.num_tokens_no_spec for row in batch.rows],
                    "discard": [row.plan.discard for row in batch.rows],
                    "backup": backups,
                },
            )
        )
        fresh = [block for row in plan.rows for block in row.new_blocks]
        self._write(staging, table, shape, fresh)
        parts.wait_for_readers(self.h2d, self.inputs_read)
        self.h2d.launch(parts.copy_inputs, staging.inputs.all, memory.inputs.all)
        self._copy_scripts(plan, staging)
        self.inputs_ready.record(self.h2d)
        self.compute.wait(self.inputs_ready)
        if fresh:
            start = memory.layout.fresh_blocks
            span, size = memory.inputs.span(start, start + len(fresh)), self.spec.block_size
            self.compute.launch(parts.poison, span, memory.kv.all, memory.drafter_kv.all, len(fresh), size)

    def _write(self, staging: Staging, table: list[list[int]], shape: Shape, fresh: list[int]) -> None:
        """Write everything the host says about a step into its staging slot."""
        rows, layout = self.batch.rows, self.memory.layout
        ids, token_row = token_table(rows, shape)
        with self._machine.host(staging.inputs.all, "w") as staged:
            staged[: layout.tokens].reshape(len(FIELDS), -1)[:, : len(table[0])] = table
            staged[layout.tokens : layout.tokens + shape.num_tokens] = ids
            staged[layout.token_row : layout.token_row + shape.num_tokens] = token_row
            write_block_table(staged[layout.block_table : layout.fresh_blocks].reshape(-1, layout.max_blocks), rows)
            staged[layout.fresh_blocks : layout.fresh_blocks + len(fresh)] = fresh

    def _copy_scripts(self, plan: Plan, staging: Staging) -> None:
        """Stage and copy the drafts that rows which start are to be proposed."""
        length = self.spec.max_model_len
        for row in plan.rows:
            if row.k == 0:
                slot = row.request.state_slot
                line = staging.scripts.span(slot * length, (slot + 1) * length)
                with self._machine.host(line, "w") as staged:
                    staged[:] = row.request.script
                target = self.memory.script.span(slot * length, (slot + 1) * length)
                self.h2d.launch(self._parts.copy_script, line, target)

    def _launch_inputs(self, view: View, step: int, requests: tuple[int, ...]) -> None:
        launch, parts, memory, spec = self.compute.launch, self._parts, self.memory, self.spec
        launch(
            parts.correct_num_computed,
            view.prev_position,
            view.prev_num_scheduled,
            view.prev_num_drafts,
            view.computed_host,
            memory.valid.all,
            memory.num_computed.all,
            view.num_rows,
        )
        launch(
            parts.positions_and_lengths,
            view.num_computed,
            view.query_start,
            view.num_scheduled,
            view.token_row,
            view.positions,
            view.seq_lens,
            view.num_tokens,
        )
        launch(
            parts.slot_mapping,
            view.positions,
            view.token_row,
            view.block_table,
            view.slots,
            spec.block_size,
            memory.max_blocks,
        )
        if spec.layers == "hybrid" and spec.accepted_counts == "device":
            launch(parts.gather_accepted, memory.slot_accepted.all, view.state_slot, view.accepted_read)
        launch(
            parts.gather_input_ids,
            view.host_ids,
            memory.next_tokens.all,
            memory.draft_tokens.all,
            view.prev_position,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.input_ids,
            view.scheduled_drafts,
            spec.num_speculative_tokens,
        )
        self.probes.inputs(view, step, requests)

    def _launch_target(self, view: View, num_blocks_max: int, num_queries_max: int) -> None:
        launch, parts, memory, spec = self.compute.launch, self._parts, self.memory, self.spec
        k = spec.num_speculative_tokens
        launch(parts.kv_write, view.input_ids, view.positions, view.slots, view.hidden, memory.kv.all, 0)
        launch(
            parts.attention,
            memory.kv.all,
            view.block_table,
            view.token_row,
            view.positions,
            view.hidden,
            view.attended,
            spec.block_size,
            memory.max_blocks,
            num_blocks_max,
        )
        if spec.layers == "hybrid":
            launch(
                parts.recurrent_update,
                view.hidden,
                view.num_computed,
                view.query_start,
                view.num_scheduled,
                view.num_drafts,
                view.state_slot,
                view.accepted_host if spec.accepted_counts == "host" else view.accepted_read,
                memory.states.all,
                memory.conv.all,
                num_queries_max,
                k,
                spec.conv_width,
            )
        launch(
            parts.compute_logits,
            view.hidden,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.logits,
            k,
            spec.vocab_size,
        )

    def _launch_sampler(self, view: View, step: Step, requests: tuple[int, ...], previous: Step | None) -> None:
        launch, parts, memory, spec = self.compute.launch, self._parts, self.memory, self.spec
        k = spec.num_speculative_tokens
        if previous is not None and previous.output_done is not None:
            self.compute.wait(previous.output_done)
        launch(
            parts.rejection_sample,
            view.logits,
            view.scheduled_drafts,
            view.num_scheduled,
            view.num_drafts,
            view.invalid,
            view.sampled,
            k,
            spec.vocab_size,
        )
        if previous is not None and previous.counts_done is not None:
            self.compute.wait(previous.counts_done)
        launch(parts.count_accepted, view.sampled, view.state_slot, view.accepted, memory.slot_accepted.all, 1 + k)
        launch(
            parts.prepare_next_tokens,
            view.sampled,
            view.discard,
            view.backup,
            view.input_ids,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.next_tokens,
            view.valid,
            1 + k,
            spec.vocab_size,
        )
        self.probes.sampled(view, step.number, requests)
        self.sampled_ready.record(self.compute)
        self._launch_copies(view, step)

    def _launch_copies(self, view: View, step: Step) -> None:
        parts, memory = self._parts, self.memory
        width = 1 + self.spec.num_speculative_tokens
        slot = step.number % len(memory.outputs)
        step.output = memory.outputs[slot].span(0, view.num_rows * width)
        step.output_done = self.output_done[slot]
        self.d2h_output.wait(self.sampled_ready)
        self.d2h_output.launch(parts.copy_output, view.sampled, step.output)
        step.output_done.record(self.d2h_output)
        slot = step.number % len(memory.counts)
        step.counts = memory.counts[slot].span(0, view.num_rows)
        step.counts_done = self.counts_done[slot]
        self.d2h_counts.wait(self.sampled_ready)
        self.d2h_counts.launch(parts.copy_counts, view.valid, step.counts)
        if self.spec.accepted_counts == "host":
            step.accepted = memory.accepted_counts.span(0, view.num_rows)
            self.d2h_counts.launch(parts.copy_accepted, view.accepted, step.accepted)
        step.counts_done.record(self.d2h_counts)

    def _launch_drafter(self, view: View, num_blocks_max: int, k_step: int) -> None:
        launch, parts, memory, spec = self.compute.launch, self._parts, self.memory, self.spec
        launch(
            parts.prepare_inputs_padded,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.discard,
            view.valid,
            view.token_index,
        )
        launch(
            parts.draft_first_pass,
            view.hidden,
            view.input_ids,
            view.positions,
            view.slots,
            view.token_index,
            view.next_tokens,
            view.num_scheduled,
            view.drafter_hidden,
            memory.drafter_kv.all,
        )
        launch(
            parts.draft_chain,
            view.drafter_hidden,
            view.positions,
            view.token_index,
            view.num_scheduled,
            view.valid,
            view.state_slot,
            view.block_table,
            memory.script.all,
            memory.drafter_kv.all,
            view.raw,
            view.draft_tokens,
            spec.block_size,
            memory.max_blocks,
            num_blocks_max,
            spec.max_model_len,
            spec.num_speculative_tokens,
            k_step,
        )

    def _correct(self, step: Step) -> None:
        """Assign the true counts of the step's rows to the mirrors of the rows that are still in the batch."""
        if step.counts is not None and step.counts_done is not None:
            step.counts_done.synchronize()
            with self._machine.host(step.counts, "r", step.number) as landed:
                valid = landed.tolist()
            here = {row.key: row for row in self.batch.rows}
            requests, values = [], []
            for index, key in enumerate(step.keys):
                row = here.get(key)
                if row is not None:
                    row.num_computed = self._parts.true_count(step.computed[index], step.rows[index], valid[index])
                    requests.append(key[0])
                    values.append(row.num_computed)
            self._log.append(Observation("corrected", step.number, tuple(requests), {"corrected_computed": values}))
        self._log.append(Corrected(step.number))

    def output(self, step: Step) -> list[list[int]]:
        """Wait for a step's sampled tokens and return the valid ones of each row; discarded rows have none."""
        if step.output is None or step.output_done is None:
            return []
        self._parts.wait_for_output(step.output_done)
        with self._machine.host(step.output, "r", step.number) as landed:
            columns = landed.reshape(-1, 1 + self.spec.num_speculative_tokens).tolist()
        return [
            [] if row.discard else [token for token in tokens if token != NO_TOKEN]
            for row, tokens in zip(step.rows, columns, strict=False)
        ]

    def scan(self, request: Request) -> None:
        """Capture the caches of a request that gives its blocks back."""
        self.probes.caches(self._machine.step, request.index, request.blocks, "freed")
