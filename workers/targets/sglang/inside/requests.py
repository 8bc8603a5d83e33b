"""Requests and aborts, as SGLang's scheduler receives them from its tokenizer."""

from array import array
from types import SimpleNamespace
from typing import Any

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from workers.targets.child.inside.grammars import BROKEN, text_of

# There is no text. A minimum of tokens asks for those that end outputs besides: there are none.
NO_TOKENIZER = SimpleNamespace(eos_token_id=None, additional_stop_token_ids=None)


def request_of(event: Submit, request_id: str, spec: EngineSpec) -> Any:
    """Return a request of SGLang; what is longer than the model allows is cut, as its front cuts it."""
    from sglang.srt.managers.io_struct import TokenizedGenerateReqInput  # noqa: PLC0415
    from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: PLC0415

    assert isinstance(event.prompt, tuple), "the trace is explicit"
    asked = event.params
    # Beside drafts a grammar ends outputs itself; without them SGLang sees that one token late.
    stop = () if asked.grammar and spec.num_speculative_tokens else event.stop
    params = SamplingParams(
        max_new_tokens=spec.length_limit(len(event.prompt), event.max_tokens) - len(event.prompt),
        min_new_tokens=asked.min_tokens,
        stop_token_ids=set(stop) or None,
        temperature=asked.temperature,
        top_k=asked.top_k or -1,
        top_p=asked.top_p,
        min_p=asked.min_p,
        sampling_seed=asked.seed if asked.temperature else None,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        repetition_penalty=asked.repetition_penalty,
        logit_bias={str(token): bias for token, bias in asked.logit_bias} or None,
        ebnf=BROKEN if asked.broken_grammar else text_of(event) if asked.grammar else None,
    )
    params.normalize(NO_TOKENIZER)
    return TokenizedGenerateReqInput(
        rid=request_id,
        input_text=None,
        input_ids=array("q", event.prompt),
        input_embeds=None,
        mm_inputs=None,
        token_type_ids=None,
        sampling_params=params,
        return_logprob=asked.num_logprobs > 0,
        logprob_start_len=-1,
        top_logprobs_num=max(0, asked.num_logprobs - 1),
        token_ids_logprob=None,
        stream=True,
        priority=event.priority if spec.policy == "priority" else None,
    )


def abort_of(request_id: str) -> Any:
    """Return the abort of a request; SGLang gives up all whose ids begin like that."""
    from sglang.srt.managers.io_struct import AbortReq  # noqa: PLC0415

    return AbortReq(rid=request_id)
