"""Sizes of vLLM's captured graphs: how many tokens each is of."""

from collections.abc import Sequence
from itertools import takewhile

from scenarios.spec import EngineSpec

# Few, so that most batches are padded, and an engine is made in little time; larger ones run without a graph, but where
# more requests may decode at once than these have tokens.
_SIZES = (2, 4, 8, 16, 32)


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
