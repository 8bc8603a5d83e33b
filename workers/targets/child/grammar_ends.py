"""Grammars that end by stop tokens alone, as other engines require, and limits that follow.

In such a grammar a stop token always leads to an end, and no other token does. In general an output ends in a state
without edges, whatever token leads there, and at any stop token.
"""

from scenarios.capabilities import Excess, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Grammar, Tokens
from scenarios.spec import EngineSpec


def misfit_at_end(event: Submit) -> str | None:
    """Describe the first state of a request's grammar that does not end by stop tokens alone; None if all do."""
    grammar, stop = event.params.grammar, set(event.stop)
    for state, edges in enumerate(grammar):
        ending = {token for token, to in edges if not grammar[to]}
        if not ending <= stop:
            return f"state {state} ends without a stop token of the request"
        stops = {token for token, _ in edges if token in stop}
        if stops != ending:
            return f"state {state} goes on behind a stop token of the request"
        if stops and stops != stop:
            return f"state {state} ends by some stop tokens of the request and not by others"
    return None


def ending_by_stops(event: Submit, vocab_size: int) -> Submit:
    """Return a request whose grammar ends by stop tokens alone: by all of them where it ended or had one of them.

    A request without stop tokens gets one if its grammar has an end.
    """
    grammar = event.params.grammar
    if misfit_at_end(event) is None:
        return event
    stop = event.stop or (_rarest_token(grammar, vocab_size),)
    last = len(grammar)
    ended: Tokens | tuple[Tokens, ...] = tuple((token, last) for token in sorted(set(stop)))
    states = []
    for edges in grammar:
        going_on = tuple(edge for edge in edges if edge[0] not in stop)
        states.append(going_on + ended if len(going_on) < len(edges) or not edges else going_on)
    params = event.params.model_copy(update={"grammar": (*states, ())})
    return event.model_copy(update={"stop": stop, "params": params})


def _rarest_token(grammar: Grammar, vocab_size: int) -> int:
    """Return the token of the fewest edges, the last of several."""
    tokens = [edge[0] for edges in grammar for edge in edges]
    return min(reversed(range(vocab_size)), key=tokens.count)


def without_choice(event: Submit) -> str | None:
    """Name the first state of a request's grammar whose tokens are all banned by other parameters; None if none is."""
    params = event.params
    banned = {*(event.stop if params.min_tokens else ()), *(word[-1] for word in params.bad_words)}
    allowed = set(params.allowed_tokens)
    for state, edges in enumerate(params.grammar):
        tokens = {edge[0] for edge in edges}
        if edges and not (tokens & allowed if allowed else tokens) - banned:
            return f"state {state}"
    return None


def grammars_end_by_stops(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: nothing but stop tokens ends a grammar."""
    misfit = misfit_at_end(event) if isinstance(event, Submit) else None
    if not isinstance(event, Submit) or misfit is None:
        return None
    allowed = "a grammar ends by stop tokens alone, all of them or none in a state"
    return Excess("params.grammar", misfit, allowed, ending_by_stops(event, spec.vocab_size))


def each_state_allows_a_token(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: in each state of a grammar some token is left, whatever else is banned."""
    state = without_choice(event) if isinstance(event, Submit) else None
    if not isinstance(event, Submit) or state is None:
        return None
    seen = f"{state} leaves only what stops, bad words or allowed_tokens ban"
    mended = with_params(event, {"allowed_tokens": (), "bad_words": (), "min_tokens": 0})
    return Excess("params.grammar", seen, "one must be left", mended)
