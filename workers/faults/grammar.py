"""Faults in structured output: bitmasks, draft tokens, grammar states.

Faults in device ops exist only on the NumPy tier.
"""

from workers.engine.functions import EngineFunctions
from workers.engine.params_line import mask_words
from workers.engine.request import PlanRow, Request
from workers.faults.fault import Reached, fault, in_place_of
from workers.kernels.grammar.definition import GrammarDrafts
from workers.kernels.sentinels import NO_DRAFT


@fault(
    id="vllm-49738-trimmed-masks",
    source="vllm PR #49738 (issue #49694)",
    symptom="a grammar request is masked with the bitmasks of another request",
    trigger="a grammar removes draft tokens of a request, and another grammar request has a later row",
    plane="logits",
)
@in_place_of("num_masks")
def _trimmed_masks(functions: EngineFunctions, reached: Reached, row: PlanRow) -> int:
    allowed = sum(draft != NO_DRAFT for draft in row.drafts)
    if allowed < row.scheduled.d:
        reached()
    return 1 + allowed


@fault(
    id="vllm-32303-cut-off-input",
    source="vllm PR #32303",
    symptom="the model input is the placeholder of a draft token that a grammar removed",
    trigger="a draft token violates the grammar of its request",
    plane="inputs",
)
@in_place_of("grammar_drafts")
def _cut_off_is_embedded(functions: EngineFunctions, reached: Reached, given: GrammarDrafts) -> None:
    functions.grammar_drafts(given)
    for row in given.rows:
        d, end = given.num_drafts[row], given.query_start[row] + given.num_scheduled[row]
        if (given.host_ids[end - d : end] == NO_DRAFT).any():
            reached()
        given.input_ids[end - d : end] = given.host_ids[end - d : end]


@fault(
    id="vllm-44297-decided-at-the-start",
    source="vllm PR #44297; in vLLM the grammar begins at a marker, here it has a state that allows any token",
    symptom="a request samples a token that its grammar no longer allows",
    trigger="a draft token leads from a grammar state that allows any token to one that does not",
    plane="logits",
)
@in_place_of("mask_rows")
def _masked_if_the_first_row_is(
    functions: EngineFunctions, reached: Reached, row: PlanRow, vocab_size: int
) -> list[tuple[int, ...]]:
    masks, anything = list(functions.mask_rows(row, vocab_size)), mask_words(range(vocab_size), vocab_size)
    if masks[0] != anything or all(mask == anything for mask in masks):
        return masks
    reached()
    return [anything] * len(masks)


@fault(
    id="sglang-25361-nobody-waits",
    source="sglang PR #25361",
    symptom="a request is masked by the state of its grammar before the tokens in flight",
    trigger="a grammar request has a sample in flight when the next step is scheduled",
    plane="books",
    requires=(("depth", 2),),
)
@in_place_of("waits_for_tokens")
def _never_waits_for_tokens(functions: EngineFunctions, reached: Reached, request: Request) -> bool:
    if functions.waits_for_tokens(request):
        reached()
    return False
