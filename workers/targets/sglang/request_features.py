"""Request features of SGLang: parameters, limits, and how outputs are read."""

from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from scenarios.capabilities import Excess, ParamAtMost
from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from workers.targets.child.grammar_ends import each_state_allows_a_token, grammars_end_by_stops
from workers.targets.child.inside.tokenizer import BROKEN, text_of, token_of
from workers.targets.child.request_features import ExcludedParam, FeatureSupport, RequestFeatures, of

_DRAWN = "is not greedy: an exported test has no call for that"


def _changes_logits(submit: Submit, spec: EngineSpec) -> bool:
    params = submit.params
    return bool(params.logit_bias or params.min_tokens or params.grammar) or params.has_penalties


def grammars_end_by_one_token(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Limit: the stop token of a grammar is the last token of the vocabulary."""
    last = spec.vocab_size - 1
    if not isinstance(event, Submit) or not event.params.grammar or event.stop == (last,):
        return None
    allowed, fixed = f"with grammar {(last,)} is allowed", event.model_copy(update={"stop": (last,)})
    return Excess("stop", event.stop, allowed, fixed, "this token ends the grammar of every request")


def _has_drafts(spec: EngineSpec) -> bool:
    return spec.num_speculative_tokens > 0


def _grammar(submit: Submit) -> str | None:
    params = submit.params
    return BROKEN if params.broken_grammar else text_of(submit) if params.grammar else None


# With draft tokens, penalties count only the output tokens before the step, "a relaxed version"
# (`eagle_prepare_for_decode` in `speculative/eagle_utils.py`), and `min_new_tokens` counts steps instead of tokens.
FEATURES = RequestFeatures(
    (
        FeatureSupport(
            "min_tokens",
            of("min_tokens", "min_new_tokens"),
            without=_has_drafts,
            limits=(ParamAtMost("min_tokens", lambda submit: submit.max_tokens),),
        ),
        *(
            FeatureSupport(f"{name}_penalty", of(f"{name}_penalty"), without=_has_drafts)
            for name in ("presence", "frequency", "repetition")
        ),
        FeatureSupport("stop", {"stop_token_ids": lambda submit: sorted(set(submit.stop)) or None}),
        # Only the detokenizer, which does not run here, removes the stop token from the text; output tokens include it.
        FeatureSupport("include_stop_str_in_output", of("include_stop_str_in_output", "no_stop_trim")),
        FeatureSupport(
            "logit_bias",
            {"logit_bias": lambda submit: {str(token): bias for token, bias in submit.params.logit_bias} or None},
        ),
        FeatureSupport(
            "num_logprobs",
            request={
                "return_logprob": lambda submit: submit.params.num_logprobs > 0,
                "top_logprobs_num": lambda submit: max(0, submit.params.num_logprobs - 1),
            },
            limits=(
                ExcludedParam(
                    "num_logprobs",
                    "logit_bias, min_tokens, grammar or penalties",
                    _changes_logits,
                    "SGLang computes logprobs after these change the logits",
                ),
            ),
            unwritten="asks for more than tokens: an exported test has no call for that",
        ),
        FeatureSupport("temperature", of("temperature"), unwritten=_DRAWN),
        FeatureSupport("top_k", {"top_k": lambda submit: submit.params.top_k or -1}),
        FeatureSupport("top_p", of("top_p")),
        # SGLang's sampler refuses min_p with a seed.
        FeatureSupport(
            "seed", {"sampling_seed": lambda submit: submit.params.seed if submit.params.temperature else None}
        ),
        FeatureSupport(
            "grammar",
            {"ebnf": _grammar},
            limits=(grammars_end_by_one_token, grammars_end_by_stops, each_state_allows_a_token),
            unwritten="is compiled by our grammar backend: an exported test has no call for that",
        ),
        FeatureSupport(
            "broken_grammar", unwritten="is refused by the front end: an exported test has no call for that"
        ),
        FeatureSupport("priority"),
        FeatureSupport("continues"),
    )
)


def delivered_output(output: Any, row: int) -> Output:
    """Return the output tokens, logprobs and finish reason of one row of an output batch."""
    reason = _reason(output.finished_reasons[row])
    # SGLang's front end reports only the error for a refused request, although a step has computed output tokens.
    tokens = () if reason == "error" else tuple(output.output_ids[row])
    return Output(tokens, reason, tuple(_logprobs(output, row)), stop_reason=_stop(output.finished_reasons[row]))


def _stop(finished: Mapping[str, Any] | None) -> int | tuple[int, ...] | None:
    """Return the stop token that ended a request, None if it ended otherwise."""
    matched = finished.get("matched", ()) if finished is not None else None
    return tuple(map(token_of, matched)) if isinstance(matched, str) else matched


def _reason(finished: Mapping[str, Any] | None) -> str | None:
    """Return a request's finish reason in the words of a trace.

    An abort with status 400 is not the client's abort but a refused request: `error`.
    """
    if finished is None:
        return None
    is_refused = finished["type"] == "abort" and finished.get("status_code") == HTTPStatus.BAD_REQUEST
    return "error" if is_refused else str(finished["type"])


def _logprobs(output: Any, row: int) -> Iterator[int | float]:
    """Yield token id and logprob, alternately, of a request's new output tokens.

    For each output token, its own logprob comes first, then the top logprobs at its position.
    """
    if not output.output_token_logprobs_val or not output.output_token_logprobs_val[row]:
        return
    own = zip(output.output_token_logprobs_idx[row], output.output_token_logprobs_val[row], strict=True)
    for place, (token, logprob) in enumerate(own):
        yield from (token, logprob)
        values, ids = output.output_top_logprobs_val, output.output_top_logprobs_idx
        if values and values[row] and values[row][place]:
            pairs = zip(ids[row][place], values[row][place], strict=True)
            yield from (each for pair in pairs for each in pair)
