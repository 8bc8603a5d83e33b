"""CUDA graphs of the calls that a benchmark measures."""

from collections.abc import Callable, Sequence

import torch

from benchmarks.speed.turns import Call, turn_times_us


def captured(calls: Sequence[Call]) -> Callable[[], None]:
    """Capture calls as one CUDA graph, after one warm-up call each; return its replay."""
    for call in calls:
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph.replay


def eager_and_graph_us(calls: Sequence[Call], turns: int) -> tuple[list[float], list[float]]:
    """Return the microseconds of all calls in each turn: called one by one, and as a CUDA graph."""

    def every() -> None:
        for call in calls:
            call()

    eager = turn_times_us({"": every}, turns, torch.cuda.synchronize)[""]
    return eager, turn_times_us({"": captured(calls)}, turns, torch.cuda.synchronize)[""]
