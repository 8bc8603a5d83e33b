"""Judge of contracts: the first one that the outputs of a run break, from the requests of its trace alone.

Verifies: every contract of `breach.CONTRACTS`, of every request that was taken in, also one whose name was used again.
Does not verify: which tokens a model must choose (another run, or the oracle, says that).
"""

from collections.abc import Mapping

from scenarios.trace import Trace
from workers.judge.contracts.breach import Breach
from workers.judge.contracts.delivery import Deliveries
from workers.judge.contracts.logprobs import logprob_breach
from workers.judge.contracts.tokens import terms_of, token_breach
from workers.record.observation import Output


def contract_breach(
    trace: Trace, deliveries: Deliveries, outputs: Mapping[str, Output], words_from_prompt: bool = True
) -> Breach | None:
    """Return the first contract that is broken once nothing is left to do, or None.

    `words_from_prompt`: a bad word may begin in the prompt.
    """
    terms = terms_of(trace, words_from_prompt)
    given = deliveries.at_end(outputs)
    if deliveries.breach is not None:
        return deliveries.breach
    for each in given:
        found = token_breach(each, terms) or logprob_breach(each, terms)
        if found is not None:
            return found
    return None
