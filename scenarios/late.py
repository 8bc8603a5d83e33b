"""About when a request ends, so that something may come just then."""

from scenarios.spec import EngineSpec


def last_tick(spec: EngineSpec, tick: int, num_prompt: int, max_tokens: int, eighths: int) -> int:
    """Return the tick that ends with the last token of a request submitted at `tick`, if it runs alone.

    Of its drafts `eighths` of eight are accepted; it stops at no token.
    """
    chunk = min(spec.long_prefill_token_threshold or spec.max_num_batched_tokens, spec.max_num_batched_tokens)
    chunk = min(chunk, spec.block_size) if spec.is_aligned else chunk
    num_behind = spec.length_limit(num_prompt, max_tokens) - num_prompt - 1
    num_runs = -(-8 * num_behind // (8 + spec.num_speculative_tokens * eighths))
    # A token is processed depth - 1 ticks after the step that sampled it.
    return tick + -(-num_prompt // chunk) + num_runs + spec.depth - 2
