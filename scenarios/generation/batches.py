"""Situations (changes of random traces) about batch rows, cached prefixes, recurrent states.

They are for engines with drafts of their own: where a trace scripts drafts, the base generator reaches these by itself.
"""

from scenarios.capabilities import CONTINUES
from scenarios.drafters import TRAITS
from scenarios.events import (
    Abort,
    AnyEvent,
    Continuation,
    DummyStep,
    Pause,
    Preempt,
    PromptDraw,
    ResetPrefixCache,
    SetK,
    Stall,
)
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.sessions import sessions
from scenarios.generation.situation import (
    ATTENTION,
    DRAFTS,
    HYBRID,
    NO_DRAFTS,
    PREFIX_CACHE,
    RUNS,
    Requirement,
    Situation,
    allows,
    allows_any,
    event,
    feature,
    is_set,
    situation,
    when,
)
from scenarios.generation.sizes import CHUNKS_MAX, TURN_AFTER
from scenarios.sampling import BAD_WORDS_MAX, SamplingParams
from scenarios.spec import INTEGER_MAX

GRAPHS = ("full_and_piecewise", "full_and_piecewise", "full", "piecewise")
# Minimum length of a prompt that is split into prefill chunks.
CHUNKED_MIN = 6


@situation(stage="drafts")
def no_drafts(trace: TraceBuilder) -> None:
    """Propose no draft tokens, and sample the tokens of most requests."""
    trace.drop_drafts()


@situation(NO_DRAFTS, is_set("recurrent_layers", "gated_delta"))
def single_token_prompts(trace: TraceBuilder) -> None:
    """Let a third of the prompts have one token."""
    for index, _ in trace.submits():
        if trace.one_in(3, "single token", index):
            trace.lengthen(index, 1)


@situation(HYBRID, NO_DRAFTS, event("dummy_step"), allows("graphs", "full"))
def dummy_steps_between_states(trace: TraceBuilder) -> None:
    """Stall all requests for three ticks, so that CUDA graphs replay on padding rows.

    A lost state changes an output only many tokens later: outputs are long, and no request is aborted.
    """
    graphs = ("full_and_piecewise", "full_and_piecewise", "full")[trace.pick(3, "graphs of dummies")]
    trace.set(graphs=graphs)
    trace.at_least(max_model_len=4 * trace.spec.block_size)
    trace.events = [each for each in trace.events if not isinstance(each, Abort)]
    submits = trace.submits()
    names = dict.fromkeys(each.request for _, each in submits)
    for index, _ in submits:
        trace.change(index, max_tokens=24 + trace.pick(16, "behind dummies", index), stop=())
    for index, submit in submits[: 1 + trace.pick(2, "times of dummies")]:
        tick = submit.tick + 3 + trace.pick(6, "dummies behind", index)
        for each in range(tick, tick + 3):
            # Stall all requests, those that arrive during these ticks included.
            trace.events += [Stall(tick=each, request=name, ticks=1) for name in names]
            trace.events.append(DummyStep(tick=each))


@situation()
def preempt_while_chunking(trace: TraceBuilder) -> None:
    """Preempt requests between two prefill chunks of their prompts."""
    submits = trace.submits()
    longest = max((submit.prompt_length for _, submit in submits), default=0)
    if longest < CHUNKED_MIN:
        return
    if not trace.spec.long_prefill_token_threshold:
        trace.set(long_prefill_token_threshold=max(2, longest // (2 + trace.pick(4, "parts"))))
    for index, submit in submits:
        # Shorter prompts are computed in one step.
        if 2 * submit.prompt_length > longest and trace.pick(3, "interrupted", index):
            tick = submit.tick + 1 + trace.pick(3, "chunks", index)
            trace.events += _interruption(trace, index, tick, submit.request)


def _interruption(trace: TraceBuilder, index: int, tick: int, name: str) -> list[AnyEvent]:
    found: list[AnyEvent] = [
        Preempt(tick=tick, request=name),
        Stall(tick=tick, request=name, ticks=1 + trace.pick(4, "ticks", index)),
        ResetPrefixCache(tick=tick, running=True),
        Abort(tick=tick, at="before_process", request=name),
    ]
    chosen = found[(0, 0, 1, 1, 2, 3)[trace.pick(6, "interruption", index)]]
    # An engine without preemption of single requests gets a pause instead.
    if chosen.do not in trace.engine.events and trace.has("pause_while_chunking", index):
        chosen = Pause(tick=tick, mode="keep", ticks=1 + trace.pick(4, "ticks", index))
    return [chosen] if chosen.do in trace.engine.events else []


pause_while_chunking: Situation[TraceBuilder] = Situation(
    name="pause_while_chunking",
    needs=(event("pause"), Requirement("no event preempt", engine=lambda engine: "preempt" not in engine.events)),
    part_of="preempt_while_chunking",
)


@situation(allows("decodes_first", True))
def decodes_first(trace: TraceBuilder) -> None:
    """Set `decodes_first`; in some traces, make rows swap so that it matters."""
    trace.set(decodes_first=True)
    if trace.has("rows_swap_while_chunking"):
        _swap_rows(trace)


rows_swap_while_chunking: Situation[TraceBuilder] = Situation(
    name="rows_swap_while_chunking", needs=(allows("decodes_first", True),), part_of="decodes_first"
)


def _swap_rows(trace: TraceBuilder) -> None:
    """Let the first rows prefill in chunks while later rows decode; half get bad words."""
    spec, run = trace.spec, 1 + trace.spec.num_speculative_tokens
    chunk = run + 1 + trace.pick(6, "chunk in front")
    trace.set(long_prefill_token_threshold=chunk)
    trace.at_least(max_num_seqs=3, max_num_batched_tokens=2 * (chunk + run), max_model_len=CHUNKS_MAX * chunk)
    for index, submit in trace.submits():
        tokens = 1 + trace.pick(chunk, "tokens behind", index)
        if not index % 2:
            chunks = 3 + trace.pick(4, "chunks in front", index)
            tokens = chunk * chunks - trace.pick(chunk, "last chunk", index)
        trace.lengthen(index, tokens)
        trace.change(index, tick=min(submit.tick, trace.pick(TURN_AFTER, "in front", index)))
        if trace.pick(2, "banned", index) and not (submit.params.grammar or submit.params.allowed_tokens):
            count = 3 + trace.pick(6, "words", index)
            words = {trace.pick(spec.vocab_size, f"word of {index}", word) for word in range(count)}
            trace.set_params(index, bad_words=tuple((word,) for word in sorted(words)))


@situation(allows("graphs", "full"), is_set("graphs", "none"))
def cuda_graphs(trace: TraceBuilder) -> None:
    """Enable CUDA graphs, except in traces that get a KV connector."""
    trace.set_if_allowed(graphs=GRAPHS[trace.pick(len(GRAPHS), "which graphs")])


@situation(feature(CONTINUES), along_with="logprobs_are_logits")
def multi_turn(trace: TraceBuilder) -> None:
    """Continue conversations, mostly of ended requests; half of such traces cache prefixes.

    A third of the continuations come after a reset of the prefix cache.
    """
    if trace.one_in(2, "turns cached"):
        trace.cache_prefixes()
    submits = trace.submits()
    for number in range(1 + trace.pick(3, "turns", 1) if submits else 0):
        _, before = submits[trace.pick(len(submits), "before", number)]
        tick = before.tick + 4 + trace.pick(TURN_AFTER, "after", number)
        turn = Continuation(continues=before.request, tokens=1 + trace.pick(8, "own", number))
        fields = {"tick": tick, "prompt": turn, "max_tokens": 2 + trace.pick(10, "tokens", number)}
        trace.events.append(before.model_copy(update={**fields, "request": f"turn{number}"}))
        if trace.one_in(3, "emptied", number) and "reset_prefix_cache" in trace.engine.events:
            trace.events.append(ResetPrefixCache(tick=max(0, tick - 1)))


def _fill_blocks(trace: TraceBuilder) -> None:
    """Let most prompts end K - 1 to K + 1 tokens before a block end."""
    trace.set_if_allowed(drafter="dflash", draft_sampling="greedy")
    block, k = trace.spec.block_size, trace.spec.num_speculative_tokens
    for index, submit in trace.submits():
        tokens = block * -(-submit.prompt_length // block) - k
        tokens += (0, 0, 0, 1, -1)[trace.pick(5, "next to a run", index)]
        if tokens > 0 and tokens + submit.max_tokens <= trace.spec.max_model_len:
            trace.lengthen(index, tokens)


@situation(DRAFTS, ATTENTION, is_set("drafter", "dflash"))
def parallel_drafts_fill_a_block(trace: TraceBuilder) -> None:
    """End prompts K tokens before a block end, in a trace that has a parallel drafter."""
    _fill_blocks(trace)


@situation(DRAFTS, ATTENTION, when("another drafter than dflash", lambda spec: spec.drafter != "dflash"))
def drafts_fill_a_block(trace: TraceBuilder) -> None:
    """End most prompts about K tokens before a block end, with drafter dflash if allowed."""
    _fill_blocks(trace)


@situation(
    HYBRID,
    PREFIX_CACHE,
    when(
        "no drafts in the cache", lambda spec: not (spec.num_speculative_tokens and TRAITS[spec.drafter].caches_drafts)
    ),
)
def hits_inside_blocks(trace: TraceBuilder) -> None:
    """Let prefix-cache hits end inside a block, by common prefixes of any length."""
    block = trace.spec.block_size
    trace.set_if_allowed(match_tokens=block >> (1 + trace.pick(2, "match")))
    for index, submit in trace.submits():
        tokens = 1 + trace.pick(3 * block, "beginning", index)
        common = tokens if trace.pick(3, "whole", index) else 1 + trace.pick(tokens, "common", index)
        if tokens + submit.max_tokens <= trace.spec.max_model_len:
            trace.change(index, prompt=PromptDraw(tokens=tokens, common=common))


@situation(HYBRID, PREFIX_CACHE, unless=("hits_inside_blocks",))
def cache_cleared_past_a_block(trace: TraceBuilder) -> None:
    """Reset the prefix cache after a running request's output has passed a block end.

    The request is computed again in chunks that keep no state at the end of its prompt.
    """
    block = trace.spec.block_size
    trace.drop_drafts()
    trace.set(long_prefill_token_threshold=0)
    trace.at_least(max_model_len=4 * block, max_num_batched_tokens=3 * block)
    for index, submit in trace.submits()[:2]:
        tokens = 2 * block - 1 - trace.pick(block - 2, "short of two blocks", index)
        past = 2 * block + 2 - tokens + trace.pick(4, "past two blocks", index)
        trace.lengthen(index, tokens)
        trace.change(index, max_tokens=past + 4 + trace.pick(8, "behind", index), stop=())
        trace.events.append(ResetPrefixCache(tick=submit.tick + past + trace.pick(3, "cleared", index), running=True))


@situation(HYBRID, PREFIX_CACHE, unless=("hits_inside_blocks", "cache_cleared_past_a_block"))
def states_at_block_ends(trace: TraceBuilder) -> None:
    """Let draft tokens cross the block ends at which recurrent states are cached.

    In 1 of 2 traces prefill steps cross them, too.

    Near the block end the number of draft tokens falls and rises again, or the request is stalled.
    """
    block, k = trace.spec.block_size, trace.spec.num_speculative_tokens
    if trace.one_in(2, "whole blocks"):
        trace.at_least(max_num_batched_tokens=block * (2 + trace.pick(3, "blocks of a step")))
        trace.set(long_prefill_token_threshold=0)
    if not k:
        return
    most = min(trace.spec.max_num_batched_tokens, trace.spec.long_prefill_token_threshold or INTEGER_MAX)
    for index, submit in trace.submits():
        tokens = block * (1 + trace.pick(2, "whole", index)) - 1 - trace.pick(2 + 2 * k, "short of a block", index)
        if tokens < 1 or tokens + submit.max_tokens > trace.spec.max_model_len:
            continue
        trace.lengthen(index, tokens)
        tick = submit.tick + -(-tokens // most) + trace.pick(6, "at an end", index)
        if trace.pick(2, "waits", index):
            again = tick + 1 + trace.pick(3, "again", index)
            trace.events += [SetK(tick=tick, k=trace.pick(k, "fewer", index)), SetK(tick=again, k=k)]
        else:
            trace.events.append(Stall(tick=tick, request=submit.request, ticks=1 + trace.pick(2, "for", index)))


@situation(
    DRAFTS,
    when("a drafter such as eagle", lambda spec: TRAITS[spec.drafter].is_shifted),
    when("no states in the prefix cache", lambda spec: not (spec.layers == "hybrid" and spec.prefix_cache)),
)
def branches_after_blocks(trace: TraceBuilder) -> None:
    """Let prompts share whole blocks and then differ, with prefix caching on."""
    trace.cache_prefixes()
    if not trace.spec.prefix_cache:
        return
    for index, submit in trace.submits():
        common = trace.spec.block_size * (1 + trace.pick(2, "common", index))
        tokens = common + 1 + trace.pick(6, "own of a branch", index)
        if tokens + submit.max_tokens <= trace.spec.max_model_len:
            trace.lengthen(index, tokens, common)
            trace.change(index, tick=submit.tick + trace.pick(TURN_AFTER, "later branch", index))


@situation(
    RUNS,
    ATTENTION,
    allows_any("reasoning_end"),
    when("a reasoning_end", lambda spec: spec.reasoning_end is not None),
    unless=("sessions",),
)
def grammar_waits_among_drafts(trace: TraceBuilder) -> None:
    """Let grammars begin after a reasoning-end token among accepted draft tokens.

    Prompts are short and outputs long. The grammar then allows tokens by their remainder, each state another one, so a
    wrong grammar state changes the next token.
    """
    trace.set_if_allowed(drafter="draft_model", drafter_quality="good", draft_sampling="greedy")
    tokens = range(trace.spec.vocab_size)
    for index, submit in trace.submits():
        if not trace.pick(4, "no grammar that waits", index):
            continue
        turns = 2 + trace.pick(3, "turns of a grammar", index)
        states = [(tokens[turn::turns], (turn + 1) % turns) for turn in range(turns)]
        grammar = tuple(tuple((token, to) for token in allowed) for allowed, to in states)
        params = SamplingParams(grammar=grammar, num_logprobs=submit.params.num_logprobs)
        trace.lengthen(index, 1 + trace.pick(8, "prompt that waits", index), 0)
        trace.change(index, params=params, stop=(), max_tokens=32 + trace.pick(16, "wait", index))
    longest = max((each.prompt_length + each.max_tokens for _, each in trace.submits()), default=0)
    trace.at_least(max_model_len=longest, num_blocks=-(-longest // trace.spec.block_size))


@situation(RUNS, ATTENTION, feature("stop_words"), unless=("sessions", "grammar_waits_among_drafts"))
def stop_words_among_drafts(trace: TraceBuilder) -> None:
    """Give most requests many one-token stop words, several among accepted draft tokens."""
    if not any(submit.params.stop_words for _, submit in trace.submits()):
        return
    trace.set_if_allowed(drafter="draft_model", drafter_quality="good", draft_sampling="greedy")
    vocabulary = trace.spec.vocab_size
    for index, submit in trace.submits():
        if trace.pick(4, "other words", index):
            tokens = [trace.pick(vocabulary, f"word in a run of {index}", word) for word in range(BAD_WORDS_MAX)]
            words = tuple((token,) for token in dict.fromkeys(tokens))
            params = SamplingParams(stop_words=words, num_logprobs=submit.params.num_logprobs)
            trace.change(index, params=params, stop=())


BATCHES: tuple[Situation[TraceBuilder], ...] = (
    single_token_prompts,
    dummy_steps_between_states,
    preempt_while_chunking,
    decodes_first,
    cuda_graphs,
    multi_turn,
    parallel_drafts_fill_a_block,
    drafts_fill_a_block,
    hits_inside_blocks,
    cache_cleared_past_a_block,
    states_at_block_ends,
    branches_after_blocks,
    sessions,
    grammar_waits_among_drafts,
    stop_words_among_drafts,
)
