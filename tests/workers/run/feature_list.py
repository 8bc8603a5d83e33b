"""All features of engines, requests and events, each as a small change of one trace."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from scenarios.drafters import DRAFTERS, TRAITS, Drafter
from scenarios.events import (
    Abort,
    AcceptRate,
    AnyEvent,
    DummyStep,
    NanLogits,
    NoValidToken,
    Preempt,
    PromptDraw,
    Reorder,
    ResetPrefixCache,
    SetK,
    SpoilDraft,
    SpoilLogit,
    Stall,
    Submit,
    prompt_tokens,
)
from scenarios.spec import EngineSpec
from scenarios.trace import Trace

# As few blocks as the largest request needs when it runs alone.
FEWEST = 1
BASE: Mapping[str, Any] = {
    "vocab_size": 8,
    "num_speculative_tokens": 2,
    "max_num_seqs": 3,
    "max_num_batched_tokens": 16,
    "max_model_len": 64,
    "block_size": 4,
    "num_blocks": 64,
}
# A feature of requests changes request `a`, so that two features meet there; two more requests have no features.
SUBMITS = (
    Submit(tick=0, request="a", prompt=PromptDraw(tokens=9, common=8), max_tokens=13, accept="1101"),
    Submit(tick=0, request="b", prompt=PromptDraw(tokens=5), max_tokens=4, accept="10"),
    Submit(tick=2, request="c", prompt=PromptDraw(tokens=10, common=8), max_tokens=8, accept="011"),
)


@dataclass(frozen=True, slots=True)
class Feature:
    """A change of the base trace: keys of specification, request and parameters, and events.

    `beside` are keys that it needs to have an effect or to be allowed; the pair's other feature may override them.
    `shows` are the probes that it hits where nothing else is changed.
    """

    name: str
    spec: Mapping[str, Any] = field(default_factory=dict)
    beside: Mapping[str, Any] = field(default_factory=dict)
    submit: Mapping[str, Any] = field(default_factory=dict)
    params: Mapping[str, Any] = field(default_factory=dict)
    events: tuple[AnyEvent, ...] = ()
    shows: tuple[str, ...] = ()

    def values(self) -> dict[tuple[str, str], Any]:
        """Return the values that the feature sets, by location and key."""
        groups = (("spec", self.spec), ("submit", self.submit), ("params", self.params))
        return {(where, key): value for where, group in groups for key, value in group.items()}


def _drafter(drafter: Drafter) -> Feature:
    beside: dict[str, Any] = {"depth": 1} if TRAITS[drafter].goes_through_host else {}
    beside |= {"num_speculative_tokens": 1} if TRAITS[drafter].proposes_one else {}
    return Feature(drafter, {"drafter": drafter}, beside, shows=("no_accept",))


FEATURES = (
    Feature("hybrid", {"layers": "hybrid"}),
    Feature("attention", {"layers": "attention"}),
    Feature("depth 1", {"depth": 1}),
    Feature("depth 2", {"depth": 2}, shows=("condense_in_flight",)),
    Feature("depth 3", {"depth": 3}),
    Feature("counts on the device", {"accepted_counts": "device"}),
    Feature("counts on the host", {"accepted_counts": "host"}),
    Feature("states not kept", {"recurrent_cache": "none"}),
    Feature("states kept", {"recurrent_cache": "align"}, shows=("boundary_in_run",)),
    Feature("cascade", {"cascade": True}, {"depth": 1}, shows=("cascade",)),
    Feature("first come, first served", {"policy": "fcfs"}),
    Feature("priorities", {"policy": "priority"}, {"max_num_seqs": 1}, {"priority": 2}, shows=("overtaking",)),
    Feature("prefix cache", {"prefix_cache": True}, {"recurrent_cache": "align"}, shows=("prefix_hit",)),
    Feature("last match dropped", {"last_match": "dropped"}),
    Feature(
        "last match taken",
        {"prefix_cache": True, "last_match": "taken"},
        {"recurrent_cache": "align", "drafter": "dflash"},
        {"prompt": PromptDraw(tokens=9, common=9), "tick": 7},
        shows=("prefix_hit_but_one",),
    ),
    Feature("raw logprobs", {"logprobs_mode": "raw"}, params={"num_logprobs": 3}, shows=("logprobs",)),
    Feature("processed logprobs", {"logprobs_mode": "processed"}, params={"num_logprobs": 3}, shows=("logprobs",)),
    Feature("strict", {"sampling": "strict"}, params={"temperature": 4.0}, shows=("random_accept", "mixed_batch")),
    Feature("standard", {"sampling": "standard"}, params={"temperature": 4.0}, shows=("random_reject", "mixed_batch")),
    Feature("block", {"sampling": "block"}, params={"temperature": 4.0}, shows=("random_reject", "mixed_batch")),
    Feature(
        "synthetic",
        {"sampling": "synthetic", "synthetic_rates": (0.75, 0.5)},
        params={"temperature": 4.0},
        shows=("random_accept", "mixed_batch"),
    ),
    Feature(
        "drawn drafts",
        {"draft_sampling": "probabilistic"},
        {"drafter": "draft_model", "sampling": "standard", "layers": "attention"},
        params={"temperature": 4.0},
        shows=("drawn_draft_accept", "drawn_draft_reject"),
    ),
    Feature("no padding", {"pad": False}),
    Feature("padding to 3 tokens", {"token_multiple": 3}, shows=("padding",)),
    Feature("2 tokens", {"vocab_size": 2}),
    Feature("tiles of 4 tokens", {"vocab_tile": 4}, params={"temperature": 4.0}, shows=("drawn_in_later_tile",)),
    Feature(
        "blocks of 4 tokens",
        {"vocab_block": 4},
        {"vocab_tile": 4},
        params={"temperature": 4.0},
        shows=("drawn_in_later_block",),
    ),
    Feature("no drafts", {"num_speculative_tokens": 0}, shows=("draftless_decode",)),
    Feature("1 draft", {"num_speculative_tokens": 1}),
    Feature("as many drafts as a block holds", {"num_speculative_tokens": 4}, shows=("partial_accept",)),
    Feature("blocks of 1 token", {"block_size": 1}),
    Feature("1 row", {"max_num_seqs": 1}, shows=("full_batch",)),
    Feature("tight budget", {"max_num_batched_tokens": 5}, shows=("discard", "trimmed_drafts")),
    Feature("chunks", {"long_prefill_token_threshold": 3}, shows=("discard_while_drafting",)),
    Feature("short model", {"max_model_len": 16}, shows=("trimmed_drafts",)),
    Feature("tight pool", {"num_blocks": FEWEST}, shows=("preemption_by_blocks", "last_block")),
    Feature("wide convolution", {"conv_width": 5}),
    *(_drafter(drafter) for drafter in DRAFTERS),
    Feature("short drafter", {"drafter_max_len": 12}, shows=("drafter_full",)),
    Feature("late arrival", submit={"tick": 3, "at": "after_launch"}),
    Feature("prompt of 1 token", submit={"prompt": PromptDraw(tokens=1)}, shows=("prompt_one",)),
    Feature("given prompt", submit={"prompt": (1, 0, 1, 1, 0)}, shows=("prompt_block_plus_1",)),
    Feature("1 token out", submit={"max_tokens": 1}),
    Feature("drafts by chance", submit={"accept": AcceptRate(rate=0.5)}),
    Feature("no right drafts", submit={"accept": "none"}, shows=("no_accept",)),
    Feature("stop", submit={"stop": (1,)}, shows=("stop_inside_run",)),
    Feature("min_tokens", submit={"stop": (0, 1)}, params={"min_tokens": 6}, shows=("processed_drafts",)),
    Feature("bad words", params={"bad_words": ((1,), (0, 0))}, shows=("processed_drafts",)),
    Feature("allowed tokens", params={"allowed_tokens": (0, 1)}, shows=("processed_drafts",)),
    Feature(
        "presence and frequency",
        params={"presence_penalty": 0.5, "frequency_penalty": -0.25},
        shows=("processed_drafts",),
    ),
    Feature("repetition", params={"repetition_penalty": 2.0}, shows=("processed_drafts",)),
    Feature("top-k", params={"temperature": 4.0, "top_k": 3}, shows=("limited_decision",)),
    Feature("top-p", params={"temperature": 4.0, "top_p": 0.5, "seed": 5}, shows=("limited_decision",)),
    Feature(
        "grammar", params={"grammar": (((0, 1), (1, 0)), ((1, 0), (0, 1)))}, shows=("grammar_wait", "grammar_drafts")
    ),
    Feature(
        "name used again",
        events=(
            Abort(tick=3, at="after_launch", request="a"),
            Submit(tick=4, request="a", prompt=PromptDraw(tokens=6, common=4, variant=1), max_tokens=4),
        ),
        shows=("name_reused",),
    ),
    Feature("abort", events=(Abort(tick=4, at="before_process", request="a"),), shows=("abort_in_flight",)),
    Feature("deliver", events=(Preempt(tick=3, request="a"),), shows=("stale_wait", "resume")),
    Feature("drop", events=(Preempt(tick=3, request="a", mode="drop"),), shows=("dropped_output", "resume_in_flight")),
    Feature(
        "reset",
        {"prefix_cache": True},
        {"recurrent_cache": "align"},
        events=(ResetPrefixCache(tick=4),),
        shows=("cache_reset",),
    ),
    Feature(
        "reset of all",
        {"prefix_cache": True},
        {"recurrent_cache": "align"},
        events=(ResetPrefixCache(tick=4, running=True),),
        shows=("cache_reset_in_flight",),
    ),
    Feature("stall", events=(Stall(tick=3, request="a", ticks=2),), shows=("stall", "gap")),
    Feature(
        "reorder",
        events=(Reorder(tick=3), Reorder(tick=4, how="rotate"), Reorder(tick=5, how="shuffle")),
        shows=("reorder_in_flight",),
    ),
    Feature("other K", events=(SetK(tick=3, k=0), SetK(tick=5, k=2)), shows=("k_change", "draftless_decode")),
    Feature("no valid token", events=(NoValidToken(tick=3, request="a"),), shows=("no_valid_token",)),
    Feature(
        "dummy step",
        events=(DummyStep(tick=4), *(Stall(tick=4, request=name, ticks=2) for name in "abc")),
        shows=("dummy_step", "empty_step"),
    ),
    Feature(
        "logits of one token",
        events=(
            SpoilLogit(tick=3, request="a", column=1, token=3),
            SpoilLogit(tick=5, request="a", token=5, value="inf"),
        ),
        shows=("spoiled_logit",),
    ),
    Feature(
        "drafts that are no tokens",
        events=(
            SpoilDraft(tick=3, request="a"),
            SpoilDraft(tick=3, request="c", draft=1, what="below"),
            SpoilDraft(tick=4, request="a", what="nan"),
            SpoilDraft(tick=5, request="a", draft=1, token=7, what="inf"),
        ),
        shows=("spoiled_draft",),
    ),
    Feature("logits that are no numbers", events=(NanLogits(tick=4, request="a"),), shows=("nan_logits", "no_logit")),
)


def alternatives(first: Feature, second: Feature) -> bool:
    """Return whether two features set one key to different values."""
    ours, theirs = first.values(), second.values()
    return any(theirs[where] != value for where, value in ours.items() if where in theirs)


def specification(*features: Feature) -> EngineSpec:
    """Return the base specification with these features only."""
    keys = dict(BASE)
    for feature in features:
        keys |= feature.spec
    return EngineSpec(**keys)


def composed(*features: Feature) -> Trace:
    """Return the explicit base trace with these features, valid or not."""
    keys = specification(*features).model_dump()
    asked = {key for feature in features for key in feature.spec}
    submit, *others = SUBMITS
    events: list[AnyEvent] = []
    for feature in features:
        keys |= {key: value for key, value in feature.beside.items() if key not in asked}
        params = submit.params.model_copy(update=dict(feature.params))
        submit = submit.model_copy(update={**feature.submit, "params": params})
        events += feature.events
    content = {"spec": keys, "events": (submit, *others, *events)}
    trace = Trace.model_validate(content, context={"problems_listed": True}).explicit()
    if trace.spec.num_blocks != FEWEST:
        return trace
    needed = [
        trace.spec.blocks_needed(len(prompt_tokens(event, trace.seed, trace.spec.vocab_size)), event.max_tokens)
        for event in trace.submits()
    ]
    return trace.model_copy(update={"spec": trace.spec.model_copy(update={"num_blocks": max(needed)})})
