"""Measure top-k and top-p on a GPU against the time of reading the logits once.

Run with `python -m benchmarks.speed.logit_limits`. The limit is the size of the logits divided by the rate at which the
device copies memory. Eager calls launch compiled kernels without Triton's dispatch; a graph replays captured calls.
Each call uses one of several sets of buffers, together larger than the cache. `kept` is the largest share of a row's
logits that remain. Logits are normal with standard deviation 4, and 1 in `flat`.
"""

import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from benchmarks.speed.graphs import eager_and_graph_us
from benchmarks.speed.rejection_sampling import BYTES_OF_SETS, SHAPES, TURNS, WIDTH, K, copy_rate, launched
from benchmarks.speed.turns import Call, percentile
from workers.kernels.launch.triton import bind
from workers.kernels.logit_floors.definition import LogitFloors, workspace_length_of
from workers.kernels.logit_floors.triton import logit_floors

# Standard deviation, top-k (0: none) and top-p of each kind.
KINDS: dict[str, tuple[float, int, float]] = {
    "none": (4, 0, 1),
    "k = 50": (4, 50, 1),
    "k = 1000": (4, 1000, 1),
    "p = 0.9": (4, 0, 0.9),
    "k = 50, p = 0.9": (4, 50, 0.9),
    "flat, p = 0.9": (1, 0, 0.9),
}


class Step:
    """Device buffers of one step's logits, with a top-k or top-p limit."""

    def __init__(self, kind: str, vocab_size: int, num_rows: int, seed: int) -> None:
        spread, top_k, top_p = KINDS[kind]
        cuda = torch.Generator("cuda").manual_seed(seed)
        self.lines = spread * torch.randn((num_rows * WIDTH, vocab_size), generator=cuda, device="cuda")
        self.top_k, self.top_p = top_k, top_p
        self.floors = torch.full((num_rows * WIDTH,), torch.nan, device="cuda")
        self.arguments = LogitFloors(
            logits=self.lines.flatten(),
            temperature=torch.ones(num_rows, device="cuda"),
            top_k=torch.full((num_rows,), top_k, device="cuda"),
            top_p=torch.full((num_rows,), float(top_p), device="cuda"),
            num_drafts=torch.full((num_rows,), K, device="cuda"),
            floors=self.floors,
            workspace=torch.full((num_rows * WIDTH * workspace_length_of(vocab_size),), torch.nan, device="cuda"),
            num_speculative_tokens=K,
            vocab_size=vocab_size,
            logits_stride=vocab_size,
        )

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes of logits that the op must read."""
        return 4 * self.lines.numel()

    def bound(self) -> Callable[[], None]:
        """Return the op as launches of compiled kernels."""
        return launched(bind(logit_floors, self.arguments))

    def kept(self) -> float:
        """Check the computed limits with a sort; return the largest kept share of a row."""
        ordered = self.lines.sort(dim=1, descending=True).values
        floors = self.floors[:, None]
        limited = ordered[:, : self.top_k] if self.top_k else ordered
        if self.top_p < 1:
            weights: Tensor = limited.double().softmax(1)
            before = (weights * (limited > floors)).sum(1)
            at = (weights * (limited >= floors)).sum(1)
            assert (before < self.top_p + 1e-6).all()
            assert (at > self.top_p - 1e-6).all()
        elif self.top_k:
            assert torch.equal(self.floors, limited[:, -1])
        else:
            assert torch.isneginf(self.floors).all()
        return float((ordered >= floors).sum(1).max() / ordered.shape[1])


def main() -> int:
    """Print microseconds of top-k and top-p, relative to the read time; 3 without a GPU."""
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU", file=sys.stderr)
        return 3
    rate = copy_rate()
    print(f"on {torch.cuda.get_device_name()}, copies {rate / 1e6:.2f} TB/s; K = {K}")
    print(f"microseconds a step, median of {TURNS}")
    print(f"{'V':>7} {'B':>4} {'kind':15} {'limit':>6} {'graph':>7} {'/limit':>6} {'eager':>7} {'P99':>7} {'kept':>8}")
    for vocab_size, num_rows in SHAPES:
        for kind in KINDS:
            first = Step(kind, vocab_size, num_rows, 0)
            num_sets = -(-BYTES_OF_SETS // first.num_bytes)
            steps = [first, *(Step(kind, vocab_size, num_rows, seed) for seed in range(1, num_sets))]
            calls: list[Call] = [step.bound() for step in steps]
            torch.cuda.synchronize()
            kept = max(step.kept() for step in steps)
            eager, graph = eager_and_graph_us(calls, TURNS)
            limit, replay = first.num_bytes / rate, statistics.median(graph) / num_sets
            print(
                f"{vocab_size:7} {num_rows:4} {kind:15} {limit:6.1f} {replay:7.1f} {replay / limit:6.2f} "
                f"{statistics.median(eager) / num_sets:7.1f} {percentile(eager, 99) / num_sets:7.1f} {kept:8.3%}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
