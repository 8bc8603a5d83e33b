"""Draws of SGLang's own: its keys, pools and pages of its sizes, and requests that meet a step in flight.

These lose their slots with their last tokens in flight, or a corpus proposes the ends of their grammars.
"""

from collections.abc import Mapping, Sequence

from scenarios.batch_edges import TURN_AFTER
from scenarios.events import AnyEvent, PromptDraw, Submit
from scenarios.own_draws import OwnDraws, Pick
from scenarios.sampling import Grammar
from scenarios.spec import EngineSpec

_SWITCHES_ONE_IN = 3
_TREES_ONE_IN = 4
_REPEATED_ONE_IN = 3
# Of pools that run short: lengths of the longest request, and what is kept free at most, in pages and runs of drafts.
_LENGTH_MIN, _LENGTH_MAX = 6, 40
_KEPT_PAGES, _KEPT_RUNS = 3, 2
_WIDE_PAGE = 16
# Ticks between pairs of requests: two short outputs, one after the other.
_APART = 16
# One of so many tokens is allowed by a grammar that goes on.
_ALLOWED_ONE_IN = 3
_REPEATED_MIN = 3
# Tokens of a prompt and an output that are repeated, and more.
_ROOM = 32


def keys(pick: Pick) -> Mapping[str, object]:
    """Return each switch in one specification of _SWITCHES_ONE_IN, drafts that are a tree in one of _TREES_ONE_IN."""
    switches = ("plan_stream", "relay_lengths", "mixed_chunks")
    found: dict[str, object] = {key: True for key in switches if not pick(_SWITCHES_ONE_IN, key, 0)}
    return found if pick(_TREES_ONE_IN, "trees", 0) else {**found, "tree_width": 2}


def short_pool(spec: EngineSpec, events: Sequence[AnyEvent], pick: Pick) -> tuple[EngineSpec, list[AnyEvent]]:
    """Return a trace whose pool holds one of the longest requests and what is kept free; all become that long."""
    found, places = _with_submits(events, 0)
    length = max(_LENGTH_MIN, min(spec.max_model_len, _LENGTH_MAX))
    kept = _KEPT_PAGES * spec.block_size + _KEPT_RUNS * (1 + spec.num_speculative_tokens)
    num_blocks = -(-(length + kept + pick(length, "spare tokens", 0)) // spec.block_size)
    sizes = {"max_num_seqs": max(2, spec.max_num_seqs), "max_model_len": length, "num_blocks": num_blocks}
    for place in places:
        tokens = 1 + pick(length // 3, "first tokens", place)
        _lengthen(found, place, tokens)
        tick = pick(6, "at once", place) + (TURN_AFTER if found[place].tick > TURN_AFTER else 0)
        # Most of them end by their length, at different times.
        count = length - tokens - pick(max(1, length // 3), "before the longest", place)
        _change(found, place, tick=tick, max_tokens=count)
    return spec.model_copy(update=sizes), found


def wide_pages(spec: EngineSpec, events: Sequence[AnyEvent], pick: Pick) -> tuple[EngineSpec, list[AnyEvent]]:
    """Return a trace whose model ends with a page wider than those drawn otherwise, and most requests there."""
    found, places = _with_submits(events, 0)
    pages = 1 + pick(3, "wide blocks", 0)
    length, num_blocks = _WIDE_PAGE * pages, max(spec.num_blocks, 2 * pages + _KEPT_PAGES + _KEPT_RUNS)
    for place in places:
        _lengthen(found, place, length - 1 - pick(min(12, length - 1), "before the last", place))
        _change(found, place, max_tokens=length if pick(4, "to the end", place) else 4)
    sizes = {"block_size": _WIDE_PAGE, "max_model_len": length, "num_blocks": num_blocks}
    return spec.model_copy(update=sizes), found


def taken_back(spec: EngineSpec, events: Sequence[AnyEvent], pick: Pick) -> tuple[EngineSpec, list[AnyEvent]]:
    """Return a trace of pairs of requests, the second of which takes the only row from the first about when that ends.

    Beside drafts the first has a grammar that goes on in every other trace.
    """
    found, places = _with_submits(events, 2)
    has_grammars = spec.num_speculative_tokens > 0 and not pick(2, "grammars taken back", 0)
    spec = _with_room(spec, spec.max_model_len).model_copy(update={"policy": "priority", "max_num_seqs": 1})
    begin = end = 0
    for number, place in enumerate(places):
        is_first = number % 2 == 0
        begin = _APART * (number // 2)
        count = 2 + (0, 0, 1, 2, 4)[pick(5, "tokens taken back", place)]
        tick = begin if is_first else end + (0, 0, 0, -1, 1)[pick(5, "about the end", place)]
        _change(found, place, tick=tick, priority=int(is_first), max_tokens=count, at="before_schedule")
        # A prompt of one step: so many ticks later the last token is in flight, if no draft is right.
        tokens = min(spec.max_num_batched_tokens, spec.max_model_len - 1, _prompt(found, place).tokens)
        _lengthen(found, place, tokens)
        end = begin + count if is_first else end
        if is_first and has_grammars:
            _ask(found, place, _going_on(spec, pick(_ALLOWED_ONE_IN, "allowed", place)))
    return spec, found


def with_repeated_grammars(
    spec: EngineSpec, events: Sequence[AnyEvent], pick: Pick
) -> tuple[EngineSpec, list[AnyEvent]]:
    """Return a trace of a corpus and of requests, one after the other, of one prompt and a grammar of one output.

    Of _REPEATED_ONE_IN traces others stay as they are.
    """
    if pick(_REPEATED_ONE_IN, "repeated grammars", 0):
        return spec, [*events]
    found, places = _with_submits(events, _REPEATED_MIN)
    k, last = spec.num_speculative_tokens or EngineSpec().num_speculative_tokens, spec.vocab_size - 1
    drafting = {
        "drafter": "ngram_corpus",
        "draft_sampling": "greedy",
        "drafter_max_len": 0,
        "num_speculative_tokens": k,
    }
    spec = spec.model_copy(update={"max_num_batched_tokens": max(spec.max_num_batched_tokens, 1 + k)})
    spec = _with_room(spec, _ROOM).model_copy(update=drafting)
    count = 2 + pick(4, "repeated tokens", 0)
    # Where all drafts are right the end is one of them, not the token behind.
    count += (count - 1) % (1 + k) == k
    tokens = [*(pick(last, "repeated token", index) for index in range(count)), last]
    grammar = (*(((token, 1 + state),) for state, token in enumerate(tokens)), ())
    length = 2 + pick(8, "repeated prompt", 0)
    for number, place in enumerate(places):
        tick, behind = number * (count + 6), 2 + pick(8, "behind a grammar", place)
        prompt = PromptDraw(tokens=length, common=length)
        _change(found, place, tick=tick, prompt=prompt, max_tokens=len(tokens) + behind, at="before_schedule")
        _ask(found, place, grammar)
    return spec, found


def _with_room(spec: EngineSpec, length: int) -> EngineSpec:
    """Return a specification with room for requests of so many tokens in its model, and for all of its rows."""
    length = max(length, spec.max_model_len)
    blocks = (1 + spec.max_num_seqs) * -(-length // spec.block_size)
    return spec.model_copy(update={"max_model_len": length, "num_blocks": max(spec.num_blocks, blocks)})


def _with_submits(events: Sequence[AnyEvent], least: int) -> tuple[list[AnyEvent], Sequence[int]]:
    """Return events with at least so many submits of drawn prompts, if there are any, and the places of these."""
    found = list(events)
    drawn = [each for each in found if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw)]
    if drawn:
        found += [drawn[0].model_copy(update={"request": f"more{number}"}) for number in range(least - len(drawn))]
    places = enumerate(found)
    return found, [at for at, each in places if isinstance(each, Submit) and isinstance(each.prompt, PromptDraw)]


def _change(events: list[AnyEvent], place: int, **fields: object) -> None:
    events[place] = events[place].model_copy(update=fields)


def _prompt(events: Sequence[AnyEvent], place: int) -> PromptDraw:
    event = events[place]
    assert isinstance(event, Submit), "only submits have prompts"
    assert isinstance(event.prompt, PromptDraw), "the prompt is drawn"
    return event.prompt


def _lengthen(events: list[AnyEvent], place: int, tokens: int) -> None:
    """Give a drawn prompt so many tokens, as many of them common as before."""
    prompt = _prompt(events, place)
    fields = {"tokens": tokens, "common": min(tokens, prompt.common)}
    _change(events, place, prompt=prompt.model_copy(update=fields))


def _ask(events: list[AnyEvent], place: int, grammar: Grammar) -> None:
    """Give a request a grammar, and nothing that goes against it."""
    event = events[place]
    assert isinstance(event, Submit), "only submits have grammars"
    fields = {"grammar": grammar, "broken_grammar": False, "min_tokens": 0, "num_logprobs": 0}
    _change(events, place, params=event.params.model_copy(update=fields))


def _going_on(spec: EngineSpec, first: int) -> Grammar:
    """Return a grammar of one state that allows some tokens and has no end."""
    return (tuple((token, 0) for token in range(first, spec.vocab_size - 1, _ALLOWED_ONE_IN)),)


# There is much that it does without drafts alone.
OWN_DRAWS = OwnDraws(
    undrafted_one_in=4,
    keys=keys,
    sizes={2: short_pool, 3: short_pool, 5: wide_pages},
    meetings={6: taken_back, 7: with_repeated_grammars},
)
