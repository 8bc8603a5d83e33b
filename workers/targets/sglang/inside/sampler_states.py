"""Observer of the sampler's state of each batch row: `SamplingBatchInfo` and its penalizers.

The state is read on the schedule stream, before the batch runs: this stream filters, merges and counts it in place.
"""

from collections.abc import Mapping
from typing import Any

import torch

from workers.targets.child.inside.observations import Observations
from workers.targets.child.inside.readback import Parts

# Tensors of the sampling info, by the field of `SamplerRow` that they hold.
_PARAMETERS = {"temperature": "temperatures", "top_k": "top_ks", "top_p": "top_ps", "min_p": "min_ps"}
_OPTIONAL = {"seed": "sampling_seed", "logit_bias": "logit_bias"}
# Tensors of the penalizers, which exist only while a row of the batch needs them.
_PENALTIES = {
    "presence_penalty": ("BatchedPresencePenalizer", "presence_penalties"),
    "presence_tokens": ("BatchedPresencePenalizer", "cumulated_presence_penalties"),
    "frequency_penalty": ("BatchedFrequencyPenalizer", "frequency_penalties"),
    "output_counts": ("BatchedFrequencyPenalizer", "cumulated_frequency_penalties"),
    "repetition_penalty": ("BatchedRepetitionPenalizer", "repetition_penalties"),
    "repetition_tokens": ("BatchedRepetitionPenalizer", "cumulated_repetition_penalties"),
    "min_tokens": ("BatchedMinNewTokensPenalizer", "min_new_tokens"),
    "stop": ("BatchedMinNewTokensPenalizer", "stop_token_penalties"),
    "num_output_tokens": ("BatchedMinNewTokensPenalizer", "len_output_tokens"),
}


def observe_sampler(observations: Observations, batch: Any, vocab_size: int) -> None:
    """Record the sampler's state of each row of a batch, as it is at this point of the stream."""
    info = batch.sampling_info
    num_logprobs = [_num_logprobs(batch, row) for row in range(len(batch.reqs))]

    def rows(views: Mapping[str, Parts]) -> Mapping[str, Any]:
        state = {name: part for name, (part,) in views.items()}
        return {"rows": [_row(state, row, count, vocab_size) for row, count in enumerate(num_logprobs)]}

    observations.read("sampler", [request.rid for request in batch.reqs], _tensors(info), rows)


def _num_logprobs(batch: Any, row: int) -> int | None:
    """Return how many logprobs of each token the batch stores for a row; None if it returns none."""
    return 1 + int(batch.top_logprobs_nums[row]) if batch.return_logprob and batch.reqs[row].return_logprob else None


def _tensors(info: Any) -> dict[str, torch.Tensor]:
    """Return the tensors that exist, by the field of `SamplerRow` that they hold."""
    held = {name: getattr(info, attribute) for name, attribute in (_PARAMETERS | _OPTIONAL).items()}
    penalizers = {type(each).__name__: each for each in info.penalizer_orchestrator.penalizers.values()}
    held |= {
        name: getattr(penalizers.get(penalizer), attribute, None) for name, (penalizer, attribute) in _PENALTIES.items()
    }
    return {name: tensor for name, tensor in held.items() if tensor is not None}


def _row(state: Mapping[str, torch.Tensor], row: int, num_logprobs: int | None, vocab_size: int) -> dict[str, Any]:
    """Return one row's state; a penalizer without tensors applies no penalty and no minimum."""

    def number(name: str, otherwise: float) -> Any:
        return state[name][row].item() if name in state else otherwise

    presence, frequency = number("presence_penalty", 0.0), number("frequency_penalty", 0.0)
    repetition, min_tokens = number("repetition_penalty", 1.0), number("min_tokens", 0)
    stop = _tokens(state["stop"][row] != 0) if min_tokens else []
    biases = state["logit_bias"][row].tolist() if "logit_bias" in state else []
    counts = (state["output_counts"][row] / frequency).round().int().tolist() if frequency else []
    return {
        **{name: state[name][row].item() for name in _PARAMETERS},
        "top_k": min(int(state["top_k"][row]), vocab_size),
        "seed": number("seed", 0),
        "presence_penalty": presence,
        "frequency_penalty": frequency,
        "repetition_penalty": repetition,
        "num_logprobs": num_logprobs,
        "logit_bias": [(token, bias) for token, bias in enumerate(biases) if bias],
        "min_tokens": min_tokens if stop else 0,
        "stop": stop,
        "output_counts": [(token, count) for token, count in enumerate(counts) if count] if frequency else None,
        "presence_tokens": _tokens(state["presence_tokens"][row] != 0) if presence else None,
        "repetition_tokens": _tokens(state["repetition_tokens"][row] != 1) if repetition != 1 else None,
        "num_output_tokens": number("num_output_tokens", 0) if stop else None,
    }


def _tokens(is_set: torch.Tensor) -> list[int]:
    """Return the indexes of the true values."""
    found: list[int] = is_set.nonzero().flatten().tolist()
    return found
