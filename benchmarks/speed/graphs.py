"""CUDA graphs of what a benchmark measures."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.speed.turns import Call, turn_times_us


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


def eager_and_graph_us(calls: Sequence[Call], turns: int) -> tuple[list[float], list[float]]:
    """Return the microseconds of all calls together in each turn: made one by one, and as a CUDA graph."""

    def every() -> None:
        for call in calls:
            call()

    eager = turn_times_us({"": every}, turns, torch.cuda.synchronize)[""]
    return eager, turn_times_us({"": captured(calls)}, turns, torch.cuda.synchronize)[""]
