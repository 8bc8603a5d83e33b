"""Contract on prompt logprobs: delivered with the first token, of the prompt's tokens, consistent as probabilities.

Verifies: `prompt_logprobs`.
Does not verify: that they are the model's; another run of the same prompt says more.
"""

from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Delivery, Terms
from workers.judge.contracts.logprobs import Shown, Step, rank_breach, sum_breach
from workers.record.evidence import fact

_CONTRACT = "prompt_logprobs"


def prompt_logprob_breach(given: Delivery, terms: Terms) -> Breach | None:
    """Return the first breach among the logprobs of the prompt of a request, or None."""
    submit, output = given.submit, given.output
    assert isinstance(submit.prompt, tuple), "the trace is explicit"
    if output is None:
        return None
    name, flat, behind_first = submit.request, output.prompt_logprobs, submit.prompt[1:]
    width = submit.params.num_prompt_logprobs
    # They are delivered with the first token: an output without tokens has none.
    due = 2 * width * len(behind_first) if output.tokens else 0
    if len(flat) != due:
        each = fact("logprobs_of_prompt", width=width, count=len(behind_first))
        return Breach(
            _CONTRACT, name, None, each if due else fact("nothing"), fact("num_logprobs", count=len(flat) // 2)
        )
    for place, token in enumerate(behind_first) if due else ():
        row = flat[2 * width * place : 2 * width * (place + 1)]
        if row[0] != token:
            first = fact("own_first_in_prompt", token=token, place=place + 1)
            return Breach(_CONTRACT, name, None, first, fact("of_token", token=row[0]))
        shown = Shown(row[1], tuple(int(each) for each in row[2::2]), row[3::2])
        step = Step(place, token, shown)
        wrong = rank_breach(step, terms.vocab_size) or sum_breach(step, terms.vocab_size)
        if wrong is not None:
            return Breach(_CONTRACT, name, None, fact("in_prompt", what=wrong[1], place=place + 1), wrong[2])
    return None
