"""Known bugs of vLLM: wrong outputs and crashes, each read in its source and written about in `findings/`.

A known bug is reported under the name of its page. Each is of the model runners that have it, and recognised by its
mechanism, as far as a run shows it: what else goes wrong in the same place is new.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from scenarios.events import LoadWeights, Submit, clears_cache
from scenarios.trace import Trace
from workers.record.evidence import Difference, Fact, Site
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.target import KnownBug
from workers.targets.vllm import (
    known_counts,
    known_grammars,
    known_graphs,
    known_sessions,
    known_staging,
    known_states,
    known_transfers,
    known_windows,
)
from workers.targets.vllm.runner_name import RunnerName

# Contracts that are judged by the logprobs that were delivered.
_BY_LOGPROBS = ("same_context", "greedy", "penalties", "logit_bias", "top_k", "top_p", "min_p")


def _min_tokens_asynchronous(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a request could stop as many tokens before its minimum as placeholders of one step stand for.

    It did, or, where logprobs are those of processed logits, another token was less likely beside its stop tokens.
    """
    if found.position is None or trace.spec.depth == 1 or not trace.spec.num_speculative_tokens:
        return False
    missing = [submit.params.min_tokens - found.position for submit in _submits_of(found, trace) if submit.stop]
    if not any(0 < each <= 1 + trace.spec.num_speculative_tokens for each in missing):
        return False
    if (found.plane, found.variable) == ("contracts", "min_tokens"):
        return found.is_kept_elsewhere
    if found.variable != "logprobs" or not trace.spec.logprobs_mode.startswith("processed"):
        return False
    match found.expected, found.actual:
        case (due_token, float(due), *_), (token, float(there), *_):
            return found.reference == Reference.SYNCHRONOUS and token == due_token and there < due
    return False


def _min_tokens_bonus(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a stop token was passed over that accepted drafts of one step lead up to, from below the minimum.

    Where logprobs are those of processed logits it is missing among them.
    """
    is_undrafted = found.reference in (Reference.WITHOUT_SPECULATION, Reference.ALONE)
    if not is_undrafted or found.position is None:
        return False
    for submit in _submits_of(found, trace):
        least, stops = submit.params.min_tokens, set(submit.stop)
        if not least or not least <= found.position < least + trace.spec.num_speculative_tokens:
            continue
        if found.variable == "tokens" and found.expected in stops:
            return True
        is_processed = found.variable == "logprobs" and trace.spec.logprobs_mode.startswith("processed")
        if is_processed and isinstance(found.expected, tuple) and isinstance(found.actual, tuple):
            return bool(stops & set(found.expected[::2])) and not stops & set(found.actual[::2])
    return False


def _outputs_forgotten(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether stops stayed masked behind their minimum, by at most as many tokens as were out by then.

    Another request has to need output tokens, which has the runner take all placeholders for those of one step.
    """
    if trace.spec.depth == 1 or trace.spec.num_speculative_tokens or found.position is None:
        return False
    needing = [other for other in trace.submits() if other.params.has_penalties or other.params.bad_words]
    for submit in _submits_of(found, trace):
        least = submit.params.min_tokens
        is_behind = bool(submit.stop) and 0 < least <= found.position < 2 * least
        if not is_behind or not any(other.request != submit.request and other.tick > submit.tick for other in needing):
            continue
        if found.variable == "tokens" and found.expected in submit.stop:
            return True
        if found.variable == "logprobs" and trace.spec.logprobs_mode.startswith("processed"):
            return True
    return False


def _prompt_logprobs_dropped(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether all logprobs of a prompt are missing, of a request that was there when a reset preempted all.

    There is no other run to ask of a request whose weights were exchanged meanwhile.
    """
    is_unasked = found.elsewhere is None and any(isinstance(event, LoadWeights) for event in trace.events)
    if found.variable != "prompt_logprobs" or trace.spec.depth == 1 or not (found.is_kept_elsewhere or is_unasked):
        return False
    resets = [event for event in trace.events if clears_cache(event)]
    are_missing = isinstance(found.actual, Fact) and found.actual.values.get("count") == 0
    first = min((submit.tick for submit in _submits_of(found, trace)), default=None)
    return are_missing and first is not None and any(event.tick >= first for event in resets)


def _logprobs_of_others(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether logprobs are wrong of a request beside one that names its tokens, in a run that drafts nothing.

    That may be the run without speculation that one with drafts is compared with: there is padding in their place.
    """
    is_of_logprobs = found.variable in ("logprob_ranks", "logprob_sum", "logprobs", *_BY_LOGPROBS)
    is_asked = any(submit.params.num_logprobs for submit in _submits_of(found, trace))
    if not (is_of_logprobs and is_asked and _names_tokens(trace)):
        return False
    if not trace.spec.num_speculative_tokens:
        return True
    is_undrafted = found.variable == "logprobs" and found.reference is Reference.WITHOUT_SPECULATION
    return is_undrafted and _num_padded(found.expected) > _num_padded(found.actual)


def _num_padded(logprobs: object) -> int:
    """Return how many of some flat logprobs are those that a row is filled up with: of token 0, which has none."""
    return [*zip(logprobs[::2], logprobs[1::2], strict=True)].count((0, "-inf")) if isinstance(logprobs, tuple) else 0


def _prompt_logprobs_padded(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a prompt of one token has logprobs, here or in another run, as many as drafts that fill it up."""
    if found.variable != "prompt_logprobs" or not trace.spec.num_speculative_tokens:
        return False
    counts = [fact.values.get("count") for fact in (found.expected, found.actual) if isinstance(fact, Fact)]
    return any(
        submit.prompt_length == 1 and trace.spec.num_speculative_tokens * submit.params.num_prompt_logprobs in counts
        for submit in _submits_of(found, trace)
    )


def _logprobs_beside_drafts(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether logprobs of named tokens are missing, or others are in their place, beside drafts.

    They may be in the run that outputs are compared with alone.
    """
    is_missing = found.plane == "contracts" and found.variable in ("logprobs", "logprob_tokens")
    if found.variable == "logprobs" and isinstance(found.expected, tuple) and isinstance(found.actual, tuple):
        is_missing |= len(found.expected) != len(found.actual)
    is_asked = any(submit.params.logprob_tokens for submit in _submits_of(found, trace))
    return is_missing and is_asked and trace.spec.num_speculative_tokens > 0


def _names_tokens(trace: Trace) -> bool:
    """Tell whether some request names the tokens whose logprobs it wants."""
    return any(submit.params.logprob_tokens for submit in trace.submits())


def _narrow_bonus_logits(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether the logits at the bonus position are as few as one request names tokens."""
    is_there = (where.function, where.file) == ("_get_logprobs_tensors", "rejection_sampler.py")
    return is_there and error.startswith("RuntimeError: shape mismatch") and _names_tokens(trace)


def _padded_below_threshold(error: str, where: Site, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether chunks are shorter than what a request of one token is padded to."""
    is_there = (where.function, where.file) == ("schedule", "scheduler.py") and error.startswith("AssertionError")
    return is_there and 0 < trace.spec.long_prefill_token_threshold < 1 + trace.spec.num_speculative_tokens


def _drafter_prefix_successor(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a drafter's entry at the end of a found block is another request's, with another next token.

    The block behind it was found as well, and dropped: others have its tokens, or the request itself had been there. Of
    what the connector of chunks loads none is dropped.
    """
    due, there = found.expected, found.actual
    if found.variable != "draft_cache" or not (isinstance(due, Fact) and isinstance(there, Fact)):
        return False
    at, request = due.values.get("position"), due.values.get("request")
    is_end = isinstance(at, int) and (at + 1) % trace.spec.block_size == 0
    is_anothers = there.values.get("position") == at and there.values.get("request") != request
    is_kept = trace.spec.prefix_cache or trace.spec.has_connector
    if not (is_kept and is_end and is_anothers and isinstance(at, int)):
        return False
    begun, tokens = Counter[int](), dict[int, list[int]]()
    for seen in steps:
        if seen.point == "scheduled":
            for number, known in seen.values["begun"]:
                begun[number] += 1
                tokens[number] = list(known)
        elif seen.point == "processed":
            for number, sampled in zip(seen.requests, seen.values["sampled"], strict=True):
                tokens[number] += sampled
    offloading = trace.spec.offloading
    stop = at + 1 + (0 if offloading is not None and offloading.connector == "chunked" else trace.spec.block_size)
    its_own = tokens[request][:stop] if isinstance(request, int) and request in tokens else []
    if len(its_own) < stop:
        return False
    having = [number for number, known in tokens.items() if known[:stop] == its_own]
    return len(having) > 1 or begun[having[0]] > 1


def _prefix_successor_beside_a_connector(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether that is met beside a connector, for whose blocks 0.33.0 has left the hashes as they were."""
    return trace.spec.has_connector and _drafter_prefix_successor(found, trace, steps)


def _counts_of_kept_requests(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a count is too small by the drafts rejected in the step before a pause, that kept its request."""
    if (found.plane, found.variable) != ("counts", "mirror_computed"):
        return False
    before = [seen for seen in steps if seen.step == found.step - 1]
    controls = [seen.values["what"] for seen in before if seen.point == "controlled"]
    of_it = {
        seen.point: seen.values[name][list(map("submit {}".format, seen.requests)).index(found.request)]
        for point, name in (("scheduled", "planned_drafts"), ("processed", "sampled"))
        for seen in before
        if seen.point == point and found.request in map("submit {}".format, seen.requests)
    }
    if "pause_keep" not in controls or not of_it.get("processed"):
        return False
    rejected = of_it["scheduled"] + 1 - len(of_it["processed"])
    counts = found.expected, found.actual
    is_twice = isinstance(counts[0], int) and isinstance(counts[1], int) and counts[0] - counts[1] == rejected
    return rejected > 0 and is_twice


def _drafts_past_the_model(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether a query behind the end of the model has written over the beginning of its request's last block."""
    due, there, spec = found.expected, found.actual, trace.spec
    if found.variable != "draft_cache" or not (isinstance(due, Fact) and isinstance(there, Fact)):
        return False
    at, last = due.values.get("position"), spec.max_model_len - 1
    is_own = due.values.get("request") == there.values.get("request") and there.values.get("position") == last
    if spec.drafter != "dflash" or not is_own or not isinstance(at, int):
        return False
    # It asks for a token more than it drafts.
    return at // spec.block_size == last // spec.block_size and at % spec.block_size < spec.num_speculative_tokens


def _lookups_of_moved_rows(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether drafts are of a request whose row moved right behind a step that had a chunk of its prompt."""
    if (found.plane, found.variable, trace.spec.drafter) != ("drafts", "looked_up", "ngram_gpu"):
        return False
    numbers = {f"submit {number}": number for seen in steps for number in seen.requests}
    request = numbers.get(found.request)
    rows = {
        seen.step: seen.requests.index(request) for seen in steps if seen.point == "inputs" and request in seen.requests
    }
    chunks = {
        seen.step
        for seen in steps
        if seen.point == "processed" and request in seen.requests
        if not seen.values["sampled"][seen.requests.index(request)]
    }
    moved = [step for step, row in rows.items() if step - 1 in chunks and rows.get(step - 1, row) != row]
    return any(step <= found.step for step in moved)


def _sampling_states_in_flight(found: Difference, trace: Trace, steps: Sequence[Observation]) -> bool:
    """Tell whether drafts were drawn for a request that others have replaced by the second write behind its step.

    A step without a plan writes as well: a plan that does not follow another has one such before it.
    """
    is_drawn = found.variable == "proposed" and trace.spec.draft_sampling == "probabilistic"
    if not is_drawn or trace.schedule.policy == "eager" or found.step is None:
        return False
    planned = [
        seen.requests
        for seen in steps
        if seen.point == "scheduled"
        if seen.step == found.step + 2 or (seen.step == found.step + 1 and not seen.values["follows"])
    ]
    names = {trace.submitted()[number].request for requests in planned for number in requests}
    return bool(names) and found.request not in names


def _submits_of(found: Difference, trace: Trace) -> list[Submit]:
    """Return the requests of the name that a difference is about."""
    return [submit for submit in trace.submits() if submit.request == found.request]


_Matcher = Callable[[Difference, Trace, Sequence[Observation]], bool]
_LOGPROB_TOKENS = KnownBug(
    "vllm_logprob_tokens_drafts",
    "https://github.com/vllm-project/vllm/issues/42592",
    "vLLM 0.32.0 returns no logprobs for `logprob_token_ids` with drafts, or crashes if another request has logprobs.",
)

_BUGS_OF_BOTH: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "vllm_drafter_prefix_successor",
        "findings/vllm_drafter_prefix_successor/README.md",
        "vLLM 0.32.0 reuses cached blocks whose last drafter KV entry depends on another request's next token.",
        mended="0.33.0",
    ): _drafter_prefix_successor,
    KnownBug(
        "vllm_drafter_prefix_successor",
        "findings/vllm_drafter_prefix_successor/README.md",
        "vLLM 0.33.0 with a KV connector reuses blocks whose last drafter KV entry is another request's.",
    ): _prefix_successor_beside_a_connector,
    _LOGPROB_TOKENS: _logprobs_beside_drafts,
    **known_sessions.BUGS,
}
_BUGS_OF_FIRST: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "vllm_min_tokens_asynchronous",
        "findings/vllm_min_tokens_asynchronous/README.md",
        "vLLM 0.32.0 counts placeholders of drafts in flight as output tokens and lifts `min_tokens` too early.",
    ): _min_tokens_asynchronous,
    KnownBug(
        "vllm_min_tokens_bonus",
        "findings/vllm_min_tokens_bonus/README.md",
        "vLLM 0.32.0 masks stop tokens at the bonus position although accepted drafts have reached `min_tokens`.",
    ): _min_tokens_bonus,
    KnownBug(
        "vllm_outputs_forgotten",
        "findings/vllm_outputs_forgotten/README.md",
        "vLLM 0.32.0 drops output tokens of earlier steps when a request with penalties joins the batch.",
    ): _outputs_forgotten,
    KnownBug(
        "vllm_prompt_logprobs_dropped",
        "findings/vllm_prompt_logprobs_dropped/README.md",
        "vLLM 0.32.0 loses prompt logprobs when a prefix-cache reset preempts the request that computed them.",
    ): _prompt_logprobs_dropped,
    KnownBug(
        "vllm_logprob_tokens_rows",
        "findings/vllm_logprob_tokens_rows/README.md",
        "vLLM 0.32.0 loses top logprobs of each request in a batch with a `logprob_token_ids` request.",
    ): _logprobs_of_others,
    KnownBug(
        "vllm_paused_counts",
        "findings/vllm_paused_counts/README.md",
        "vLLM 0.32.0 subtracts rejected drafts from the computed counts twice: before a pause and after it.",
    ): _counts_of_kept_requests,
    KnownBug(
        "vllm_lookups_of_moved_rows",
        "findings/vllm_lookups_of_moved_rows/README.md",
        "vLLM 0.32.0 looks n-gram drafts up in another request's tokens after a row moved during chunked prefill.",
    ): _lookups_of_moved_rows,
}
_BUGS_OF_SECOND: Mapping[KnownBug, _Matcher] = {
    KnownBug(
        "vllm_v2_drafts_past_the_model",
        "findings/vllm_v2_drafts_past_the_model/README.md",
        "vLLM 0.32.0 writes dflash queries past max_model_len over the start of the request's last block.",
    ): _drafts_past_the_model,
    KnownBug(
        "vllm_v2_prompt_logprobs_padded",
        "findings/vllm_v2_prompt_logprobs_padded/README.md",
        "vLLM 0.32.0 returns prompt logprobs for the draft placeholders that pad a one-token prompt.",
    ): _prompt_logprobs_padded,
    KnownBug(
        "vllm_v2_sampling_states_in_flight",
        "findings/vllm_v2_sampling_states_in_flight/README.md",
        "vLLM 0.32.0 overwrites temperatures and seeds of reused rows while a drafter may still read them.",
    ): _sampling_states_in_flight,
}
KNOWN_BUGS: Mapping[RunnerName, Mapping[KnownBug, _Matcher]] = {
    "v1": {
        **_BUGS_OF_BOTH,
        **known_transfers.BUGS_OF_FIRST,
        **known_staging.BUGS_OF_FIRST,
        **_BUGS_OF_FIRST,
        **known_grammars.BUGS_OF_FIRST,
        **known_sessions.BUGS_OF_FIRST,
        **known_graphs.BUGS_OF_FIRST,
        **known_states.BUGS_OF_FIRST,
        **known_windows.BUGS_OF_FIRST,
    },
    "v2": {**_BUGS_OF_BOTH, **known_transfers.BUGS_OF_SECOND, **_BUGS_OF_SECOND, **known_states.BUGS_OF_SECOND},
}
_CrashMatcher = Callable[[str, Site, Trace, Sequence[Observation]], bool]
# Of what the engine raises, and where, on which trace, and of what was seen of its steps before.
_CRASHES_OF_BOTH: Mapping[KnownBug, _CrashMatcher] = {
    **known_transfers.CRASHES,
    **known_sessions.CRASHES,
    KnownBug(
        "vllm_padded_below_threshold",
        "https://github.com/vllm-project/vllm/pull/54028",
        "vLLM 0.32.0 pads a request to 1 + K tokens, then truncates it to long_prefill_token_threshold, and crashes.",
    ): _padded_below_threshold,
}
KNOWN_CRASHES: Mapping[RunnerName, Mapping[KnownBug, _CrashMatcher]] = {
    "v1": {
        **_CRASHES_OF_BOTH,
        _LOGPROB_TOKENS: _narrow_bonus_logits,
        **known_staging.CRASHES_OF_FIRST,
        **known_counts.CRASHES_OF_FIRST,
    },
    "v2": {**_CRASHES_OF_BOTH, **known_transfers.CRASHES_OF_SECOND},
}
# Of a trace that made no progress, and what was counted of it; the scheduler is that of both.
KNOWN_HANGS: Mapping[KnownBug, Callable[[Trace, Mapping[str, int]], bool]] = {
    **known_transfers.HANGS,
    **known_states.HANGS,
}
