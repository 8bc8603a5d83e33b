"""Deliveries to clients, of SGLang's outputs."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from workers.targets.child.answers import Delivery


def ending(request: str) -> Delivery:
    """Return the end of a request that was given up."""
    return Delivery(request=request, tokens=(), finish_reason="abort", logprobs=(), prompt_logprobs=(), is_late=False)


def deliveries_of(output: Any, names: Mapping[str, str]) -> Iterator[Delivery]:
    """Yield what an output delivers to requests that are alive, whose names are given by their ids.

    It is a batch of new tokens, or the end of a request that was given up before it ran.
    """
    from sglang.srt.managers.io_struct import AbortReq, BatchTokenIDOutput  # noqa: PLC0415

    if isinstance(output, AbortReq) and output.rid in names:
        yield ending(names[output.rid])
    if not isinstance(output, BatchTokenIDOutput):
        return
    for row, request_id in enumerate(output.rids):
        if request_id not in names:
            continue
        reason = _reason(output.finished_reasons[row])
        yield Delivery(
            request=names[request_id],
            # Of a request that is refused its front tells the reason alone; a step was made of it.
            tokens=() if reason == "error" else tuple(output.output_ids[row]),
            finish_reason=reason,
            logprobs=tuple(_logprobs(output, row)),
            prompt_logprobs=(),
            is_late=False,
        )


def _reason(told: Mapping[str, Any] | None) -> str | None:
    """Return the reason for an end: what its front could not have asked for is no abort of its client's."""
    if told is None:
        return None
    is_refused = told["type"] == "abort" and told.get("status_code") == HTTPStatus.BAD_REQUEST
    return "error" if is_refused else str(told["type"])


def _logprobs(output: Any, row: int) -> Iterator[int | float]:
    """Yield the logprobs of a request's new tokens: ids, each followed by its logprob, of each token its own first."""
    if not output.output_token_logprobs_val or not output.output_token_logprobs_val[row]:
        return
    own = zip(output.output_token_logprobs_idx[row], output.output_token_logprobs_val[row], strict=True)
    for place, (token, logprob) in enumerate(own):
        yield from (token, logprob)
        values, ids = output.output_top_logprobs_val, output.output_top_logprobs_idx
        if values and values[row] and values[row][place]:
            pairs = zip(ids[row][place], values[row][place], strict=True)
            yield from (each for pair in pairs for each in pair)
