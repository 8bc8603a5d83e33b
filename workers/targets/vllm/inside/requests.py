"""Conversion of trace requests to vLLM's engine-core requests."""

from collections.abc import Mapping
from concurrent.futures import wait
from typing import Any

from scenarios.events import Submit
from workers.targets.vllm.request_features import ALWAYS, FIRST


def add_to_engine(engine: Any, request_id: str, event: Submit, arrival: int, **more: Any) -> None:
    """Add a request, or a further input of a streaming session, to an engine; `more` as for `taken_request`."""
    engine.add_request(*taken_request(engine, request_id, event, arrival, **more))


def taken_request(
    engine: Any,
    request_id: str,
    event: Submit,
    arrival: int,
    *,
    resumable: bool = False,
    transfer: Mapping[str, Any] | None = None,
) -> tuple[Any, int]:
    """Convert a submit to a scheduler request and its wave, as the engine's input thread does.

    `transfer` are the request's `kv_transfer_params`.
    """
    request = request_of(request_id, event, arrival, resumable=resumable)
    if transfer is not None:
        others = request.sampling_params.extra_args or {}
        request.sampling_params.extra_args = {**others, "kv_transfer_params": dict(transfer)}
    taken, wave = engine.preprocess_add_request(request)
    if taken.structured_output_request is not None:
        # A thread compiles the grammar: without this wait, the step in which it is ready would depend on a clock.
        wait([taken.structured_output_request._grammar])
    return taken, wave


def request_of(request_id: str, event: Submit, arrival: int = 0, *, resumable: bool = False) -> Any:
    """Return the `EngineCoreRequest` that vLLM's front end would make of a submit event."""
    from vllm.v1.engine import EngineCoreRequest  # noqa: PLC0415  import after our replacements in vLLM

    assert isinstance(event.prompt, tuple), "the trace is explicit"
    return EngineCoreRequest(
        request_id=request_id,
        prompt_token_ids=list(event.prompt),
        mm_features=None,
        sampling_params=sampling_params(event),
        pooling_params=None,
        # Requests of equal priority are scheduled by arrival.
        arrival_time=float(arrival),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
        **FIRST.request(event),
        **({"resumable": True} if resumable else {}),
    )


def sampling_params(event: Submit) -> Any:
    """Return vLLM's `SamplingParams` for a submit event."""
    from vllm.sampling_params import SamplingParams, StructuredOutputsParams  # noqa: PLC0415

    found = FIRST.sampling(event)
    grammar = found["structured_outputs"]
    if grammar is not None:
        structured = found["structured_outputs"] = StructuredOutputsParams(grammar=grammar)
        # Backend that vLLM's front end selects for a grammar.
        structured._backend = "xgrammar"
    own = {key: found.pop(key) for key in [*found] if key.startswith("_")}
    params = SamplingParams(max_tokens=event.max_tokens, **found, **ALWAYS)
    for key, value in own.items():
        setattr(params, key, value)
    return params
