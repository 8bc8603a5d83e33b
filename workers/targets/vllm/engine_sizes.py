"""Sizes derived from an engine spec: CUDA graphs, blocks for states and sliding windows.

Both the process that makes the engine and the judge need them.
"""

from collections.abc import Sequence
from itertools import takewhile

from scenarios.spec import EngineSpec

# Few sizes, so that most batches are padded and capture is fast. Batches above the largest size run without a graph;
# `graph_sizes` raises that size for specs with many requests.
_SIZES = (2, 4, 8, 16, 32)
# Recurrent layers of the hybrid test model; each is a KV-cache group of its own.
RECURRENT_LAYERS = 2
# Layers of the sliding-window test model: one with full attention, as in a drafter, and enough sliding windows
# to form a KV-cache group without full attention.
WINDOW_LAYERS = ("sliding_attention", "full_attention", "sliding_attention", "sliding_attention")


def graph_sizes(spec: EngineSpec) -> Sequence[int]:
    """Return the CUDA graph capture sizes to configure, in tokens.

    For full graphs vLLM rounds each size up to a multiple of `1 + num_speculative_tokens`.
    """
    # vLLM's default maximum: twice the tokens of a batch in which every request decodes.
    largest = min(spec.max_num_batched_tokens, 2 * spec.max_num_seqs * (1 + spec.num_speculative_tokens))
    largest = min(largest, max(2 * spec.max_num_seqs, _SIZES[-1]))
    return [*takewhile(lambda size: size < largest, _SIZES), largest]


def state_blocks_max(spec: EngineSpec) -> int:
    """Return the maximum number of blocks for the recurrent states of one request.

    The pool has these in addition to `num_blocks`, so that a request may use all of the latter. Each group of recurrent
    layers has a state block, one more if the prefix cache keeps states at block ends, and one for each draft token. A
    request with a prefix-cache hit inside a block holds that block and one copy per group; vLLM lets it wait for ever
    if they do not fit.
    """
    if spec.layers != "hybrid":
        return 0
    copies = 1 + RECURRENT_LAYERS if spec.match_tokens else 0
    return RECURRENT_LAYERS * (1 + spec.prefix_cache + spec.num_speculative_tokens) + copies


def window_blocks_max(spec: EngineSpec) -> int:
    """Return the maximum number of blocks for the sliding-window layers of one request.

    The pool has these in addition to `num_blocks`. They hold the window and the tokens of the steps in flight; the
    window may begin and end inside a block.
    """
    if spec.layers != "windows":
        return 0
    in_flight = min(spec.depth, 2) * max(spec.max_num_batched_tokens, spec.max_num_seqs)
    seen = min(spec.window + in_flight, spec.max_model_len)
    return WINDOW_LAYERS.count("sliding_attention") * (1 + -(-seen // spec.block_size))


def graph_seqs_max(spec: EngineSpec) -> int:
    """Return the largest `max_num_seqs` for which vLLM captures full graphs of a hybrid model.

    vLLM captures no full graph with more recurrent states than blocks (#34094).
    """
    if spec.layers != "hybrid" or "full" not in spec.graphs:
        return spec.max_num_seqs
    # One more than the usable blocks: the null block.
    return spec.num_blocks + 1 + state_blocks_max(spec)
