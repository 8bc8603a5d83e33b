"""Sampler: sample a step, count the valid tokens, and copy both to the host."""

from workers.engine.context import Context, Forward, arguments_of
from workers.engine.logprobs import Logprobs
from workers.engine.memory import ShapeView
from workers.engine.random_sampling import RandomSampling
from workers.engine.step import Step
from workers.kernels.copies.definition import CopyAccepted, CopyCounts, CopyOutput
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.rejection_sample.definition import RejectionSample
from workers.lanes.lane import Machine

_rejection_sample = arguments_of(RejectionSample)


class Sampler:
    """The sampler of one engine, with the events that mark its results as ready."""

    def __init__(self, context: Context, machine: Machine) -> None:
        self._context = context
        self._sampled_ready = machine.event("sampled_ready")
        self._output_done = [machine.event("output_done") for _ in context.memory.outputs]
        self._counts_done = [machine.event("counts_done") for _ in context.memory.counts]
        self.logprobs = Logprobs(context, machine)
        self.chance = RandomSampling(context, machine)
        # The last step that used the buffers; an empty step uses none.
        self._last: Step | None = None

    def launch(self, forward: Forward, step: Step) -> None:
        """Enqueue the ops that sample a step and count tokens, and the copies to the host.

        `step` records where the copies are stored.
        """
        context, view = self._context, forward.view
        launch, functions = context.compute.launch, context.functions
        last, self._last = self._last, step
        assert last is None or last.number < step.number, f"step {step.number} is sampled twice"
        if last is not None and last.output_done is not None:
            context.compute.wait(last.output_done)
        if self.chance.is_needed(forward.named):
            self.chance.launch(forward)
        else:
            launch(functions.rejection_sample, context.cached_in_view(_rejection_sample, view.shape))
        if last is not None and last.counts_done is not None:
            context.compute.wait(last.counts_done)
        launch(functions.count_sampled, context.cached_in_view(_count_sampled, view.shape))
        context.captures.sampled(view, step.number, forward.requests, bool(forward.named.processed))
        self.logprobs.launch(forward)
        self._sampled_ready.record(context.compute)
        self._launch_copies(forward, step)

    def _launch_copies(self, forward: Forward, step: Step) -> None:
        context, view = self._context, forward.view
        functions, memory = context.functions, context.memory
        assert step.output is None, f"step {step.number}: its results are copied twice"
        assert len(step.rows) <= view.num_rows, (
            f"step {step.number}: {len(step.rows)} rows, but only {view.num_rows} are copied"
        )
        width = 1 + context.spec.num_speculative_tokens
        slot = step.number % len(memory.outputs)
        step.output = memory.outputs[slot].span(0, view.num_rows * width)
        step.output_done = self._output_done[slot]
        context.d2h_output.wait(self._sampled_ready)
        context.d2h_output.launch(functions.copy_output, context.arguments(CopyOutput, view.sampled, step.output))
        step.logprobs = self.logprobs.launch_copies(forward)
        step.output_done.record(context.d2h_output)
        slot = step.number % len(memory.counts)
        step.counts = memory.counts[slot].span(0, view.num_rows)
        step.counts_done = self._counts_done[slot]
        context.d2h_counts.wait(self._sampled_ready)
        context.d2h_counts.launch(functions.copy_counts, context.arguments(CopyCounts, view.valid, step.counts))
        if context.spec.accepted_counts == "host":
            step.accepted = memory.accepted_counts.span(0, view.num_rows)
            context.d2h_counts.launch(
                functions.copy_accepted, context.arguments(CopyAccepted, view.accepted, step.accepted)
            )
        step.counts_done.record(context.d2h_counts)


def _count_sampled(context: Context, view: ShapeView) -> CountSampled:
    spec = context.spec
    return context.bound(CountSampled, view, width=1 + spec.num_speculative_tokens)
