"""Outputs as delivered to a client, and the engine options that output rules depend on."""

from dataclasses import dataclass

from scenarios.events import DisturbTransfer, LoadWeights, NanLogits, SpoilLogit, Submit
from scenarios.sampling import Output
from scenarios.trace import Trace


class Terms:
    """Engine sizes and options that the output rules (contracts) of a trace depend on.

    - `masks_bind`: false with synthetic acceptance, which keeps draft tokens without looking at masks.
    - `is_processed`: logprobs are computed from processed logits; `are_logits`: the engine returns the logits instead.
    - `reasoning_end`: the token after which a grammar applies; `words_from_prompt`: a bad word may begin in the prompt.
    - `logit_margin`: the difference of logits between two batches that rounding may cause.
    - `weights_stay`: no event loads other weights; `loads_fail`: a request may end because a KV load fails.
    - `spoiled`: the names of requests whose logits an event spoils.
    """

    def __init__(self, trace: Trace, words_from_prompt: bool, logit_margin: float = 0.0) -> None:
        self.vocab_size = trace.spec.vocab_size
        self.max_model_len = trace.spec.max_model_len
        self.reasoning_end = trace.spec.reasoning_end
        self.masks_bind = trace.spec.sampling != "synthetic"
        self.is_processed = trace.spec.logprobs_mode.startswith("processed")
        self.are_logits = trace.spec.logprobs_mode.endswith("logits")
        self.words_from_prompt = words_from_prompt
        self.logit_margin = logit_margin
        self.weights_stay = not any(isinstance(event, LoadWeights) for event in trace.events)
        # Requests may share a block whose load fails; `judge.connector_transfers` checks which of them may end.
        loading = trace.spec.transfer or trace.spec.handoff
        is_failing = loading is not None and loading.failures == "fail"
        is_disturbed = any(isinstance(event, DisturbTransfer) for event in trace.events)
        self.loads_fail = is_failing and is_disturbed
        self.spoiled = {event.request for event in trace.events if isinstance(event, NanLogits | SpoilLogit)}


@dataclass(slots=True, eq=False)
class Delivery:
    """The tokens and finish reason that a client has received for one request so far.

    `at_abort` is its output at the abort of the live request, None without an abort.
    """

    submit: Submit
    output: Output | None = None
    at_abort: Output | None = None
