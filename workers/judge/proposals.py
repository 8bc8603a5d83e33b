"""Comparison of what a drafter proposed in two runs of the same requests.

Verifies: that the same drafts are proposed behind the same tokens, and so, as the target verifies what was proposed and
its tokens are the same, that as many are accepted.
Does not verify: drafts that are drawn; what is proposed where the drafter's cache does not follow from tokens alone
(behind a prefix that was found, steps without a pass, and ends of chunks that are not those of the tokens); a draft
that was hardly likelier than another one, and those behind it; drafts that are proposed at once, where other numbers
of them are; names that are used again; engines that sleep or are given other weights.
"""

from collections import Counter

from scenarios.events import LoadWeights, Sleep
from scenarios.trace import Trace
from workers.judge.drafter_inputs import PLANE, Proposals
from workers.record.evidence import Difference

# Logits of two drafts nearer to each other may change places with the batch they are computed in.
DRAFT_MARGIN = 1e-3


def first_unlike(trace: Trace, seen: Proposals, wanted: Proposals) -> Difference | None:
    """Return the first draft, by step, that is another one than in a run whose tokens were the same up to there."""
    submits = trace.submitted()
    # What was computed may be of other weights, or lost.
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
