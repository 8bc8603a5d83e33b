"""Delivery: what a client was given for one request, and the terms that hold for all requests of a trace."""

from dataclasses import dataclass

from scenarios.events import NanLogits, SpoilLogit, Submit
from scenarios.trace import Trace
from workers.record.observation import Output


@dataclass(frozen=True, slots=True)
class Terms:
    """What holds for every request of a trace: sizes, whose logits are spoiled, and how an engine means its words.

    Masks do not bind where drafts are kept whatever they are; `is_processed`: logprobs are those of processed logits;
    `words_from_prompt`: a bad word may begin in the prompt.
    """

    vocab_size: int
    max_model_len: int
    masks_bind: bool
    is_processed: bool
    words_from_prompt: bool
    spoiled: frozenset[str]


def terms_of(trace: Trace, words_from_prompt: bool) -> Terms:
    """Return the terms of a trace, in the words of an engine."""
    return Terms(
        vocab_size=trace.spec.vocab_size,
        max_model_len=trace.spec.max_model_len,
        masks_bind=trace.spec.sampling != "synthetic",
        is_processed=trace.spec.logprobs_mode == "processed",
        words_from_prompt=words_from_prompt,
        spoiled=frozenset(event.request for event in trace.events if isinstance(event, NanLogits | SpoilLogit)),
    )


@dataclass(slots=True, eq=False)
class Delivery:
    """What one request was given so far; `at_abort` is what it had when it was given up, if that was while it lived."""

    submit: Submit
    output: Output | None = None
    at_abort: Output | None = None
