"""Simplification inside sampling parameters: grammars, lists and numbers."""

from collections.abc import Iterator

from scenarios.sampling import Grammar, SamplingParams, Tokens

# Numbers of neighbours to remove from a list, or from a trace's events, at a time.
CHUNKS = (16, 8, 4, 2, 1)


def simpler_params(params: SamplingParams) -> Iterator[tuple[str, object]]:
    """Yield names of non-default sampling parameters, each with a simpler value."""
    for name, field in SamplingParams.model_fields.items():
        value = getattr(params, name)
        if value != field.default:
            yield from ((name, simpler) for simpler in _simpler(name, value))


def _simpler(name: str, value: object) -> Iterator[object]:
    match value:
        case tuple() if name == "grammar":
            yield from _smaller_grammars(value)
        case tuple():
            yield from _shorter(value)
            for index, word in enumerate(value):
                if isinstance(word, tuple) and name == "bad_words" and len(word) > 1:
                    yield (*value[:index], word[:-1], *value[index + 1 :])
        case int():
            yield from (each for each in (1, value // 2, value - 1) if 0 < each < value)
        case float() if not value.is_integer():
            yield max(1.0, float(round(value)))


def _shorter(value: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
    """Yield a list without some of its neighbours, never empty."""
    for size in CHUNKS:
        for start in range(0, len(value), size) if len(value) > size else ():
            yield value[:start] + value[start + size :]


def _smaller_grammars(grammar: Grammar) -> Iterator[Grammar]:
    """Yield the grammar with a state replaced by an end, then with some edges removed."""
    for state in range(1, len(grammar)):
        if grammar[state]:
            yield _reachable((*grammar[:state], (), *grammar[state + 1 :]))
    for state, edges in enumerate(grammar):
        for fewer in _shorter(edges):
            yield _reachable((*grammar[:state], fewer, *grammar[state + 1 :]))  # type: ignore[arg-type]


def _reachable(grammar: Grammar) -> Grammar:
    """Return a grammar without states that cannot be reached from the first state."""
    order = [0]
    for state in order:
        order += dict.fromkeys(to for _, to in grammar[state] if to not in order)
    number = {state: place for place, state in enumerate(order)}

    def renamed(edge: Tokens) -> Tokens:
        token, to = edge
        return token, number[to]

    return tuple(tuple(map(renamed, grammar[state])) for state in order)
