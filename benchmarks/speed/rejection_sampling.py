"""Measure rejection sampling from logits on a GPU against the time of moving its bytes.

Run with `python -m benchmarks.speed.rejection_sampling`. Draft logits are the target's plus noise, and draft tokens are
sampled from them, so that some are accepted. The limit is the size of the logits divided by the rate at which the
device copies memory. Eager calls launch compiled kernels without Triton's dispatch; a graph replays captured calls.
Each call uses one of several sets of buffers, together larger than the cache.
"""

import statistics
import sys
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from benchmarks.speed.graphs import eager_and_graph_us
from benchmarks.speed.turns import Call, percentile, turn_times_us
from workers.kernels.argument import Arguments
from workers.kernels.draw_noise.definition import DrawNoise
from workers.kernels.draw_noise.triton import draw_noise
from workers.kernels.launch.triton import bind, current_stream
from workers.kernels.probabilities.blocks import TILE_SIZE, block_size_of
from workers.kernels.residual_mass.definition import ResidualMass
from workers.kernels.residual_mass.triton import residual_mass
from workers.kernels.sampler_stats.definition import SamplerStats
from workers.kernels.sampler_stats.triton import sampler_stats
from workers.kernels.verify_drafts.definition import BLOCK, STANDARD, VerifyDrafts
from workers.kernels.verify_drafts.triton import verify_drafts

K = 3
WIDTH = 1 + K
SHAPES = ((32000, 8), (128256, 64), (151936, 128))
NUM_TRIES = 16
TURNS = 100
BYTES_OF_SETS = 1 << 28
COPY_BYTES = 1 << 32


class Step:
    """Device buffers of one verification; `kind` is greedy, point mass, standard or block."""

    def __init__(self, kind: str, vocab_size: int, num_rows: int, seed: int) -> None:
        cuda = torch.Generator("cuda").manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=cuda, device="cuda")

        def floats(length: int) -> Tensor:
            return torch.full((length,), torch.nan, device="cuda")

        def integers(length: int, value: int) -> Tensor:
            return torch.full((length,), value, dtype=torch.int64, device="cuda")

        self.kind, self.vocab_size, self.num_rows = kind, vocab_size, num_rows
        self.block_size = block_size_of(vocab_size)
        blocks = -(-vocab_size // self.block_size)
        logits = 4 * normal(num_rows, WIDTH, vocab_size)
        has_logits = kind in ("standard", "block")
        draft_logits = logits[:, :K] + normal(num_rows, K, vocab_size) if has_logits else logits[:0, :K]
        if has_logits:
            noise = torch.rand(draft_logits.shape, generator=cuda, device="cuda").log_().neg_().log_()
            drafts = (draft_logits - noise).argmax(2)
        else:
            drafts = logits[:, :K].argmax(2)
            drafts = torch.where(torch.rand(drafts.shape, generator=cuda, device="cuda") < 0.7, drafts, 0)
        self.logits, self.draft_logits, self.drafts = logits.flatten(), draft_logits.flatten(), drafts.flatten()
        self.slots = torch.arange(num_rows, device="cuda")
        self.floors = torch.full((num_rows * WIDTH,), -torch.inf, device="cuda")
        self.temperature = torch.full((num_rows,), 0.0 if kind == "greedy" else 1.0, device="cuda")
        self.num_drafts, self.scheduled = integers(num_rows, K), integers(num_rows, WIDTH)
        self.invalid, self.point_mass = integers(num_rows, 0), integers(num_rows, int(not has_logits))
        self.rates, self.status = floats(K), integers(num_rows, -7)
        self.block_max, self.block_sum = (
            floats(num_rows * (WIDTH + K) * blocks),
            floats(num_rows * (WIDTH + K) * blocks),
        )
        self.block_best = integers(num_rows * WIDTH * blocks, -7)
        self.tile_sum = floats(num_rows * WIDTH * blocks * (self.block_size // TILE_SIZE))
        self.residual = floats(num_rows * K * blocks)
        self.seeds = torch.arange(num_rows, device="cuda").to(torch.uint64)
        self.positions = integers(num_rows, 100 + seed)
        self.accept, self.select = floats(num_rows * K), floats(num_rows * WIDTH * (1 + NUM_TRIES) * 4)
        self.sampled = integers(num_rows * WIDTH, -7)

    @property
    def num_bytes(self) -> int:
        """Return the bytes of logits that the verification of all draft tokens reads."""
        return 4 * (self.logits.numel() + self.draft_logits.numel())

    def calls(self) -> list[tuple[Callable[[Any], None], Arguments]]:
        """Return the device ops of a verification with their arguments."""
        method = BLOCK if self.kind == "block" else STANDARD
        distributions: dict[str, Any] = {
            "logits": self.logits,
            "draft_logits": self.draft_logits,
            "draft_slots": self.slots,
            "floors": self.floors,
            "temperature": self.temperature,
            "num_drafts": self.num_drafts,
            "point_mass": self.point_mass,
            "block_max": self.block_max,
            "block_sum": self.block_sum,
            "num_speculative_tokens": K,
            "vocab_size": self.vocab_size,
            "logits_stride": self.vocab_size,
            "draft_stride": self.vocab_size,
            "block_size": self.block_size,
        }
        tiles: dict[str, Any] = {"block_best": self.block_best, "tile_sum": self.tile_sum, "tile_size": TILE_SIZE}
        mass: dict[str, Any] = {"drafts": self.drafts, "residual": self.residual}
        noise: dict[str, Any] = {"accept_noise": self.accept}
        decide: dict[str, Any] = {
            "num_scheduled": self.scheduled,
            "invalid": self.invalid,
            "rates": self.rates,
            "select_noise": self.select,
            "sampled": self.sampled,
            "status": self.status,
            "method": method,
            "num_tries": NUM_TRIES,
        }
        drawn = (self.seeds, self.positions, self.accept, self.select, K, NUM_TRIES)
        return [
            (sampler_stats, SamplerStats(**distributions, **tiles)),
            *([] if self.kind == "greedy" else [(draw_noise, DrawNoise(*drawn))]),
            *([(residual_mass, ResidualMass(**distributions, **mass, **noise))] if self.kind == "block" else []),
            (verify_drafts, VerifyDrafts(**distributions, **tiles, **mass, **noise, **decide)),
        ]

    def bound(self) -> Callable[[], None]:
        """Return the verification as launches of compiled kernels."""
        return launched([each for op, arguments in self.calls() for each in bind(op, arguments)])

    def check(self) -> None:
        """Assert that the sampled tokens are possible, and exact at temperature 0."""
        target = self.logits.view(self.num_rows, WIDTH, self.vocab_size)
        sampled, drafts = self.sampled.view(-1, WIDTH), self.drafts.view(-1, K)
        lengths = (sampled >= 0).sum(1)
        assert not self.status.any()
        assert (lengths >= 1).all()
        kept = torch.arange(K, device="cuda") < (lengths - 1)[:, None]
        assert torch.equal(torch.where(kept, sampled[:, :K], drafts), drafts)
        total = self.block_sum[: self.num_rows * WIDTH * (self.block_sum.numel() // (self.num_rows * (WIDTH + K)))]
        if self.kind == "greedy":
            best = target.argmax(2)
            column = torch.arange(WIDTH, device="cuda") < lengths[:, None]
            assert torch.equal(torch.where(column, sampled, best), best)
            assert torch.equal((best[:, :K] == drafts).int().cumprod(1).sum(1) + 1, lengths)
        else:
            blocks = total.numel() // (self.num_rows * WIDTH)
            largest = self.block_max[: total.numel()].view(self.num_rows, WIDTH, blocks).double()
            found = (largest + total.view(largest.shape).double().log()).logsumexp(2)
            assert (found - target.double().logsumexp(2)).abs().max() < 1e-5


def copy_rate() -> float:
    """Return the bytes per microsecond, read and written, of a large copy on the device."""
    source = torch.randint(0, 255, (COPY_BYTES,), dtype=torch.uint8, device="cuda")
    destination = torch.empty_like(source)
    times = turn_times_us({"copy": lambda: destination.copy_(source)}, 10, torch.cuda.synchronize)["copy"]
    return 2 * COPY_BYTES / statistics.median(times)


def launched(launches: Sequence[Callable[[int], None]]) -> Callable[[], None]:
    """Return a call that enqueues bound launches on the current stream."""

    def run() -> None:
        stream = current_stream()
        for each in launches:
            each(stream)

    return run


def main() -> int:
    """Print microseconds to verify draft tokens, by kind and batch rows; 3 without a GPU."""
    if not torch.cuda.is_available():
        print("this benchmark needs a GPU", file=sys.stderr)
        return 3
    rate = copy_rate()
    print(f"on {torch.cuda.get_device_name()}, copies {rate / 1e6:.2f} TB/s; K = {K}, {NUM_TRIES} tries")
    print(f"microseconds for each verification, median of {TURNS}")
    print(
        f"{'V':>7} {'B':>4} {'kind':11} {'limit':>6} {'graph':>7} {'/limit':>6} {'eager':>7} {'P99':>7} {'tokens':>7}"
    )
    for vocab_size, num_rows in SHAPES:
        for kind in ("greedy", "point mass", "standard", "block"):
            first = Step(kind, vocab_size, num_rows, 0)
            num_sets = -(-BYTES_OF_SETS // first.num_bytes)
            steps = [first, *(Step(kind, vocab_size, num_rows, seed) for seed in range(1, num_sets))]
            calls: list[Call] = [step.bound() for step in steps]
            torch.cuda.synchronize()
            for step in steps:
                step.check()
            eager, graph = eager_and_graph_us(calls, TURNS)
            limit, replay = first.num_bytes / rate, statistics.median(graph) / num_sets
            tokens = torch.cat([step.sampled.view(-1, WIDTH) for step in steps])
            print(
                f"{vocab_size:7} {num_rows:4} {kind:11} {limit:6.1f} {replay:7.1f} {replay / limit:6.2f} "
                f"{statistics.median(eager) / num_sets:7.1f} {percentile(eager, 99) / num_sets:7.1f} "
                f"{(tokens >= 0).sum().item() / len(tokens):7.2f}"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
