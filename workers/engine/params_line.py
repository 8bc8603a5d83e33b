"""A request's line of the device parameter table: masks, penalties, bad words, tokens."""

from collections.abc import Iterable
from math import frexp

from scenarios.sampling import PENALTY_STEPS
from scenarios.spec import EngineSpec
from workers.engine.request import Request
from workers.kernels.process_logits.definition import BAD_WORD_LENGTH, BAD_WORDS, BITS
from workers.kernels.sentinels import UNKNOWN_TOKEN


def mask_words(tokens: Iterable[int], vocab_size: int) -> tuple[int, ...]:
    """Return a set of tokens as a bitmask, in integers of BITS bits."""
    mask, word = 0, (1 << BITS) - 1
    for token in tokens:
        mask |= 1 << token
    return tuple(mask >> first & word for first in range(0, vocab_size, BITS))


def params_line(request: Request, spec: EngineSpec) -> list[int]:
    """Return a request's line of the parameter table: sampling parameters, known tokens."""
    params, pad = request.params, UNKNOWN_TOKEN
    line = [
        request.num_prompt,
        request.num_prompt + params.min_tokens,
        int(params.presence_penalty * PENALTY_STEPS),
        int(params.frequency_penalty * PENALTY_STEPS),
        frexp(params.repetition_penalty)[1] - 1,
        *mask_words(params.allowed_tokens or range(spec.vocab_size), spec.vocab_size),
        *mask_words(request.stop, spec.vocab_size),
    ]
    for word in params.bad_words:
        line += [pad] * (BAD_WORD_LENGTH - len(word)) + [*word]
    line += [pad] * (BAD_WORD_LENGTH * (BAD_WORDS - len(params.bad_words)))
    return line + request.tokens + [pad] * (spec.max_model_len - len(request.tokens))
