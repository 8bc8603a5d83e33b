"""Rules of structured output: when to wait, which draft tokens and next tokens are allowed."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice

from scenarios.sampling import Grammar, Tokens
from workers.engine.params_line import mask_words
from workers.engine.request import PlanRow, Request
from workers.kernels.sentinels import NO_DRAFT

# After a grammar has ended or was violated, any token is allowed.
FREE = -1


def state_after(grammar: Grammar, tokens: Iterable[int], state: int = 0) -> int:
    """Return the grammar state after `tokens`."""
    for token in tokens:
        for allowed, after in edges_of(grammar, state):
            if allowed == token:
                state = after
                break
        else:
            return FREE
    return state


def state_of(request: Request) -> int:
    """Return the grammar state after a request's output tokens."""
    return state_after(request.params.grammar, islice(request.tokens, request.num_prompt, None))


def edges_of(grammar: Grammar, state: int) -> tuple[Tokens, ...]:
    """Return the allowed tokens in a grammar state, with the states they lead to.

    Empty after a grammar has ended.
    """
    return () if state == FREE else grammar[state]


def waits_for_tokens(request: Request) -> bool:
    """Return whether a request waits for tokens in flight, on which its grammar bitmask depends.

    Source: SGLang PR #25361.
    """
    return bool(request.params.grammar) and request.num_placeholders > 0


def checked_drafts(request: Request, num_drafts: int) -> Sequence[int]:
    """Return the draft tokens before the first forbidden by the grammar, padded with NO_DRAFT."""
    grammar, state = request.params.grammar, state_of(request)
    kept: tuple[int, ...] = ()
    for draft in islice(request.drafts, num_drafts):
        allowed = next((edge for edge in edges_of(grammar, state) if edge[0] == draft), None)
        if allowed is None:
            break
        kept += (draft,)
        state = allowed[1]
    return kept + (NO_DRAFT,) * (num_drafts - len(kept))


def keep_drafts(rows: Sequence[PlanRow], drafts: Sequence[Sequence[int]]) -> None:
    """Store grammar requests' draft tokens on the request, until its next step verifies them."""
    for row, proposed in zip(rows, drafts, strict=False):
        has_ended = row.request.finish_reason is not None
        if row.request.params.grammar and row.scheduled.epoch == row.request.epoch and not has_ended:
            row.request.drafts[:] = () if row.discard else proposed


def num_masks(row: PlanRow) -> int:
    """Return the number of a row's bitmasks: one per draft token, and one for the bonus token.

    A draft token that was removed by the grammar also has one.
    Source: vLLM PR #49738.
    """
    return 1 + row.scheduled.d


def mask_rows(row: PlanRow, vocab_size: int) -> Iterator[tuple[int, ...]]:
    """Yield a row's bitmasks of allowed tokens: for each draft token, then for the bonus token.

    After a removed draft token, all tokens are allowed.
    """
    grammar, state = row.request.params.grammar, state_of(row.request)
    for draft in chain(row.drafts, (NO_DRAFT,)):
        edges = edges_of(grammar, state)
        yield mask_words((edge[0] for edge in edges) if edges else range(vocab_size), vocab_size)
        state = state_after(grammar, (draft,), state)


def length_in_grammar(request: Request, sampled: Sequence[int]) -> int:
    """Return how many of the sampled tokens belong to the grammar; it may end before the last.

    One more than sampled if it goes past.
    """
    grammar, state = request.params.grammar, state_of(request)
    for index, token in enumerate(sampled):
        state = state_after(grammar, (token,), state)
        if not edges_of(grammar, state):
            return index + 1
    return len(sampled) + 1
