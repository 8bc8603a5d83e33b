"""Conversion of requests, aborts and outputs between traces and SGLang's messages."""

from array import array
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from scenarios.events import Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from workers.targets.child.answers import Delivery
from workers.targets.sglang.request_features import FEATURES, delivered_output

# Requests have no text. SGLang reads the tokenizer's end-of-sequence tokens for `min_new_tokens`; it has none.
NO_TOKENIZER = SimpleNamespace(eos_token_id=None, additional_stop_token_ids=None)


def request_of(event: Submit, request_id: str, spec: EngineSpec) -> Any:
    """Return a request as SGLang's scheduler receives it.

    `max_new_tokens` is cut to the model's length limit, as SGLang's front end does.
    """
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput  # noqa: PLC0415
    from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: PLC0415

    assert isinstance(event.prompt, tuple), "the trace is explicit"
    sampling = FEATURES.sampling(event)
    if event.params.grammar and spec.num_speculative_tokens:
        # With draft tokens, SGLang ends an output by its grammar. Without them it would do so one output token late, so
        # the stop token ends it.
        sampling["stop_token_ids"] = None
    params = SamplingParams(
        max_new_tokens=spec.length_limit(len(event.prompt), event.max_tokens) - len(event.prompt), **sampling
    )
    params.normalize(NO_TOKENIZER)
    return TokenizedGenerateReqInput(
        rid=request_id,
        input_text=None,
        input_ids=array("q", event.prompt),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=params,
        logprob_start_len=-1,
        token_ids_logprob=None,
        stream=True,
        priority=event.priority if spec.policy == "priority" else None,
        **FEATURES.request(event),
    )


def abort_of(request_id: str) -> Any:
    """Return the message that aborts a request; SGLang aborts all ids with this prefix."""
    from sglang.srt.managers.io_struct import AbortReq  # noqa: PLC0415

    return AbortReq(rid=request_id)


def ending(request: str) -> Delivery:
    """Return the last delivery of an aborted request."""
    return Delivery(request=request, output=Output((), "abort"), is_late=False)


def deliveries_of(output: Any, names: Mapping[str, str]) -> Iterator[Delivery]:
    """Yield the output tokens in a scheduler's message, of requests that have not ended.

    `names` maps their ids to their names. The message is a batch of output tokens, or the end of a request that was
    aborted before it ran.
    """
    from sglang.srt.managers.io_struct import AbortReq, BatchTokenIDOutput  # noqa: PLC0415

    if isinstance(output, AbortReq) and output.rid in names:
        yield ending(names[output.rid])
    if isinstance(output, BatchTokenIDOutput):
        for row, request_id in enumerate(output.rids):
            if request_id in names:
                yield Delivery(request=names[request_id], output=delivered_output(output, row), is_late=False)
