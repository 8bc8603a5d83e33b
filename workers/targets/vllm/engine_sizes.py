"""Sizes of vLLM's engines that follow from a specification: of captured graphs, and of blocks that states take.

An engine's process makes it by them, and who asks for one, or judges it, has to know them.
"""

from collections.abc import Sequence
from itertools import takewhile

from scenarios.spec import EngineSpec

# Few, so that most batches are padded, and an engine is made in little time; larger ones run without a graph, but where
# more requests may decode at once than these have tokens.
_SIZES = (2, 4, 8, 16, 32)
# Of the hybrid models that are made here; each is a group of layers with blocks of its own.
RECURRENT_LAYERS = 2
# Layers of a model with sliding windows: one of full attention, as a drafter's layers are, and as many windows as make
# a group of layers without it.
WINDOW_LAYERS = ("sliding_attention", "full_attention", "sliding_attention", "sliding_attention")


def graph_sizes(spec: EngineSpec) -> Sequence[int]:
    """Return the sizes that are asked for; where whole steps are graphs, vLLM rounds them to runs of drafts."""
    # As vLLM has it by default: twice the most tokens of decodes.
    largest = min(spec.max_num_batched_tokens, 2 * spec.max_num_seqs * (1 + spec.num_speculative_tokens))
    largest = min(largest, max(2 * spec.max_num_seqs, _SIZES[-1]))
    return [*takewhile(lambda size: size < largest, _SIZES), largest]


def largest_graph(spec: EngineSpec) -> int:
    """Return how many tokens a graph of a specification has at most."""
    sizes = graph_sizes(spec)
    run = 1 + spec.num_speculative_tokens if "full" in spec.graphs else 1
    rounded = [-(-size // run) * run for size in sizes]
    return max((size for size in rounded if size <= sizes[-1]), default=run)


def blocks_of_states(spec: EngineSpec) -> int:
    """Return how many blocks states take at most of the pool: who has all others still fits.

    One has a block, one more where it is kept at ends of blocks, and one for each draft. Who is hit inside a block
    holds that and a copy, of each group of layers; vLLM lets it wait for ever if both do not fit.
    """
    if spec.layers != "hybrid":
        return 0
    copies = 1 + RECURRENT_LAYERS if spec.match_tokens else 0
    return RECURRENT_LAYERS * (1 + spec.prefix_cache + spec.num_speculative_tokens) + copies


def blocks_of_windows(spec: EngineSpec) -> int:
    """Return how many blocks windows take at most of one request: who has all others of the pool still fits.

    Behind each window are tokens of the steps in flight, and it may begin and end inside a block.
    """
    if spec.layers != "windows":
        return 0
    in_flight = min(spec.depth, 2) * max(spec.max_num_batched_tokens, spec.max_num_seqs)
    seen = min(spec.window + in_flight, spec.max_model_len)
    return WINDOW_LAYERS.count("sliding_attention") * (1 + -(-seen // spec.block_size))


def sequences_in_graphs(spec: EngineSpec) -> int:
    """Return how many requests may run at a time: vLLM captures no whole graph of more states than blocks (#34094)."""
    if spec.layers != "hybrid" or "full" not in spec.graphs:
        return spec.max_num_seqs
    # One block stands for none.
    return spec.num_blocks + 1 + blocks_of_states(spec)
