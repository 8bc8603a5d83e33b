"""Compare ways to write backup tokens into pinned memory: through lists, directly.

Run with `python -m benchmarks.speed.seeds.backup_tokens`. It measures the host only; the memory is pinned if there is a
GPU. Source: vLLM PR #41043.
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.speed.turns import call_times_us, percentile, ratio
from workers.kernels.sentinels import UNKNOWN_TOKEN

TURNS = 500
NUM_REQUESTS = (1, 2, 4, 8, 16)
Integers = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Request:
    """A request's tokens as known by the host."""

    tokens: list[int]

    def token(self, index: int) -> int:
        """Return a token, or UNKNOWN_TOKEN past the last one."""
        return self.tokens[index] if index < len(self.tokens) else UNKNOWN_TOKEN


def by_lists(requests: Sequence[Request], num_tokens_no_spec: Integers, backup: Integers) -> None:
    """Copy an array of a list of tokens, made from a list of indexes, into `backup`."""
    indexes = (num_tokens_no_spec[: len(requests)] - 1).tolist()
    tokens = [request.token(index) for request, index in zip(requests, indexes, strict=True)]
    backup[: len(requests)] = np.array(tokens, dtype=np.int32)


def by_one_list(requests: Sequence[Request], num_tokens_no_spec: Integers, backup: Integers) -> None:
    """Copy an array of one list of tokens into `backup`."""
    tokens = [request.token(num_tokens_no_spec[row] - 1) for row, request in enumerate(requests)]
    backup[: len(requests)] = np.array(tokens, dtype=np.int32)


def directly(requests: Sequence[Request], num_tokens_no_spec: Integers, backup: Integers) -> None:
    """Write each token directly into `backup`."""
    for row, request in enumerate(requests):
        backup[row] = request.token(num_tokens_no_spec[row] - 1)


Form = Callable[[Sequence[Request], Integers, Integers], None]
FORMS: dict[str, Form] = {"two lists, np.array": by_lists, "one list, np.array": by_one_list, "direct": directly}


def requests_of(num_requests: int, seed: int) -> tuple[list[Request], Integers]:
    """Return random requests, and a token count for each: the known tokens, or one more."""
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 200, num_requests)
    requests = [Request(random.integers(0, 1000, length).tolist()) for length in lengths]
    return requests, (lengths + random.integers(0, 2, num_requests)).astype(np.int32)


def pinned(length: int) -> Integers:
    """Return host memory for copies to the device, pinned if there is a GPU."""
    memory: Integers = torch.zeros(length, dtype=torch.int32, pin_memory=torch.cuda.is_available()).numpy()
    return memory


def main() -> None:
    """Print the microseconds of each way to write, for several numbers of requests."""
    print(f"{'requests':>8} {'form':20} {'mean us':>8} {'median':>8} {'P99':>8} {'ratio':>6}")
    for num_requests in NUM_REQUESTS:
        requests, known = requests_of(num_requests, num_requests)
        backup = pinned(max(NUM_REQUESTS))
        calls = {name: partial(form, requests, known, backup) for name, form in FORMS.items()}
        times = call_times_us(calls, TURNS)
        for name, taken in times.items():
            against = ratio(taken, times["two lists, np.array"])
            mean, median, worst = statistics.fmean(taken), statistics.median(taken), percentile(taken, 99)
            print(f"{num_requests:8} {name:20} {mean:8.2f} {median:8.2f} {worst:8.2f} {against:6.2f}")


if __name__ == "__main__":
    main()
