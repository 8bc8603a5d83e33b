"""Blocks of a pool that the recurrent states of vLLM's hybrid models take, beside those of attention."""

from scenarios.spec import EngineSpec

# Of the hybrid models that are made here; each is a group of layers with blocks of its own.
RECURRENT_LAYERS = 2


def blocks_of_states(spec: EngineSpec) -> int:
    """Return how many blocks states take at most of the pool: who has all others still fits.

    One has a block, one more where it is kept at ends of blocks, and one for each draft. Who is hit inside a block
    holds that and a copy, of each group of layers; vLLM lets it wait for ever if both do not fit.
    """
    if spec.layers != "hybrid":
        return 0
    copies = 1 + RECURRENT_LAYERS if spec.match_tokens else 0
    return RECURRENT_LAYERS * (1 + spec.prefix_cache + spec.num_speculative_tokens) + copies


def sequences_in_graphs(spec: EngineSpec) -> int:
    """Return how many requests may run at a time: vLLM captures no whole graph of more states than blocks (#34094)."""
    if spec.layers != "hybrid" or "full" not in spec.graphs:
        return spec.max_num_seqs
    # One block stands for none.
    return spec.num_blocks + 1 + blocks_of_states(spec)
