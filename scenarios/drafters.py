"""Drafters: names and traits, read by generators, engine, oracle and judges."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Drafter = Literal[
    "eagle",
    "draft_model",
    "mtp",
    "dflash",
    "extract_hidden_states",
    "ngram_gpu",
    "suffix",
    "ngram",
    "medusa",
    "eagle3",
    "ngram_corpus",
]


@dataclass(frozen=True, slots=True)
class DrafterTraits:
    """Traits of a drafter; by default it is on the device, with a KV cache and scripted drafts.

    Attributes:
        is_extension: the random traces shared by all engines never use it; only traces of engines that have it do.
        is_on_host: it runs on the host and reads the tokens that the host has received.
        is_read_back: it runs on the device, and the host reads its draft tokens before the next step.
        keeps_requests: the host keeps a data structure of it for each running request.
        repeats: it proposes only tokens that already occurred.
        is_lookup: it proposes the tokens that followed the same n-gram earlier in the request (n-gram lookup).
        has_positions: its model has a position limit.
        is_shifted: its KV cache entry of a token depends on the next token.
        caches_drafts: its draft tokens have slots in its KV cache.
        has_model: it is a draft model with layers, logits and, for a hybrid target, a recurrent state of its own.
        carries_hidden_state: it carries a hidden state of the target from step to step.
        proposes_one: it proposes one draft token, the token just sampled again.
        goes_through_host: the host uploads its draft tokens with the inputs of the next step; it has no KV cache.
    """

    is_extension: bool = False
    is_on_host: bool = False
    is_read_back: bool = False
    keeps_requests: bool = False
    repeats: bool = False
    is_lookup: bool = False
    has_positions: bool = True
    is_shifted: bool = False
    caches_drafts: bool = False
    has_model: bool = False
    carries_hidden_state: bool = False
    proposes_one: bool = False
    goes_through_host: bool = field(init=False)

    def __post_init__(self) -> None:
        """Set `goes_through_host`; a field, because the judges share no functions with the engine."""
        object.__setattr__(self, "goes_through_host", self.is_on_host or self.is_read_back)


TRAITS: Mapping[Drafter, DrafterTraits] = {
    "eagle": DrafterTraits(is_shifted=True, caches_drafts=True),
    "draft_model": DrafterTraits(has_model=True),
    "mtp": DrafterTraits(carries_hidden_state=True),
    "dflash": DrafterTraits(),
    "extract_hidden_states": DrafterTraits(repeats=True, has_positions=False, proposes_one=True),
    "ngram_gpu": DrafterTraits(repeats=True, is_lookup=True, has_positions=False),
    "suffix": DrafterTraits(is_on_host=True, keeps_requests=True, repeats=True, has_positions=False),
    "ngram": DrafterTraits(is_on_host=True, repeats=True, is_lookup=True, has_positions=False),
    "medusa": DrafterTraits(is_read_back=True, has_positions=False),
    # Its head reads hidden states of several target layers.
    "eagle3": DrafterTraits(is_extension=True),
    # Builds a tree of draft tokens from n-grams of all requests, on a host that waits for the last step's tokens.
    "ngram_corpus": DrafterTraits(is_extension=True, repeats=True, has_positions=False),
}


def drafters_where(holds: Callable[[DrafterTraits], bool]) -> tuple[Drafter, ...]:
    """Return the drafters whose traits satisfy a condition, in the table's order."""
    return tuple(drafter for drafter, traits in TRAITS.items() if holds(traits))


# Drafters that the numbers of a flat trace encode, as an index into this tuple.
DRAFTERS = drafters_where(lambda traits: not traits.is_extension)
