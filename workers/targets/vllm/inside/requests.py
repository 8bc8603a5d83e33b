"""Requests as vLLM's engine takes them."""

from collections.abc import Mapping
from concurrent.futures import wait
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.inside.sampling_params import sampling_params


def hand_in(
    engine: Any,
    request_id: str,
    event: Submit,
    arrival: int,
    *,
    resumable: bool = False,
    transfer: Mapping[str, Any] | None = None,
) -> None:
    """Hand a request to an engine, or a part of one that it has; `transfer` is what its connector is told of it."""
    request = request_of(request_id, event, arrival, resumable=resumable)
    if transfer is not None:
        others = request.sampling_params.extra_args or {}
        request.sampling_params.extra_args = {**others, "kv_transfer_params": dict(transfer)}
    taken, wave = engine.preprocess_add_request(request)
    if taken.structured_output_request is not None:
        # A thread compiles it; in which step it is ready would depend on a clock.
        wait([taken.structured_output_request._grammar])
    engine.add_request(taken, wave)


def request_of(request_id: str, event: Submit, arrival: int = 0, *, resumable: bool = False) -> Any:
    """Return a request as a front hands it to its engine."""
    from vllm.v1.engine import EngineCoreRequest  # noqa: PLC0415  what they replace must be replaced by then

    assert isinstance(event.prompt, tuple), "the trace is explicit"
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=list(event.prompt),
        mm_features=None,
        sampling_params=sampling_params(event),
        pooling_params=None,
        # Among equals, who came first goes first.
        arrival_time=float(arrival),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        priority=event.priority,
        **({"resumable": True} if resumable else {}),
    )
