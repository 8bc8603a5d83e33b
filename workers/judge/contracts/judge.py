"""Check the output rules (contracts) of each request, without the outputs of other runs.

Verifies: every contract of `CONTRACTS`, for every accepted request, also if its name was submitted again later.

Does not verify: which tokens a model must sample (the oracle, or the comparison with another run, does).
"""

from collections.abc import Mapping

from scenarios.events import Abort, Submit
from scenarios.sampling import Output
from workers.judge.contracts import contexts, logprobs, tokens
from workers.judge.contracts.breach import PLANE, Breach
from workers.judge.contracts.contexts import context_breach
from workers.judge.contracts.delivery import Delivery, Terms
from workers.judge.contracts.logprobs import logprob_breach, prompt_logprob_breach
from workers.judge.contracts.tokens import token_breach
from workers.judge.judge import Case, End, Judge
from workers.record.evidence import Difference, Fact, fact

NOTHING = Output((), None)
# The rule of each contract. The rules listed here concern the order of outputs in a run; the others, single outputs.
CONTRACTS: Mapping[str, str] = {
    "answer": "every accepted request has an output, and the output has ended when the engine has drained",
    "delivery": "delivered tokens and logprobs do not change, and nothing is delivered after the end of an output",
    "abort": "a live request that is aborted ends with reason abort and keeps the tokens delivered before the abort",
    "name": "a request that reuses the name of an ended request starts with an empty output",
    **tokens.CONTRACTS,
    **logprobs.CONTRACTS,
    **contexts.CONTRACTS,
}


class Contracts(Judge):
    """Judge of the output rules of all requests; `breach` is the first broken rule.

    A submit is accepted unless a request of its name is alive according to its last output. `newest` has the last
    request of each name, `ended` the earlier ones, `taken` all accepted requests in order. With `sees_steps`, outputs
    are also checked after each step: they may only grow.
    """

    planes = (PLANE,)

    def __init__(self, terms: Terms, sees_steps: bool = False) -> None:
        self.terms = terms
        self.sees = ("outputs",) if sees_steps else ()
        self.breach: Breach | None = None
        self.ended: list[Delivery] = []
        self.newest: dict[str, Delivery] = {}
        self.taken: list[Delivery] = []

    @classmethod
    def of(cls, case: Case) -> "Contracts":
        """Return the judge; it checks outputs after each step unless the engine logs its decisions."""
        terms = Terms(case.trace, case.capabilities.words_from_prompt, case.capabilities.logit_margin)
        return cls(terms, sees_steps=not case.capabilities.logs_decisions)

    def is_known(self, name: str) -> bool:
        """Return whether the engine has accepted a request of this name before."""
        return name in self.newest

    def submitted(self, event: Submit, before: Output | None, after: Output | None) -> None:
        """Register a submit; `before` and `after` are the outputs under its name around it."""
        known = self.newest.get(event.request)
        if known is not None:
            if before is not None and before.finish_reason is None:
                return
            known.output = before
            self.ended.append(known)
            if after is not None and (after.tokens or after.finish_reason is not None):
                self._break("name", event.request, 0, fact("nothing_yet"), _summary(after))
        self.newest[event.request] = Delivery(event)
        self.taken.append(self.newest[event.request])

    def aborted(self, event: Abort, before: Output | None) -> None:
        """Record an abort, and the output that the request had just before it."""
        known = self.newest.get(event.request)
        if known is not None and known.at_abort is None and before is not None and before.finish_reason is None:
            known.at_abort = before

    def all_aborted(self, outputs: Mapping[str, Output]) -> None:
        """Record an abort of all running requests, and their outputs just before it."""
        for name, known in self.newest.items():
            before = outputs.get(name)
            if known.at_abort is None and before is not None and before.finish_reason is None:
                known.at_abort = before

    def see_outputs(self, outputs: Mapping[str, Output]) -> None:
        """Check that each output extends the output delivered before."""
        for name, output in outputs.items():
            known = self.newest.get(name)
            if known is None:
                self._break("answer", name, None, fact("output_submitted"), _summary(output))
                continue
            before = known.output or NOTHING
            if output != before:
                self._changed(name, before, output)
                known.output = output

    def at_end(self, end: End) -> Difference | None:
        breach = self.first_breach(end.outputs)
        return breach.difference(end.steps) if breach is not None else None

    def first_breach(self, outputs: Mapping[str, Output]) -> Breach | None:
        """Return the first broken rule or None, given the outputs of the drained engine."""
        for name in outputs.keys() - self.newest.keys():
            self._break("answer", name, None, fact("output_submitted"), _summary(outputs[name]))
        for name, known in self.newest.items():
            known.output = outputs.get(name)
        for given in (*self.ended, *self.newest.values()):
            if self.breach is None:
                self.breach = (
                    token_breach(given, self.terms)
                    or logprob_breach(given, self.terms)
                    or prompt_logprob_breach(given, self.terms)
                )
        if self.breach is None:
            self.breach = context_breach((*self.ended, *self.newest.values()), self.terms)
        return self.breach

    def _changed(self, name: str, before: Output, now: Output) -> None:
        length = len(before.tokens)
        if now.tokens[:length] != before.tokens:
            same = (a == b for a, b in zip(before.tokens, now.tokens, strict=False))
            position = next((place for place, is_same in enumerate(same) if not is_same), len(now.tokens))
            self._break("delivery", name, position, fact("and_more", before=_summary(before)), _summary(now))
        elif before.finish_reason is not None:
            self._break("delivery", name, length, fact("and_no_more", before=_summary(before)), _summary(now))
        elif (
            now.logprobs[: len(before.logprobs)] != before.logprobs
            or now.prompt_logprobs[: len(before.prompt_logprobs)] != before.prompt_logprobs
        ):
            self._break("delivery", name, None, fact("same_logprobs"), fact("other_logprobs"))

    def _break(self, contract: str, request: str, position: int | None, expected: Fact, actual: Fact) -> None:
        if self.breach is None:
            self.breach = Breach(contract, request, position, expected, actual)


def _summary(output: Output) -> Fact:
    """Return the message that gives an output's length and, if it has ended, its finish reason."""
    count = len(output.tokens)
    if output.finish_reason is None:
        return fact("tokens", count=count)
    return fact("tokens_ended", count=count, reason=output.finish_reason)
