"""Drafters: their names, and one table of what generators, engine, oracle and judges have to know of each."""

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
    """How a drafter differs from one that runs on the device, over a cache of its own, and is told what to propose.

    Attributes:
        is_extension: numbers of a random trace do not stand for it; it is drawn for engines that have it.
        is_on_host: it looks into tokens that the host has seen.
        is_read_back: it runs on the device, and the host reads its drafts before the next step.
        keeps_requests: the host keeps something for it of each request that runs.
        repeats: it proposes tokens that were there before.
        is_lookup: these are what stands behind an earlier place of the request's own tokens.
        has_positions: it runs a model whose positions could end.
        is_shifted: what it keeps for a token depends on the token behind it.
        caches_drafts: its drafts have slots in its cache.
        has_model: it predicts by layers of its own, with a recurrent state where the target has one, and has logits.
        carries_words: it carries a hidden word of the target from step to step.
        proposes_one: it proposes the token just sampled and nothing behind it.
        goes_through_host: its drafts come to the next step from the host, with its inputs; it has no cache.
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
    carries_words: bool = False
    proposes_one: bool = False
    goes_through_host: bool = field(init=False)

    def __post_init__(self) -> None:
        """Derive how drafts come to the next step: a value, for engine and judges call no function alike."""
        object.__setattr__(self, "goes_through_host", self.is_on_host or self.is_read_back)


TRAITS: Mapping[Drafter, DrafterTraits] = {
    "eagle": DrafterTraits(is_shifted=True, caches_drafts=True),
    "draft_model": DrafterTraits(has_model=True),
    "mtp": DrafterTraits(carries_words=True),
    "dflash": DrafterTraits(),
    "extract_hidden_states": DrafterTraits(repeats=True, has_positions=False, proposes_one=True),
    "ngram_gpu": DrafterTraits(repeats=True, is_lookup=True, has_positions=False),
    "suffix": DrafterTraits(is_on_host=True, keeps_requests=True, repeats=True, has_positions=False),
    "ngram": DrafterTraits(is_on_host=True, repeats=True, is_lookup=True, has_positions=False),
    "medusa": DrafterTraits(is_read_back=True, has_positions=False),
    # A head over hidden states of several layers of the target.
    "eagle3": DrafterTraits(is_extension=True),
    # N-grams of all requests, of which a tree of drafts is made on a host that waits for the tokens of the last step.
    "ngram_corpus": DrafterTraits(is_extension=True, repeats=True, has_positions=False),
}


def drafters_where(holds: Callable[[DrafterTraits], bool]) -> tuple[Drafter, ...]:
    """Return the drafters whose traits satisfy a condition, in the order of the table."""
    return tuple(drafter for drafter, traits in TRAITS.items() if holds(traits))


# Those that numbers of a random trace stand for.
DRAFTERS = drafters_where(lambda traits: not traits.is_extension)
