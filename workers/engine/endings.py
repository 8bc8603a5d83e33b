"""Which boundary a request ends on, for the probes: looked at when it ends, and never before."""

from collections.abc import Iterator, Sequence

from scenarios.spec import EngineSpec
from workers.engine.request import PlanRow, Request


def edges_at_end(request: Request, row: PlanRow, sampled: Sequence[int], count: int, spec: EngineSpec) -> Iterator[str]:
    """Yield the probes that a request hits which ends with the last of the `count` tokens it took of a row's sample."""
    if count < len(sampled):
        yield f"{request.finish_reason}_inside_run"
    if row.d and len(sampled) <= row.d and len(request.tokens) % spec.block_size == 0:
        yield "end_on_block_edge"
    if len(request.tokens) == spec.max_model_len:
        yield "model_full"
    if request.finish_reason == "stop" and len(sampled) > 1:
        yield "stop_first" if count == 1 else "stop_last" if count == len(sampled) else "stop_between"
