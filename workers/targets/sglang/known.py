"""Known bugs of SGLang, each read in its source and written about in `findings/`; recognised by its mechanism."""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, TypeAlias

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, MissingOrder, fact
from workers.record.observation import Observation
from workers.targets.sglang.limits import VOCABULARY_OF_VIEWS, has_penalties
from workers.targets.target import KnownBug

_Matcher: TypeAlias = Callable[[Difference, Trace, Sequence[Observation]], bool]

# What is seen of an output that goes on behind the end of its grammar.
_BEHIND_AN_END = ("grammar", "finish_reason", "tokens")
# Behind a token that a grammar does not allow there is no state of it.
_LEFT = -1


def gives_results_away(race: MissingOrder) -> bool:
    """Tell whether memory of a batch's results is handed out again while their copy to the host reads it."""
    copying = race.first
    is_of_results = copying.site is not None and copying.site.function in ("async_d2h", "_async_d2h")
    return is_of_results and copying.op == "copy_d2h" and bool(race.reused_as)


def _standalone_prefix_successor(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether an entry of a draft model's cache is another request's, of another token that followed."""
    due, there = found.expected, found.actual
    if found.variable != "draft_cache" or not (isinstance(due, Fact) and isinstance(there, Fact)):
        return False
    is_shared = trace.spec.prefix_cache and trace.spec.drafter == "draft_model"
    at = due.values.get("position")
    is_end = isinstance(at, int) and (at + 1) % trace.spec.block_size == 0
    is_anothers = there.values.get("position") == at and there.values.get("request") != due.values.get("request")
    return is_shared and is_end and is_anothers


def _chunk_end_behind_prompt(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a drafter is given the sample behind a chunk of what a request had put out before it began again."""
    if found.variable != "draft_input_ids" or found.position is None:
        return False
    begun = [each for seen in steps if seen.point == "scheduled" for each in seen.values["begun"]]
    lengths = enumerate(submit.prompt_length for submit in trace.submitted())
    own = next(((number, length) for number, length in lengths if found.request == f"submit {number}"), None)
    # The next token is known: it is one of the output.
    return own is not None and any(
        number == own[0] and own[1] <= found.position + 1 < len(tokens) and found.expected == tokens[found.position + 1]
        for number, tokens in begun
    )


class _Parting(NamedTuple):
    """A request that may be the one of which two runs have different tokens, its output before that, and both tokens.

    `kept` is the most that it had put out when it began again, having lost its slots.
    """

    submit: Submit
    output: Sequence[int]
    chosen: frozenset[int]
    kept: int

    @property
    def params(self) -> SamplingParams:
        return self.submit.params

    @property
    def end_of_prompt(self) -> int:
        assert isinstance(self.submit.prompt, tuple), "the trace is explicit"
        return self.submit.prompt[-1]

    def is_by(self, tokens: Set[int]) -> bool:
        """Tell whether penalties of some tokens may have done it: one of them was chosen, or should have been.

        A draw may come to any token.
        """
        return has_penalties(self.params) and bool(self.params.temperature or self.chosen & tokens)


def _parting(found: Difference, trace: Trace, steps: Sequence[Observation]) -> Iterator[_Parting]:
    """Yield the requests that a difference between two tokens may be of."""
    if found.variable != "tokens" or not (isinstance(found.expected, int) and isinstance(found.actual, int)):
        return
    chosen = frozenset((found.expected, found.actual))
    for number, submit in enumerate(trace.submitted()):
        if submit.request != found.request:
            continue
        own = [seen for seen in steps if number in seen.requests]
        output = [
            token
            for seen in own
            if seen.point == "processed"
            for token in seen.values["sampled"][seen.requests.index(number)]
        ]
        begun = [len(dict(seen.values["begun"]).get(number, ())) for seen in own if seen.point == "scheduled"]
        yield _Parting(submit, output[: found.position], chosen, max(begun, default=0) - submit.prompt_length)


def _penalties_one_behind(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether the last token of a request is not told to its penalties, and the prompt's last one is."""
    parting = _parting(found, trace, steps) if trace.spec.depth > 1 else ()
    return any(each.is_by({*each.output[-1:], each.end_of_prompt}) for each in parting if each.output)


def _penalties_forgotten(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether what a request had put out before it lost its slots counts no more: to penalties, or to a minimum.

    A minimum that begins anew keeps a stop token from it.
    """
    for each in _parting(found, trace, steps):
        if each.kept <= 0:
            continue
        least, count = each.params.min_tokens, len(each.output)
        is_kept_from = least <= count < least + each.kept and found.expected in each.submit.stop
        late = {each.end_of_prompt} if trace.spec.depth > 1 else set[int]()
        if is_kept_from or each.is_by({*each.output} | late):
            return True
    return False


def _mixed_grammars(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request with a grammar was taken along by a prompt while its last tokens were in flight.

    Its mask is that of before them: it is given what it may not have, and ends, or is kept from what it may.
    """
    spec = trace.spec
    if not (spec.mixed_chunks and spec.num_speculative_tokens and spec.depth > 1):
        return False
    submits = trace.submitted()
    return found.variable in ("grammar", "finish_reason", "tokens") and any(
        submits[number].request == found.request and submits[number].params.grammar
        for number in _taken_along(submits, steps)
    )


def _taken_along(submits: Sequence[Submit], steps: Sequence[Observation]) -> Iterator[int]:
    """Yield the requests that decode in a step without drafts and ran in the step before it, too."""
    before: Sequence[int] = ()
    for seen in steps:
        if seen.point != "scheduled":
            continue
        rows = zip(seen.requests, seen.values["scheduled_computed"], seen.values["planned_drafts"], strict=True)
        for number, computed, drafts in rows:
            if not drafts and computed >= submits[number].prompt_length and number in before:
                yield number
        before = seen.requests


def _grammar_ends_late(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a grammar has ended that SGLang asked too early: behind a prompt, or with the last token allowed.

    Behind a prompt the output goes on for a step; with the last token the reason is its length.
    """
    if not trace.spec.num_speculative_tokens:
        return False
    for number, submit in enumerate(trace.submitted()):
        if not submit.params.grammar or found.request != submit.request:
            continue
        if found.variable in _BEHIND_AN_END and _ends_without_drafts(number, submit, steps):
            return True
        room = trace.spec.length_limit(submit.prompt_length, submit.max_tokens) - submit.prompt_length
        is_of_both = found.variable == "finish_reason" and found.position == room - 1
        if is_of_both and (found.expected, found.actual) == (
            fact("reason", reason="stop"),
            fact("reason", reason="length"),
        ):
            return True
    return False


def _ends_without_drafts(number: int, submit: Submit, steps: Sequence[Observation]) -> bool:
    """Tell whether a request's grammar ends with a token of a step without drafts."""
    state, drafts, grammar = 0, dict[int, int](), submit.params.grammar
    for seen in steps:
        if number not in seen.requests:
            continue
        row = seen.requests.index(number)
        if seen.point == "scheduled":
            drafts[seen.step] = seen.values["planned_drafts"][row]
        elif seen.point == "processed":
            for token in seen.values["sampled"][row]:
                state = next((to for each, to in grammar[state] if each == token), _LEFT)
                if state == _LEFT:
                    return False
                if not grammar[state]:
                    return drafts.get(seen.step) == 0
    return False


def _grammar_rows_of_views(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Return whether masks of grammars were applied to a view of logits that has more than one row."""
    submits, spec = trace.submitted(), trace.spec
    has_rows = len(submits) > 1 or spec.num_speculative_tokens > 0
    has_masks = any(submit.params.grammar for submit in submits)
    return spec.vocab_size == VOCABULARY_OF_VIEWS and has_rows and has_masks and found.variable in _BEHIND_AN_END


BUGS: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "sglang_penalties_one_behind",
        "findings/sglang_penalties_one_behind/README.md",
        "SGLang 0.5.23 with the overlap schedule counts tokens in penalties one step late, and the prompt's last.",
    ): _penalties_one_behind,
    KnownBug(
        "sglang_penalties_forgotten",
        "findings/sglang_penalties_forgotten/README.md",
        "SGLang 0.5.23 ignores output tokens from before a retraction in penalties and `min_new_tokens`.",
    ): _penalties_forgotten,
    KnownBug(
        "sglang_chunk_end_behind_prompt",
        "findings/sglang_chunk_end_behind_prompt/README.md",
        "SGLang 0.5.23 passes a drafter a sampled token after a chunk of a retracted request's known output tokens.",
    ): _chunk_end_behind_prompt,
    KnownBug(
        "sglang_standalone_prefix_successor",
        "findings/sglang_standalone_prefix_successor/README.md",
        "SGLang 0.5.23 reuses a cached prefix whose last draft-model KV entry depends on another request's next token.",
    ): _standalone_prefix_successor,
    KnownBug(
        "sglang_mixed_grammars",
        "findings/sglang_mixed_grammars/README.md",
        "SGLang 0.5.23 masks a decode in a mixed batch by its grammar state before the tokens in flight.",
    ): _mixed_grammars,
    KnownBug(
        "sglang_grammar_ends_late",
        "findings/sglang_grammar_ends_late/README.md",
        "SGLang 0.5.23 checks a grammar's end before it accepts the token after a prompt, and after the length check.",
    ): _grammar_ends_late,
    KnownBug(
        "sglang_grammar_rows_of_views",
        "findings/sglang_grammar_rows_of_views/README.md",
        "SGLang 0.5.23 masks logits at the wrong offsets if they are a view of rows that are padded.",
    ): _grammar_rows_of_views,
}
