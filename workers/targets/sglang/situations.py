"""Situations for SGLang only: changes of random traces, e.g. to cause retractions."""

from collections.abc import Mapping, Sequence

from scenarios.events import PromptDraw
from scenarios.generation.builder import TraceBuilder
from scenarios.generation.situation import Situation, situation
from scenarios.generation.sizes import TURN_AFTER
from scenarios.generation.weights import Area
from scenarios.sampling import Grammar
from scenarios.spec import EngineSpec

# The areas of situations that a change of SGLang's files affects, by path patterns relative to a source root.
AREAS: Mapping[Area, Sequence[str]] = {
    "scheduling": ("*/managers/schedule*", "*/managers/overlap*", "*/managers/prefill*"),
    "speculation": ("*/speculative/*",),
    "sampling": ("*/sampling/*", "*/constrained/*", "*/layers/sampler.py", "*/layers/logits_processor.py"),
    "kv_cache": ("*/mem_cache/allocator*", "*/mem_cache/memory_pool*", "*/mem_cache/common.py"),
    "prefix_cache": ("*/mem_cache/*radix*", "*/mem_cache/*chunk_cache*"),
    "ranks": ("*/distributed/*", "*/managers/*receiver*", "*/runtime_context.py"),
}
# For a KV cache that runs out of slots: lengths of the longest request, and the reserved slots at most, in pages and in
# steps' draft tokens.
_LENGTH_MIN, _LENGTH_MAX = 6, 40
_KEPT_PAGES, _KEPT_RUNS = 3, 2
_WIDE_PAGE = 16
# Ticks between pairs of requests: enough for two short outputs, one after the other.
_APART = 16
# A grammar without an end allows one in this many tokens.
_ALLOWED_EVERY = 3
_REPEATED_MIN = 3
# More tokens than a repeated prompt and its output have.
_ROOM = 32


@situation(stage="feature")
def plan_stream(trace: TraceBuilder) -> None:
    """Set `plan_stream`: SGLang prepares draft steps on a second stream."""
    trace.set(plan_stream=True)


@situation(stage="feature")
def relay_lengths(trace: TraceBuilder) -> None:
    """Set `relay_lengths`: the host waits for the sequence lengths of the previous step."""
    trace.set(relay_lengths=True)


@situation(stage="feature")
def mixed_chunks(trace: TraceBuilder) -> None:
    """Set `mixed_chunks`: decode rows and prefill chunks share a batch."""
    trace.set(mixed_chunks=True)


@situation(stage="feature")
def draft_trees(trace: TraceBuilder) -> None:
    """Set a draft tree: two draft tokens are proposed after each token."""
    trace.set(tree_width=2)


@situation(stage="feature")
def tensor_ranks(trace: TraceBuilder) -> None:
    """Split each layer over two ranks, without draft trees and the n-gram corpus."""
    if trace.spec.drafter == "ngram_corpus":
        trace.set(drafter="eagle")
    trace.set(tensor_ranks=2, tree_width=1)


@situation(stage="drafts", replaces="no_drafts")
def no_drafts_more_often(trace: TraceBuilder) -> None:
    """Remove all draft tokens, and let most requests sample at a temperature."""
    trace.drop_drafts()


@situation(stage="size", replaces="outgrown_pool")
def short_pool(trace: TraceBuilder) -> None:
    """Shrink the KV cache to one longest request plus the reserved slots.

    All requests become about that long, so that some are preempted (SGLang: retracted).
    """
    spec = trace.spec
    length = max(_LENGTH_MIN, min(spec.max_model_len, _LENGTH_MAX))
    kept = _KEPT_PAGES * spec.block_size + _KEPT_RUNS * (1 + spec.num_speculative_tokens)
    num_blocks = -(-(length + kept + trace.pick(length, "spare tokens")) // spec.block_size)
    trace.set(max_model_len=length, num_blocks=num_blocks)
    trace.at_least(max_num_seqs=2)
    for index, submit in trace.submits():
        tokens = 1 + trace.pick(length // 3, "first tokens", index)
        trace.lengthen(index, tokens)
        tick = trace.pick(6, "at once", index) + (TURN_AFTER if submit.tick > TURN_AFTER else 0)
        # Most requests end by their length, at different times.
        count = length - tokens - trace.pick(max(1, length // 3), "before the longest", index)
        trace.change(index, tick=tick, max_tokens=count)


@situation(stage="size", replaces="hits_at_model_end")
def wide_pages(trace: TraceBuilder) -> None:
    """Use wide pages, and let most requests end at the length limit, which is a page end."""
    pages = 1 + trace.pick(3, "wide blocks")
    length = _WIDE_PAGE * pages
    trace.at_least(num_blocks=2 * pages + _KEPT_PAGES + _KEPT_RUNS)
    for index, _ in trace.submits():
        trace.lengthen(index, length - 1 - trace.pick(min(12, length - 1), "before the last", index))
        trace.change(index, max_tokens=length if trace.pick(4, "to the end", index) else 4)
    trace.set(block_size=_WIDE_PAGE, max_model_len=length)


@situation(stage="last")
def retract_at_last_token(trace: TraceBuilder) -> None:
    """Let a request preempt the only running request near its last output token.

    Requests come in pairs, and the second one takes the only batch row. With draft tokens, in every other trace the
    first one has a grammar without an end.
    """
    indexes = _submits(trace, 2)
    has_grammars = trace.spec.num_speculative_tokens > 0 and trace.one_in(2, "grammars taken back")
    _make_room(trace, trace.spec.max_model_len)
    trace.set(policy="priority", max_num_seqs=1)
    begin = end = 0
    for number, index in enumerate(indexes):
        is_first = number % 2 == 0
        begin = _APART * (number // 2)
        count = 2 + (0, 0, 1, 2, 4)[trace.pick(5, "tokens taken back", index)]
        tick = begin if is_first else end + (0, 0, 0, -1, 1)[trace.pick(5, "about the end", index)]
        trace.change(index, tick=tick, priority=int(is_first), max_tokens=count, at="before_schedule")
        # The prompt fits into one prefill chunk: if every draft token is rejected, the last output token is in flight
        # `count` ticks later.
        most = min(trace.spec.max_num_batched_tokens, trace.spec.max_model_len - 1)
        trace.lengthen(index, min(most, trace.prompt(index).tokens))
        end = begin + count if is_first else end
        if is_first and has_grammars:
            tokens = range(trace.pick(_ALLOWED_EVERY, "allowed", index), trace.spec.vocab_size - 1, _ALLOWED_EVERY)
            _set_grammar(trace, index, (tuple((token, 0) for token in tokens),))


@situation(stage="last")
def repeated_grammars(trace: TraceBuilder) -> None:
    """Run equal grammar requests one after another, with n-gram draft tokens.

    All have the same prompt tokens, and the grammar allows a single output, so the corpus predicts it.
    """
    indexes = _submits(trace, _REPEATED_MIN)
    spec, k = trace.spec, trace.spec.num_speculative_tokens or EngineSpec().num_speculative_tokens
    last = spec.vocab_size - 1
    trace.at_least(max_num_batched_tokens=1 + k)
    _make_room(trace, _ROOM)
    trace.set(drafter="ngram_corpus", draft_sampling="greedy", drafter_max_len=0, num_speculative_tokens=k)
    count = 2 + trace.pick(4, "repeated tokens")
    # If all draft tokens are accepted, the last token of the grammar is a draft token, not the bonus token.
    count += (count - 1) % (1 + k) == k
    tokens = [*(trace.pick(last, "repeated token", index) for index in range(count)), last]
    grammar = (*(((token, 1 + state),) for state, token in enumerate(tokens)), ())
    length = 2 + trace.pick(8, "repeated prompt")
    for number, index in enumerate(indexes):
        tick, after = number * (count + 6), 2 + trace.pick(8, "behind a grammar", index)
        prompt = PromptDraw(tokens=length, common=length)
        trace.change(index, tick=tick, prompt=prompt, max_tokens=len(tokens) + after, at="before_schedule")
        _set_grammar(trace, index, grammar)


def _make_room(trace: TraceBuilder, length: int) -> None:
    """Raise the model length and the KV-cache size for longer requests.

    The model must allow `length` tokens, and the KV cache must have slots for all batch rows and one more.
    """
    trace.at_least(max_model_len=length)
    rows = 1 + trace.spec.max_num_seqs
    trace.at_least(num_blocks=rows * -(-trace.spec.max_model_len // trace.spec.block_size))


def _submits(trace: TraceBuilder, least: int) -> Sequence[int]:
    """Copy the first submit until there are `least`; return the indexes of all.

    Without any submit nothing is copied. The returned indexes are of submits with generated prompts.

    Return the indexes of the submits with generated prompts.
    """
    submits = [each for _, each in trace.submits()]
    for number in range(least - len(submits) if submits else 0):
        trace.events.append(submits[0].model_copy(update={"request": f"more{number}"}))
    return [index for index, _ in trace.submits()]


def _set_grammar(trace: TraceBuilder, index: int, grammar: Grammar) -> None:
    """Give a request a grammar, and remove parameters that a grammar excludes."""
    trace.set_params(index, grammar=grammar, broken_grammar=False, min_tokens=0, num_logprobs=0)


SITUATIONS: tuple[Situation[TraceBuilder], ...] = (
    plan_stream,
    relay_lengths,
    mixed_chunks,
    draft_trees,
    tensor_ranks,
    no_drafts_more_often,
    short_pool,
    wide_pages,
    retract_at_last_token,
    repeated_grammars,
)
