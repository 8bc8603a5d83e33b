"""Values derived from an engine specification or sampling parameters, for the judges only.

The engine derives its own (`EngineSpec` and `SamplingParams` have properties), so a mistake on either side is a
finding; in a shared function it would stay hidden.
"""

from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec


def keeps_states_with_blocks(spec: EngineSpec) -> bool:
    """Return whether the recurrent state at the end of each full KV block is stored."""
    return spec.recurrent_cache == "align" and spec.layers == "hybrid"


def keep_rates(spec: EngineSpec) -> list[float]:
    """Return the synthetic acceptance rate of each draft token; the last given rate repeats."""
    given = list(spec.synthetic_rates)
    while given and len(given) < spec.num_speculative_tokens:
        given.append(given[-1])
    return given[: spec.num_speculative_tokens]


def length_limit(spec: EngineSpec, num_prompt: int, max_tokens: int) -> int:
    """Return the number of tokens, prompt included, at which a request reaches a length limit.

    Prompt tokens are included.
    """
    wanted = num_prompt + max_tokens
    return wanted if wanted < spec.max_model_len else spec.max_model_len


def has_penalties(params: SamplingParams) -> bool:
    """Return whether a request has a repetition, presence or frequency penalty."""
    return params.repetition_penalty != 1 or params.presence_penalty != 0 or params.frequency_penalty != 0


def changes_logits(params: SamplingParams) -> bool:
    """Return whether a request's parameters change logits (masks, grammar or penalties)."""
    masks = params.min_tokens or params.bad_words or params.allowed_tokens or params.grammar
    return bool(masks) or has_penalties(params)
