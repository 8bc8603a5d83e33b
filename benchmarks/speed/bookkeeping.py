"""Compare two fused GPU kernels with the same arithmetic as separate tensor operations.

Run with `python -m benchmarks.speed.bookkeeping`. Before the model: computed counts by the rows of the previous step,
sequence lengths, positions, slot mapping, token ids, draft tokens. After sampling: accepted counts, valid counts, next
tokens. The separate operations omit slot mapping, token ids and draft tokens. A compiled kernel is launched without
Triton's dispatch; a graph replays a captured call.
"""

import statistics
import sys

import numpy as np
import torch
from torch import Tensor

from benchmarks.speed.graphs import captured
from benchmarks.speed.turns import Call, percentile, ratio, turn_times_us
from workers.kernels.count_sampled.definition import CountSampled
from workers.kernels.count_sampled.triton import count_sampled
from workers.kernels.launch.triton import bind, current_stream
from workers.kernels.prepare_inputs.definition import PrepareInputs
from workers.kernels.prepare_inputs.triton import prepare_inputs
from workers.kernels.sentinels import NO_TOKEN

NUM_SPECULATIVE_TOKENS = 3
WIDTH = 1 + NUM_SPECULATIVE_TOKENS
BLOCK_SIZE, MAX_BLOCKS, VOCAB_SIZE = 16, 256, 32000
NUM_ROWS = (8, 64, 256)
TURNS = 300
GRAPH_CALLS = 20


class Step:
    """Device buffers of a decode step of `num_rows` batch rows, each moved to another row."""

    def __init__(self, num_rows: int) -> None:
        random = np.random.default_rng(num_rows)
        tokens = num_rows * WIDTH

        def integers(low: int, high: int, length: int) -> Tensor:
            return torch.from_numpy(random.integers(low, high, length)).cuda()

        def scratch(length: int) -> Tensor:
            return torch.full((length,), -7, dtype=torch.int64, device="cuda")

        rows = torch.arange(num_rows, device="cuda")
        counts = integers(1, WIDTH + 1, num_rows)
        columns = torch.arange(WIDTH, device="cuda")
        sampled = integers(0, VOCAB_SIZE, tokens).reshape(num_rows, WIDTH)
        self.sampled = torch.where(columns < counts[:, None], sampled, NO_TOKEN).flatten()
        self.previous = torch.from_numpy(random.permutation(num_rows)).cuda()
        self.prev_scheduled, self.prev_drafts = torch.full_like(rows, WIDTH), torch.full_like(rows, WIDTH - 1)
        self.prev_computed, self.computed_host = integers(100, 900, num_rows), integers(100, 900, num_rows)
        self.scheduled, self.drafts, self.start = self.prev_scheduled, self.prev_drafts, rows * WIDTH
        self.discard, self.backup, self.slot = torch.zeros_like(rows), scratch(num_rows), rows
        self.host_ids, self.token_row = scratch(tokens), rows.repeat_interleave(WIDTH)
        self.table = integers(0, num_rows * MAX_BLOCKS, num_rows * MAX_BLOCKS)
        self.next, self.draft_tokens = (
            integers(0, VOCAB_SIZE, num_rows),
            integers(0, VOCAB_SIZE, num_rows * (WIDTH - 1)),
        )
        self.slot_accepted, self.accepted, self.valid = counts.clone(), scratch(num_rows), counts.clone()
        self.index, self.computed, self.lens, self.read = (scratch(num_rows) for _ in range(4))
        self.positions, self.slots, self.ids = (scratch(tokens) for _ in range(3))
        self.scheduled_drafts = scratch(num_rows * (WIDTH - 1))

    def fused(self) -> None:
        """Launch the two fused kernels."""
        prepare_inputs(self.inputs())
        count_sampled(self.counts())

    def inputs(self) -> PrepareInputs:
        """Return the arguments of the kernel `prepare_inputs`."""
        return PrepareInputs(
            self.previous, self.prev_scheduled, self.prev_drafts, self.prev_computed, self.valid, self.next,
            self.draft_tokens, self.slot_accepted, self.computed_host, self.start, self.scheduled, self.drafts,
            self.slot, self.host_ids, self.token_row, self.table, self.computed, self.lens, self.read,
            self.positions, self.slots, self.ids, self.scheduled_drafts, BLOCK_SIZE, MAX_BLOCKS, WIDTH - 1, VOCAB_SIZE,
        )  # fmt: skip

    def counts(self) -> CountSampled:
        """Return the arguments of the kernel `count_sampled`."""
        return CountSampled(
            self.sampled, self.discard, self.backup, self.ids, self.start, self.scheduled, self.drafts, self.slot,
            self.slot_accepted, self.accepted, self.valid, self.next, self.index, WIDTH, VOCAB_SIZE,
        )  # fmt: skip

    def separate(self) -> None:
        """Compute counts, lengths, positions and next tokens with separate tensor operations."""
        row = self.previous.clamp(min=0)
        true = self.prev_computed[row] + self.prev_scheduled[row] - self.prev_drafts[row] + self.valid[row] - 1
        self.computed.copy_(torch.where(self.previous >= 0, true, self.computed_host))
        torch.add(self.computed, self.scheduled, out=self.lens)
        token_row = self.token_row
        self.positions.copy_(
            self.computed[token_row] + torch.arange(len(token_row), device="cuda") - self.start[token_row]
        )
        sampled = self.sampled.view(-1, WIDTH)
        accepted = (sampled != NO_TOKEN).sum(1)
        self.accepted.copy_(accepted)
        self.valid.copy_(torch.where(self.discard > 0, 0, accepted))
        last = sampled.gather(1, (accepted - 1).clamp(min=0)[:, None])[:, 0]
        self.next.copy_(torch.where(self.discard > 0, self.backup, last))


def bound(step: Step) -> Call:
    """Return the launches of both kernels, with their arguments bound."""
    launches = [
        *bind(prepare_inputs, step.inputs()),
        *bind(count_sampled, step.counts()),
    ]
    stream = current_stream()

    def call() -> None:
        for launch in launches:
            launch(stream)

    return call


def check_equal(num_rows: int) -> None:
    """Assert that fused kernels and separate operations compute the same values."""
    one, other = Step(num_rows), Step(num_rows)
    one.fused()
    other.separate()
    for name in ("computed", "lens", "positions", "accepted", "valid", "next"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name


def main() -> int:
    """Print the time of fused and separate operations, in microseconds by number of batch rows."""
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU", file=sys.stderr)
        return 3
    print(f"on {torch.cuda.get_device_name()}, K = {NUM_SPECULATIVE_TOKENS}, microseconds a step, median of {TURNS}")
    print(f"{'rows':>5} {'form':18} {'eager':>8} {'P99':>8} {'graph':>8} {'eager ratio':>12} {'graph ratio':>12}")
    for num_rows in NUM_ROWS:
        check_equal(num_rows)
        step = Step(num_rows)
        forms: dict[str, Call] = {"separate": step.separate, "fused": step.fused, "fused, bound": bound(step)}
        eager = turn_times_us(forms, TURNS, torch.cuda.synchronize)
        # A bound launch names its stream, but capture uses another one; the captured kernels would be the same.
        graphs = {name: captured([forms[name]] * GRAPH_CALLS) for name in ("separate", "fused")}
        replayed = turn_times_us(graphs, TURNS, torch.cuda.synchronize)
        graph = {name: [time / GRAPH_CALLS for time in times] for name, times in replayed.items()}
        graph["fused, bound"] = graph["fused"]
        for name in forms:
            print(
                f"{num_rows:5} {name:18} {statistics.median(eager[name]):8.2f} {percentile(eager[name], 99):8.2f} "
                f"{statistics.median(graph[name]):8.2f} {ratio(eager[name], eager['separate']):12.2f} "
                f"{ratio(graph[name], graph['separate']):12.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
