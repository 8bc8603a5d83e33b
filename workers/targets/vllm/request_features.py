"""Request features of vLLM: parameters, runners that lack one, and delivered outputs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from scenarios.capabilities import EventLimit, Excess, ParamAtMost, with_params
from scenarios.events import AnyEvent, Submit
from scenarios.sampling import Output
from scenarios.spec import EngineSpec
from workers.targets.child.grammar_ends import each_state_allows_a_token, grammars_end_by_stops
from workers.targets.child.inside.tokenizer import BROKEN, character_of, text_of, token_of
from workers.targets.child.request_features import ExcludedParam, FeatureSupport, RequestFeatures, of

TEMPERATURE_MAX = 2.0
# The key of `extra_args` by which a request asks the user's logits processor to ban the token sampled last.
NO_REPEATS = "no_repeats"
_TEXT = "is text for vLLM, and this is a list of tokens"


def some_token_is_allowed(event: AnyEvent, spec: EngineSpec) -> Excess[AnyEvent] | None:
    """Check the limit: `min_tokens` and bad words leave one of `allowed_tokens`."""
    if not isinstance(event, Submit) or not event.params.allowed_tokens:
        return None
    params = event.params
    banned = {*(event.stop if params.min_tokens else ()), *(word[-1] for word in params.bad_words)}
    if not banned.issuperset(params.allowed_tokens):
        return None
    seen, fixed = "all are banned by min_tokens with stop, or by bad_words", with_params(event, {"allowed_tokens": ()})
    return Excess("params.allowed_tokens", seen, "one must be left", fixed)


def _not_in_session(param: str, reason: str) -> EventLimit:
    return ExcludedParam(param, "session", lambda submit, spec: submit.session is not None, reason)


_REASONING_IN_PARTS = ExcludedParam(
    "grammar",
    "session and reasoning_end",
    lambda submit, spec: None not in (submit.session, spec.reasoning_end),
    "an earlier part may have ended reasoning",
)
_NO_OTHER_TOKENS = ExcludedParam(
    "no_repeats",
    "grammar or allowed_tokens",
    lambda submit, spec: bool(submit.params.grammar or submit.params.allowed_tokens),
)


def _grammar(submit: Submit) -> str | None:
    params = submit.params
    return BROKEN if params.broken_grammar else text_of(submit) if params.grammar else None


def has_text(submit: Submit) -> bool:
    """Return whether a request needs detokenized text: for stop words, or to cut them off."""
    return bool(submit.params.stop_words) or not submit.params.include_stop_str_in_output


SECOND = RequestFeatures(
    (
        FeatureSupport(
            "min_tokens", of("min_tokens"), limits=(ParamAtMost("min_tokens", lambda submit: submit.max_tokens),)
        ),
        FeatureSupport("stop", {"stop_token_ids": lambda submit: list(submit.stop)}),
        FeatureSupport(
            "temperature",
            of("temperature"),
            limits=(ParamAtMost("temperature", lambda submit: TEMPERATURE_MAX),),
        ),
        FeatureSupport("seed", {"seed": lambda submit: submit.params.seed if submit.params.temperature else None}),
        *(FeatureSupport(name, of(name)) for name in ("top_k", "top_p", "min_p")),
        *(FeatureSupport(f"{name}_penalty", of(f"{name}_penalty")) for name in ("presence", "frequency", "repetition")),
        FeatureSupport(
            "allowed_tokens",
            {"allowed_token_ids": lambda submit: list(submit.params.allowed_tokens) or None},
            limits=(some_token_is_allowed,),
        ),
        FeatureSupport("logit_bias", {"logit_bias": lambda submit: dict(submit.params.logit_bias) or None}),
        # Here the number of logprobs includes the sampled token's own one; in vLLM it does not.
        FeatureSupport("num_logprobs", {"logprobs": lambda submit: _less_one(submit.params.num_logprobs)}),
        FeatureSupport(
            "num_prompt_logprobs",
            {"prompt_logprobs": lambda submit: _less_one(submit.params.num_prompt_logprobs)},
            limits=(
                _not_in_session(
                    "num_prompt_logprobs", "a later part computes only the tokens that it adds to the prompt"
                ),
            ),
        ),
        FeatureSupport(
            "logprob_tokens", {"logprob_token_ids": lambda submit: list(submit.params.logprob_tokens) or None}
        ),
        # vLLM tokenizes bad words when it receives a request; there is no tokenizer here.
        FeatureSupport(
            "bad_words",
            {"_bad_words_token_ids": lambda submit: [list(word) for word in submit.params.bad_words]},
            unwritten=_TEXT,
        ),
        FeatureSupport(
            "broken_grammar",
            # The producer would hand nothing over, or the request fails with a load.
            without=lambda spec: spec.has_connector,
            limits=(_not_in_session("broken_grammar", "the error would end the session"),),
            unwritten="is refused by the front end of an exported test",
        ),
        FeatureSupport(
            "stop_words",
            {
                "detokenize": has_text,
                "stop": lambda submit: ["".join(map(character_of, word)) for word in submit.params.stop_words],
            },
            limits=(_not_in_session("stop_words", "the engine core does not detect stop words"),),
            unwritten=_TEXT,
        ),
        FeatureSupport(
            "include_stop_str_in_output",
            of("include_stop_str_in_output"),
            limits=(_not_in_session("include_stop_str_in_output", "the text of a part differs from a request's text"),),
            unwritten="changes the text alone, and an exported test has tokens",
        ),
        FeatureSupport(
            "grammar",
            {"structured_outputs": _grammar},
            limits=(_REASONING_IN_PARTS, grammars_end_by_stops, each_state_allows_a_token),
        ),
        FeatureSupport("priority", request={"priority": lambda submit: submit.priority}),
        # A recurrent state cannot be rolled back to before the last token of a part, and a producer ends each request
        # after its prompt.
        FeatureSupport("session", without=lambda spec: spec.layers != "attention" or spec.handoff is not None),
        # The turn before has ended by a tick that depends on the schedule of data-parallel ranks.
        FeatureSupport("continues", without=lambda spec: spec.data_ranks > 1),
        FeatureSupport("data_rank", without=lambda spec: spec.data_ranks == 1),
    )
)
# With draft tokens the first runner's front end refuses these, and its engine ignores them.
_NOT_WITH_DRAFTS = ("logit_bias", "min_p")
FIRST = RequestFeatures(
    (
        *(
            replace(each, without=lambda spec: spec.num_speculative_tokens > 0)
            if each.feature in _NOT_WITH_DRAFTS
            else each
            for each in SECOND.rows
        ),
        FeatureSupport(
            "no_repeats",
            {"extra_args": lambda submit: {NO_REPEATS: True} if submit.params.no_repeats else None},
            without=lambda spec: not spec.logits_processor,
            limits=(_NO_OTHER_TOKENS,),
            unwritten="needs a logits processor that an exported test does not have",
        ),
    )
)
_SCHEDULER, _STOPS = "vllm/v1/core/sched/scheduler.py", "vllm/v1/core/sched/utils.py"
# Functions of both runners that are reported with a broken contract, nearest first, each with its file.
CONTRACT_FUNCTIONS: Mapping[str, Mapping[str, str]] = {
    "max_tokens": {"check_stop": _STOPS, "_update_request_with_output": _SCHEDULER},
    "stop": {"check_stop": _STOPS, "_update_request_with_output": _SCHEDULER},
    "finish_reason": {"check_stop": _STOPS, "update_from_output": _SCHEDULER},
    "stop_words": {
        "update": "vllm/v1/engine/detokenizer.py",
        "process_outputs": "vllm/v1/engine/output_processor.py",
    },
    "stop_reason": {"check_stop": _STOPS, "_update_request_as_session": _SCHEDULER},
    "text": {"update": "vllm/v1/engine/detokenizer.py", "get_next_output_text": "vllm/v1/engine/detokenizer.py"},
    "broken_grammar": {"grammar_init": "vllm/v1/structured_output/__init__.py", "update_from_output": _SCHEDULER},
}
# Sampling parameters with the same value for every request.
ALWAYS: Mapping[str, object] = {"ignore_eos": True}
SAMPLING_KEYS = " ".join(("max_tokens", *ALWAYS, *(key for each in FIRST.rows for key in each.sampling)))
# Fields of `EngineCoreOutput` that are read.
OUTPUT_FIELDS = "request_id finish_reason stop_reason new_token_ids new_logprobs new_prompt_logprobs_tensors"


def _less_one(number: int) -> int | None:
    return number - 1 if number else None


def delivered_output(output: Any, width: int) -> Output:
    """Return the tokens, logprobs, finish reason and stop reason of an `EngineCoreOutput`.

    Rows of logprobs are as wide as the widest request of the batch needs: the first `width` columns are the request's.
    """
    flat: list[int | float] = []
    if output.new_logprobs is not None:
        for ids, logprobs in zip(output.new_logprobs.logprob_token_ids, output.new_logprobs.logprobs, strict=True):
            flat += _flat(ids[:width].tolist(), logprobs[:width].tolist())
    of_prompt: list[int | float] = []
    if output.new_prompt_logprobs_tensors is not None:
        tensors = output.new_prompt_logprobs_tensors
        of_prompt = _flat(tensors.logprob_token_ids.flatten().tolist(), tensors.logprobs.flatten().tolist())
    reason = None if output.finish_reason is None else str(output.finish_reason)
    # The front end reads the stop reason only together with a finish reason.
    stop = None if reason is None else () if output.stop_reason is None else output.stop_reason
    return Output(tuple(output.new_token_ids), reason, tuple(flat), tuple(of_prompt), stop)


def _flat(ids: list[int], logprobs: list[float]) -> list[int | float]:
    """Return token ids and logprobs as one flat list, each id before its logprob."""
    return [value for pair in zip(ids, logprobs, strict=True) for value in pair]


class Text:
    """Detokenizer of one request, vLLM's own, which also finds stop words.

    `has_stopped` is true if a stop word ended the request while the engine core still runs it.
    """

    def __init__(self, tokenizer: Any, request: Any) -> None:
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer  # noqa: PLC0415  vLLM is loaded in its process

        self._detokenizer = IncrementalDetokenizer.from_new_request(tokenizer, request)
        self.has_stopped = False

    def delivered(self, output: Output) -> Output:
        """Return what the client gets: tokens up to the end of a stop word, and their text."""
        reason, num_before = output.finish_reason, self._detokenizer.num_output_tokens()
        word = self._detokenizer.update(list(output.tokens), reason == "stop")
        self.has_stopped = word is not None and reason is None
        reason = "stop" if word is not None else reason
        text = self._detokenizer.get_next_output_text(finished=reason is not None, delta=True)
        kept = tuple(self._detokenizer.output_token_ids[num_before:])
        width = len(output.logprobs) // max(1, len(output.tokens))
        return output._replace(
            tokens=kept,
            finish_reason=reason,
            logprobs=output.logprobs[: width * len(kept)],
            stop_reason=output.stop_reason if word is None else tuple(map(token_of, word)),
            text=tuple(map(token_of, text)),
        )
