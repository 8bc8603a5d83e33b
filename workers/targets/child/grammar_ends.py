"""Limits of engines whose grammars end by stop tokens only, and requests adapted to them.

In such a grammar each edge of a stop token leads to a state without edges, and no other edge does. In general, an
output ends in any state without edges, independent of the output token that leads to it, and after any stop token.
"""

from scenarios.capabilities import Excess, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Grammar, Tokens
from scenarios.spec import EngineSpec


def nonstop_end_of(event: Submit) -> str | None:
    """Return a message on a grammar state that may end without a stop token, or None."""
    grammar, stop = event.params.grammar, set(event.stop)
    for state, edges in enumerate(grammar):
        ending = {token for token, to in edges if not grammar[to]}
        if not ending <= stop:
            return f"state {state} ends without a stop token of the request"
        stops = {token for token, _ in edges if token in stop}
        if stops != ending:
            return f"state {state} continues after a stop token of the request"
        if stops and stops != stop:
            return f"state {state} ends by some stop tokens of the request and not by others"
    return None


def with_stop_ends(event: Submit, vocab_size: int) -> Submit:
    """Return the request with a grammar that ends only by the request's stop tokens.

    Each state that could end, or had an edge of a stop token, gets edges of all stop tokens to an end state. If the
    request has no stop tokens but its grammar has an end, the request gets one.
    """
    grammar = event.params.grammar
    if nonstop_end_of(event) is None:
        return event
    stop = event.stop or (_rarest_token(grammar, vocab_size),)
    last = len(grammar)
    ended: Tokens | tuple[Tokens, ...] = tuple((token, last) for token in sorted(set(stop)))
    states = []
    for edges in grammar:
        continuing = tuple(edge for edge in edges if edge[0] not in stop)
        states.append(continuing + ended if len(continuing) < len(edges) or not edges else continuing)
    params = event.params.model_copy(update={"grammar": (*states, ())})
    return event.model_copy(update={"stop": stop, "params": params})


def _rarest_token(grammar: Grammar, vocab_size: int) -> int:
    """Return the token that occurs on the fewest grammar edges; on a tie the highest id."""
    tokens = [edge[0] for edges in grammar for edge in edges]
    return min(reversed(range(vocab_size)), key=tokens.count)


def state_without_tokens(event: Submit) -> str | None:
    """Return the first grammar state in which other parameters ban all allowed tokens.

    Return None if each state allows a token.
    """
    params = event.params
    banned = {*(event.stop if params.min_tokens else ()), *(word[-1] for word in params.bad_words)}
    allowed = set(params.allowed_tokens)
    for state, edges in enumerate(params.grammar):
        tokens = {edge[0] for edge in edges}
        if edges and not (tokens & allowed if allowed else tokens) - banned:
            return f"state {state}"
    return None


def grammars_end_by_stops(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Check the limit: a request's grammar ends only by its stop tokens."""
    misfit = nonstop_end_of(event) if isinstance(event, Submit) else None
    if not isinstance(event, Submit) or misfit is None:
        return None
    allowed = "a grammar ends by stop tokens alone, all of them or none in a state"
    return Excess("params.grammar", misfit, allowed, with_stop_ends(event, spec.vocab_size))


def each_state_allows_a_token(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Check the limit: other parameters leave a token in each grammar state."""
    state = state_without_tokens(event) if isinstance(event, Submit) else None
    if not isinstance(event, Submit) or state is None:
        return None
    seen = f"{state} allows only tokens that stop, bad_words or allowed_tokens ban"
    fixed = with_params(event, {"allowed_tokens": (), "bad_words": (), "min_tokens": 0})
    return Excess("params.grammar", seen, "each state must allow a token", fixed)
