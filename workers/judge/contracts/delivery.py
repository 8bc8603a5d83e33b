"""Delivery: the output of one request so far, and the terms of all requests of a trace."""

from dataclasses import dataclass

from scenarios.events import DisturbTransfer, LoadWeights, NanLogits, SpoilLogit, Submit
from scenarios.sampling import Output
from scenarios.trace import Trace


class Terms:
    """Terms of all requests of a trace: sizes, names whose logits are spoiled, and meanings of options of an engine.

    Masks do not bind where drafts are kept whatever they are; `is_processed`: logprobs are those of processed logits;
    `are_logits`: they are these logits themselves;
    `reasoning_end`: the token behind which a grammar binds;
    `words_from_prompt`: a bad word may begin in the prompt;
    `logit_margin`: differences of logits between two batches that may be rounding.
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
        # Requests may share a block whose load fails, and each may end: `judge.connector_transfers` judges which.
        loading = trace.spec.transfer or trace.spec.handoff
        is_failing = loading is not None and loading.failures == "fail"
        is_disturbed = any(isinstance(event, DisturbTransfer) for event in trace.events)
        self.loads_fail = is_failing and is_disturbed
        self.spoiled = {event.request for event in trace.events if isinstance(event, NanLogits | SpoilLogit)}


@dataclass(slots=True, eq=False)
class Delivery:
    """The output of one request so far; `at_abort` is that at its abort, if it was alive then."""

    submit: Submit
    output: Output | None = None
    at_abort: Output | None = None
