"""Sample a step, count what is valid, and send both to the host."""

from workers.engine.context import Context, Forward
from workers.engine.logprobs import Logprobs
from workers.engine.random_sampling import Chance
from workers.engine.step import Step
from workers.lanes.lane import Machine


class Sampler:
    """The sampler of one engine, with the events that its results are waited for by."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._sampled_ready = machine.event("sampled_ready")
        self._output_done = [machine.event("output_done") for _ in context.memory.outputs]
        self._counts_done = [machine.event("counts_done") for _ in context.memory.counts]
        self.logprobs = Logprobs(context, machine)
        self.chance = Chance(context, machine)
        # The step that used the buffers last: an empty one uses none.
        self._last: Step | None = None

    def launch(self, forward: Forward, step: Step) -> None:
        """Enqueue what samples a step and counts it, and the copies of its results; `step` learns where they land."""
        context, view = self._context, forward.view
        launch, parts, memory, spec = context.compute.launch, context.parts, context.memory, context.spec
        k = spec.num_speculative_tokens
        last, self._last = self._last, step
        if last is not None and last.output_done is not None:
            context.compute.wait(last.output_done)
        if self.chance.is_needed(forward.named):
            self.chance.launch(forward)
        else:
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
        if last is not None and last.counts_done is not None:
            context.compute.wait(last.counts_done)
        launch(
            parts.count_sampled,
            view.sampled,
            view.discard,
            view.backup,
            view.input_ids,
            view.query_start,
            view.num_scheduled,
            view.num_drafts,
            view.state_slot,
            memory.slot_accepted.all,
            view.accepted,
            view.valid,
            view.next_tokens,
            view.token_index,
            1 + k,
            spec.vocab_size,
        )
        context.captures.sampled(view, step.number, forward.requests, bool(forward.named.processed))
        self.logprobs.launch(forward)
        self._sampled_ready.record(context.compute)
        self._launch_copies(forward, step)

    def _launch_copies(self, forward: Forward, step: Step) -> None:
        context, view = self._context, forward.view
        parts, memory = context.parts, context.memory
        width = 1 + context.spec.num_speculative_tokens
        slot = step.number % len(memory.outputs)
        step.output = memory.outputs[slot].span(0, view.num_rows * width)
        step.output_done = self._output_done[slot]
        context.d2h_output.wait(self._sampled_ready)
        context.d2h_output.launch(parts.copy_output, view.sampled, step.output)
        step.logprobs = self.logprobs.launch_copies(forward)
        step.output_done.record(context.d2h_output)
        slot = step.number % len(memory.counts)
        step.counts = memory.counts[slot].span(0, view.num_rows)
        step.counts_done = self._counts_done[slot]
        context.d2h_counts.wait(self._sampled_ready)
        context.d2h_counts.launch(parts.copy_counts, view.valid, step.counts)
        if context.spec.accepted_counts == "host":
            step.accepted = memory.accepted_counts.span(0, view.num_rows)
            context.d2h_counts.launch(parts.copy_accepted, view.accepted, step.accepted)
        step.counts_done.record(context.d2h_counts)
