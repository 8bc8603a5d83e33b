"""Known bugs of the recurrent states of vLLM's hybrid models beside drafters, by what a run shows of them."""

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.target import KnownBug


def _behind_prompts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a state goes on too early of a row of one token, without drafts, that stands behind a prompt's."""
    if found.variable != "kept":
        return False
    inputs = next(seen for seen in steps if (seen.point, seen.step) == ("inputs", found.step))
    numbers = list(map("submit {}".format, inputs.requests))
    starts, drafts = inputs.values["starts"], inputs.values["drafts"]
    widths = [stop - start for start, stop in pairwise(starts)]
    goes_on = next(values for name, values in inputs.values.items() if name.startswith("goes_on_"))
    row = numbers.index(found.request)
    before = range(row)
    is_behind = any(not drafts[each] and (widths[each] > 1 or not goes_on[each]) for each in before)
    return (widths[row], drafts[row]) == (1, 0) and is_behind


def _of_padded_prompts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a state is behind the placeholders that a prompt of one token was padded with.

    Of a request that begins with it, beside one that runs; what it left is seen in the next step that it is in.
    """
    if found.variable != "kept":
        return False
    named = [(seen, [f"submit {number}" for number in seen.requests]) for seen in steps if seen.point == "inputs"]
    before = [(seen, names) for seen, names in named if seen.step < found.step and found.request in names]
    if not before:
        return False
    inputs, names = before[-1]
    row = names.index(found.request)
    starts, drafts = inputs.values["starts"], inputs.values["drafts"]
    begins = inputs.values["positions"][starts[row]] == 0
    is_padded = drafts[row] > 0 and starts[row + 1] - starts[row] == 1 + drafts[row]
    return bool(begins and is_padded)


BUGS_OF_SECOND: Mapping[KnownBug, Callable[[Difference, Trace, Sequence[Observation]], bool]] = {
    KnownBug(
        "vllm_v2_states_behind_prompts",
        "docs/findings/vllm_v2_states_behind_prompts.md",
        "vLLM 0.32.0 takes a decode for a prompt behind one as long as a run of drafts, and its state too early.",
    ): _behind_prompts,
    KnownBug(
        "vllm_padded_prompts_of_one_token",
        "docs/findings/vllm_padded_prompts_of_one_token.md",
        "vLLM 0.32.0 pads a prompt of one token with placeholders that stay in its recurrent state.",
    ): _of_padded_prompts,
}
