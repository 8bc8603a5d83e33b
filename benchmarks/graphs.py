"""CUDA graphs of what a benchmark measures."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.turns import Call


def captured(calls: Sequence[Call]) -> Callable[[], None]:
    """Return a replay of some calls, captured as one CUDA graph; each is made once before, to compile what it needs."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph.replay
