"""Compare two ways to count accepted tokens: argmax of the first NO_TOKEN, and sum.

Run with `python -m benchmarks.speed.seeds.accepted_count`: on a GPU if there is one, eagerly and as a CUDA graph.
Source: vLLM PR #38372.
"""

import statistics
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from benchmarks.speed.graphs import captured
from benchmarks.speed.turns import percentile, ratio, turn_times_us
from workers.kernels.sentinels import NO_TOKEN

Count = Callable[[Tensor], Tensor]
TURNS = 400
NUM_ROWS = (1, 8, 64, 256)
WIDTH = 4


def first_gap(sampled: Tensor) -> Tensor:
    """Return the column of each row's first NO_TOKEN, after a NO_TOKEN column is appended."""
    sentinel = torch.full((len(sampled), 1), NO_TOKEN, dtype=sampled.dtype, device=sampled.device)
    return (torch.cat([sampled, sentinel], dim=1) == NO_TOKEN).int().argmax(dim=1)


def number_of_tokens(sampled: Tensor) -> Tensor:
    """Return the number of columns of each row that are not NO_TOKEN; [rows] int64."""
    return (sampled != NO_TOKEN).sum(dim=1)


FORMS: dict[str, Count] = {"concatenate, argmax": first_gap, "sum": number_of_tokens}


def sampled_tokens(num_rows: int, width: int, device: str, seed: int = 0) -> Tensor:
    """Return rows with a random number of tokens, padded with NO_TOKEN; [rows, width] int32."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, 1000, (num_rows, width), generator=generator, dtype=torch.int32)
    counts = torch.randint(0, width + 1, (num_rows, 1), generator=generator)
    tokens[torch.arange(width) >= counts] = NO_TOKEN
    return tokens.to(device)


def measure(num_rows: int, device: str) -> None:
    """Print median, 99th percentile and ratio to the old way, for each way to count."""
    sampled = sampled_tokens(num_rows, WIDTH, device)
    calls: dict[str, Callable[[], object]] = {}
    for name, count in FORMS.items():
        calls[f"{name}, eager"] = partial(count, sampled)
        if device == "cuda":
            calls[f"{name}, graph"] = captured([partial(count, sampled)])
    finish = torch.cuda.synchronize if device == "cuda" else lambda: None
    times = turn_times_us(calls, TURNS, finish)
    for name, taken in times.items():
        before = times[f"concatenate, argmax, {name.rsplit(', ', 1)[1]}"]
        median, worst = statistics.median(taken), percentile(taken, 99)
        print(f"{num_rows:5} {name:28} {median:10.2f} {worst:10.2f} {ratio(taken, before):7.2f}")


def main() -> None:
    """Print the microseconds of both ways to count, for several batch sizes."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    print(f"{WIDTH} columns, on {torch.cuda.get_device_name() if device == 'cuda' else 'a CPU'}; microseconds per call")
    print(f"{'rows':>5} {'form':28} {'median':>10} {'P99':>10} {'ratio':>7}")
    for num_rows in NUM_ROWS:
        measure(num_rows, device)


if __name__ == "__main__":
    main()
