"""The interface of a drafter, and the choice of drafter for a specification."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from scenarios.spec import EngineSpec
from workers.engine.context import Context, Forward, arguments_of
from workers.engine.drafters import device_drafters as device
from workers.kernels.drafter_limit.definition import LimitDrafts, LimitSlots

# Enqueues, after the sampler of a step, the ops that propose the draft tokens which the next step verifies: the update
# of the drafter's KV cache with the step's tokens, and the proposal.
Drafter: TypeAlias = Callable[[Context, Forward], None]

_limit_slots = arguments_of(LimitSlots)
_limit_drafts = arguments_of(LimitDrafts, "num_proposed")
DRAFTERS: Mapping[str, Drafter] = {
    "eagle": device.eagle,
    "draft_model": device.draft_model,
    "mtp": device.mtp,
    "dflash": device.dflash,
    "extract_hidden_states": device.extract_hidden_states,
    "ngram_gpu": device.ngram_gpu,
    "suffix": device.propose_on_host,
    "ngram": device.propose_on_host,
    "medusa": device.medusa,
}


def drafter_of(spec: EngineSpec) -> Drafter:
    """Return the drafter of an engine specification.

    A drafter with fewer positions than the target has no KV slots past its end, and rows near that end get no draft
    tokens.
    """
    drafter = DRAFTERS[spec.drafter]

    def limited(context: Context, forward: Forward) -> None:
        launch, functions, view = context.compute.launch, context.functions, forward.view
        launch(functions.limit_slots, context.cached_in_view(_limit_slots, view.shape))
        drafter(context, forward)
        launch(functions.limit_drafts, context.cached(_limit_drafts, view.shape, forward.k_step))

    return limited if spec.drafter_max_len else drafter
