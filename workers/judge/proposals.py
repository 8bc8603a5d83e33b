"""Compare the draft tokens that a drafter proposed in two runs of the same requests.

Verifies: after the same tokens, both runs propose the same draft tokens (and so have the same acceptance rate).

Does not verify:
- sampled draft tokens;
- proposals that do not follow from tokens alone: after a prefix-cache hit, a step without a draft pass, or the end of a
  prefill chunk whose last token replaced the next prompt token;
- a draft token that is a near tie with another token, and the drafts after it;
- drafts of a parallel drafter, if the runs propose different numbers of them;
- traces that submit a name again, put the engine to sleep, or load other weights.
"""

from collections import Counter

from scenarios.events import LoadWeights, Sleep
from scenarios.trace import Trace
from workers.judge.drafter_inputs import PLANE, Proposals
from workers.record.evidence import Difference

# Draft tokens with logits closer than this may change their order with the batch in which they are computed.
DRAFT_MARGIN = 1e-3


def first_different_draft(trace: Trace, seen: Proposals, wanted: Proposals) -> Difference | None:
    """Return the first draft token that differs between runs after equal tokens, or None."""
    submits = trace.submitted()
    # Entries in the drafter's KV cache may be of other weights, or lost.
    is_changed = any(isinstance(event, LoadWeights | Sleep) for event in trace.events)
    if is_changed or max(Counter(submit.request for submit in submits).values(), default=0) > 1:
        return None
    for key, proposal in sorted(seen.items(), key=lambda each: each[1].step):
        submit, other = submits[key[0]], wanted.get(key)
        is_drawn = trace.spec.draft_sampling != "greedy" and submit.params.temperature > 0
        if is_drawn or other is None or other.tokens != proposal.tokens:
            continue
        if proposal.at_once and len(proposal.drafts) != len(other.drafts):
            continue
        rows = zip(proposal.drafts, other.drafts, proposal.margins, other.margins, strict=False)
        for index, (draft, due, *margins) in enumerate(rows):
            if min(margins) < DRAFT_MARGIN:
                break
            if draft != due:
                return Difference(
                    plane=PLANE,
                    variable="proposed",
                    request=submit.request,
                    step=proposal.step,
                    position=key[1] + index,
                    expected=due,
                    actual=draft,
                )
    return None
