"""Interface of a drafter, and the drafter that a specification names."""

from collections.abc import Mapping
from typing import Protocol

from scenarios.spec import EngineSpec
from workers.engine.context import Context, Forward, arguments_of
from workers.engine.drafters import dflash, draft_model, eagle, extract_hidden_states, medusa, mtp, ngram_gpu
from workers.kernels.drafter_limit.definition import LimitDrafts, LimitSlots

_limit_slots = arguments_of(LimitSlots)
_limit_drafts = arguments_of(LimitDrafts, "num_proposed")


class Drafter(Protocol):
    """Enqueues, behind the sampling of a step, what proposes the drafts that the next step verifies."""

    def launch(self, context: Context, forward: Forward) -> None:
        """Enqueue the drafter's work on a step: its cache for the step's tokens, and its drafts behind them."""


class Limited:
    """A drafter with fewer positions than the target: past them it has no cache, and rows near them get no drafts."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter

    def launch(self, context: Context, forward: Forward) -> None:
        """Enqueue the drafter between what limits its slots and what limits its drafts."""
        launch, parts, view = context.compute.launch, context.parts, forward.view
        launch(parts.limit_slots, context.of_view(_limit_slots, view.shape))
        self._drafter.launch(context, forward)
        launch(parts.limit_drafts, context.once(_limit_drafts, view.shape, forward.k_step))


class OnHost:
    """A drafter that has nothing to do on the device: the host proposes once the step has been processed."""

    def launch(self, context: Context, forward: Forward) -> None:
        """Enqueue nothing."""


DRAFTERS: Mapping[str, Drafter] = {
    "eagle": eagle,
    "draft_model": draft_model,
    "mtp": mtp,
    "dflash": dflash,
    "extract_hidden_states": extract_hidden_states,
    "ngram_gpu": ngram_gpu,
    "suffix": OnHost(),
    "ngram": OnHost(),
    "medusa": medusa,
}


def drafter_of(spec: EngineSpec) -> Drafter:
    """Return the drafter of an engine."""
    drafter = DRAFTERS[spec.drafter]
    return Limited(drafter) if spec.drafter_max_len else drafter
