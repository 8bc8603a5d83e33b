"""Breach of a contract, and the names of all contracts."""

from collections.abc import Mapping
from typing import NamedTuple

from workers.record.evidence import Difference, Fact

# The plane of findings; the variable of one is the contract that is broken.
PLANE = "contracts"
# What each contract demands.
CONTRACTS: Mapping[str, str] = {
    "answer": "every request that is taken in has an output, and has ended once nothing is left to do",
    "delivery": "what was delivered stays as it was, and behind an end nothing comes",
    "abort": "a request that is given up while it lives ends with that, and keeps what it had by then",
    "name": "a request with the name of one that has ended starts with nothing",
    "vocabulary": "every token is one of the vocabulary",
    "max_tokens": "no more tokens than the request and the model's length allow; reason length with the last of them",
    "stop": "no token behind a stop token, and reason stop if that is the last one",
    "stop_words": "no token behind the stop word that is complete first, and reason stop with its last",
    "finish_reason": "a reason for every end: stop, length, abort if somebody asked for it, error without any choice",
    "min_tokens": "no stop token among the first tokens",
    "allowed_tokens": "no other token than those allowed",
    "bad_words": "no token that completes a bad word",
    "no_repeats": "no token directly behind itself",
    "logit_bias": "no token with a bias of -100 while another may come, and one of 100 while one may come; and, by the "
    "logprobs delivered, what a smaller bias comes to",
    "grammar": "every token is an edge of the state reached, and the output ends where there are none",
    "broken_grammar": "a request whose grammar does not compile ends with reason error, without a token",
    "logprobs": "as many logprobs of each token as were asked for, its own first",
    "logprob_tokens": "logprobs of the tokens that a request names, in its order, behind a token's own",
    "prompt_logprobs": "with the first token as many logprobs of each token of the prompt behind its first as were "
    "asked for, its own first, in order, of probabilities that are 1 all together",
    "logprob_ranks": "the likeliest tokens come in order, and a token has one logprob wherever it is named",
    "logprob_sum": "probabilities of a vocabulary: none above 1, all together 1, none 0 of what was delivered",
    "same_context": "behind the same tokens a token has the same logit, in a prompt and where it was chosen",
    "greedy": "at temperature 0 nothing that may come and is shown is likelier than the token delivered",
    "penalties": "so it is once the logprobs shown are penalised by what the prompt and the output before hold",
    "top_k": "a token that is drawn is one of the k likeliest",
    "min_p": "a token that is drawn is at least p times as probable as the likeliest",
    "top_p": "a token that is drawn is among the fewest that have p of all probability",
}


class Breach(NamedTuple):
    """A broken contract: the request, the position in its output, what was demanded and what was delivered."""

    contract: str
    request: str
    position: int | None
    expected: Fact
    actual: Fact

    def difference(self, step: int) -> Difference:
        """Return it as a difference seen in a step."""
        return Difference(
            plane=PLANE,
            variable=self.contract,
            request=self.request,
            step=step,
            position=self.position,
            expected=self.expected,
            actual=self.actual,
        )
