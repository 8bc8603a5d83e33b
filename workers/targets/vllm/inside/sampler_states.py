"""Observer of the second model runner's sampler: its stored state of each batch row.

The state is read in stream order, after the step before has appended its output tokens and before this step's sampler
or rejection sampler runs.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, wraps
from inspect import signature
from itertools import pairwise
from threading import get_ident
from typing import Any

from workers.targets.child.inside.observations import Observations, digests
from workers.targets.child.inside.readback import Parts


@contextmanager
def observing_draft_logits(record: Observations, names: Sequence[str]) -> Iterator[None]:
    """Record the draft logits that the rejection sampler reads for a batch, which this thread samples."""
    batches = _batches_by_thread()
    batches[get_ident()] = record, names
    try:
        yield
    finally:
        del batches[get_ident()]


@cache
def _batches_by_thread() -> dict[int, tuple[Observations, Sequence[str]]]:
    """Wrap `rejection_sample` once for all engines of this process; return the batch that each thread samples."""
    module: Any = importlib.import_module(_REJECTION)
    sample: Callable[..., Any] = module.rejection_sample
    batches: dict[int, tuple[Observations, Sequence[str]]] = {}

    @wraps(sample)
    def observed(*arguments: Any, **options: Any) -> Any:
        if get_ident() in batches:
            record, names = batches[get_ident()]
            given = signature(sample).bind(*arguments, **options).arguments
            assert len(given["idx_mapping"]) == len(names), "a small batch is verified as a whole"
            record.read("draft_logits", names, {name: given[name] for name in _VERIFIED}, _draft_logits)
        return sample(*arguments, **options)

    module.rejection_sample = observed
    return batches


_REJECTION = "vllm.v1.worker.gpu.spec_decode.rejection_sampler"
# Arguments of `rejection_sample` that decide which draft logits it reads.
_VERIFIED = ("draft_logits", "cu_num_logits", "idx_mapping", "expanded_idx_mapping", "expanded_local_pos")


def _draft_logits(views: Mapping[str, Parts]) -> dict[str, list[list[int]]]:
    """Return the digests of the draft logits that two kernels read, by batch row and draft token."""
    logits, ends, states, of_lines, drafts = (views[name][0] for name in _VERIFIED)
    # The last row of logits of a request samples its bonus token.
    lines = [list(range(start, stop - 1)) for start, stop in pairwise(ends.tolist())]
    return {
        "normalizers": [digests([logits[of_lines[each], drafts[each]]]) for each in lines],
        "acceptance": [
            digests([logits[state, : len(each)]]) for state, each in zip(states.tolist(), lines, strict=True)
        ],
    }


class SamplerObserver:
    """Observes the sampler of one model runner by wrapping its `sample`, until `release`."""

    def __init__(self, runner: Any, record: Observations, *, keeps_draft_logits: bool) -> None:
        self._runner, self._record = runner, record
        self._keeps_draft_logits = keeps_draft_logits
        self._sample: Callable[..., Any] = runner.sample
        runner.sample = self._observed_sample

    def release(self) -> None:
        """Restore the runner's unwrapped `sample`."""
        del self._runner.sample

    def _observed_sample(self, hidden_states: Any, batch: Any, *arguments: Any, **options: Any) -> Any:
        indexes = [int(index) for index in batch.idx_mapping_np[: batch.num_reqs]]
        # A dummy batch of padding tokens only has no request.
        if indexes:
            num_logprobs = self._runner.sampler.sampling_states.num_logprobs[indexes].tolist()
            self._record.read(
                "sampler",
                list(batch.req_ids),
                self._tensors(),
                lambda views: {"rows": _rows({name: part for name, (part,) in views.items()}, indexes, num_logprobs)},
            )
        if not (indexes and self._keeps_draft_logits):
            return self._sample(hidden_states, batch, *arguments, **options)
        with observing_draft_logits(self._record, list(batch.req_ids)):
            return self._sample(hidden_states, batch, *arguments, **options)

    def _tensors(self) -> Mapping[str, Any]:
        sampler, requests = self._runner.sampler, self._runner.req_states
        bias, penalties, bad_words = sampler.logits_processors[:3]
        of_states = {
            name: getattr(sampler.sampling_states, name) for name in ("temperature", "top_k", "top_p", "min_p")
        }
        of_penalties = {f"{name}_penalty": getattr(penalties, f"{name}_penalty") for name in _PENALTIES}
        backed = {
            **of_states,
            "seed": sampler.sampling_states.seeds,
            **of_penalties,
            "num_allowed": bias.num_allowed_token_ids,
            "allowed_tokens": bias.allowed_token_ids,
            "num_biases": bias.num_logit_bias,
            "biased": bias.logit_bias_token_ids,
            "logit_bias": bias.logit_bias,
            "min_tokens": bias.min_lens,
            "num_stop": bias.num_stop_token_ids,
            "stop": bias.stop_token_ids,
            "num_bad_words": bad_words.num_bad_words,
            "bad_word_ends": bad_words.bad_word_offsets,
            "bad_words": bad_words.bad_word_token_ids,
            "num_named": sampler.logprob_token_ids_state.num_token_ids,
            "logprob_tokens": sampler.logprob_token_ids_state.token_ids,
            "num_prompt_tokens": requests.prompt_len,
            "num_tokens": requests.total_len,
            "tokens": requests.all_token_ids,
        }
        counts = {"output_counts": penalties.output_bin_counts, "prompt_tokens": penalties.prompt_bin_mask}
        return {name: tensor.gpu for name, tensor in backed.items()} | counts


_PENALTIES = ("presence", "frequency", "repetition")


def _rows(state: Mapping[str, Any], indexes: Sequence[int], num_logprobs: Sequence[int]) -> list[dict[str, Any]]:
    """Return the sampler state of each batch row; `indexes` are the rows' request indexes."""
    return [
        _row({name: part[index] for name, part in state.items()}, of)
        for index, of in zip(indexes, num_logprobs, strict=True)
    ]


def _row(of: Mapping[str, Any], num_logprobs: int) -> dict[str, Any]:
    """Return one batch row's sampler state: parameters, prompt and output tokens, counts."""

    def first(name: str, count: str) -> list[Any]:
        found: list[Any] = of[name][: int(of[count])].tolist()
        return found

    prompt = int(of["num_prompt_tokens"])
    scalars = ("temperature", "top_k", "top_p", "min_p", "seed", *(f"{name}_penalty" for name in _PENALTIES))
    ends = of["bad_word_ends"][: int(of["num_bad_words"]) + 1].tolist()
    counts = of["output_counts"].tolist()
    words = of["prompt_tokens"].tolist()
    has_minimum = int(of["num_stop"]) > 0
    biases = zip(first("biased", "num_biases"), first("logit_bias", "num_biases"), strict=True)
    return {
        **{name: of[name].item() for name in scalars},
        "num_logprobs": num_logprobs + 1,
        "logprob_tokens": first("logprob_tokens", "num_named"),
        "allowed_tokens": first("allowed_tokens", "num_allowed"),
        "logit_bias": sorted((token, bias) for token, bias in biases if bias),
        "min_tokens": int(of["min_tokens"]) - prompt if has_minimum else 0,
        "stop": sorted(first("stop", "num_stop")),
        "bad_words": [of["bad_words"][start:stop].tolist() for start, stop in pairwise(ends)],
        "num_prompt_tokens": prompt,
        "tokens": first("tokens", "num_tokens"),
        "output_counts": [(token, count) for token, count in enumerate(counts) if count],
        "prompt_tokens": [token for token in range(32 * len(words)) if words[token // 32] >> token % 32 & 1],
    }
