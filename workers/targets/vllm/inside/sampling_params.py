"""Sampling parameters of a request, as vLLM takes them."""

from typing import Any

from scenarios.events import Submit
from workers.targets.child.inside.grammars import BROKEN, text_of
from workers.targets.child.inside.tokenizer import character_of
from workers.targets.vllm.inside.logits_processors import NO_REPEATS

# The names that are set, which a release has to have.
NAMES = (
    "max_tokens min_tokens stop_token_ids ignore_eos temperature top_k top_p min_p seed presence_penalty "
    "frequency_penalty repetition_penalty allowed_token_ids logit_bias logprobs prompt_logprobs logprob_token_ids "
    "structured_outputs detokenize stop include_stop_str_in_output extra_args _bad_words_token_ids"
)


def sampling_params(event: Submit) -> Any:
    """Return vLLM's sampling parameters of a request."""
    from vllm.sampling_params import SamplingParams  # noqa: PLC0415

    asked = event.params
    params = SamplingParams(
        max_tokens=event.max_tokens,
        min_tokens=asked.min_tokens,
        stop_token_ids=list(event.stop),
        ignore_eos=True,
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        min_p=asked.min_p,
        seed=asked.seed if asked.temperature else None,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        repetition_penalty=asked.repetition_penalty,
        allowed_token_ids=list(asked.allowed_tokens) or None,
        logit_bias=dict(asked.logit_bias) or None,
        logprobs=asked.num_logprobs - 1 if asked.num_logprobs else None,
        prompt_logprobs=asked.num_prompt_logprobs - 1 if asked.num_prompt_logprobs else None,
        logprob_token_ids=list(asked.logprob_tokens) or None,
        structured_outputs=_structured_outputs(event),
        # What has no text is ended by tokens alone.
        detokenize=bool(asked.stop_words),
        stop=["".join(map(character_of, word)) for word in asked.stop_words],
        include_stop_str_in_output=True,
        extra_args={NO_REPEATS: True} if asked.no_repeats else None,
    )
    # Bad words are text, and a tokenizer makes tokens of them; there is none here.
    params._bad_words_token_ids = [list(word) for word in asked.bad_words]
    return params


def _structured_outputs(event: Submit) -> Any:
    """Return the grammar of a request, None if it has none; its backend is the one that vLLM's front takes for it."""
    from vllm.sampling_params import StructuredOutputsParams  # noqa: PLC0415

    if not (event.params.grammar or event.params.broken_grammar):
        return None
    asked = StructuredOutputsParams(grammar=BROKEN if event.params.broken_grammar else text_of(event))
    asked._backend = "xgrammar"
    return asked
