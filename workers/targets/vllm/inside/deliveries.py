"""Deliveries to clients, of vLLM's outputs."""

from typing import Any

from workers.targets.child.answers import Delivery


def delivery_of(output: Any, name: str, width: int, is_late: bool) -> Delivery:
    """Return a request's new tokens, why it has ended, and the logprobs of them and of its prompt, flat.

    It `is_late` if the request was given up before.
    Rows of logprobs are as wide as the widest request of the batch asks for: the first `width` of each are its own.
    """
    flat: list[int | float] = []
    if output.new_logprobs is not None:
        for ids, logprobs in zip(output.new_logprobs.logprob_token_ids, output.new_logprobs.logprobs, strict=True):
            flat += _flat(ids[:width].tolist(), logprobs[:width].tolist())
    of_prompt: list[int | float] = []
    if output.new_prompt_logprobs_tensors is not None:
        tensors = output.new_prompt_logprobs_tensors
        of_prompt = _flat(tensors.logprob_token_ids.flatten().tolist(), tensors.logprobs.flatten().tolist())
    return Delivery(
        request=name,
        tokens=tuple(output.new_token_ids),
        finish_reason=None if output.finish_reason is None else str(output.finish_reason),
        logprobs=tuple(flat),
        prompt_logprobs=tuple(of_prompt),
        is_late=is_late,
    )


def _flat(ids: list[int], logprobs: list[float]) -> list[int | float]:
    """Return ids, each followed by its logprob."""
    return [value for pair in zip(ids, logprobs, strict=True) for value in pair]
