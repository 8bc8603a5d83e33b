"""Compare the outputs that clients receive in two runs of the same requests.

Verifies:
- the output tokens, logprobs and finish reason of every request;
- that both runs end and do not crash.

Does not verify:
- intermediate values: only final outputs are compared;
- the length and finish reason of a request that is aborted, that a pause ends, or whose logits an event spoils: only
  the common part of its tokens is compared, because the rest depends on timing;
- requests whose name is submitted again, because timing decides which of them are accepted;
- requests whose sampled tokens depend on draft tokens;
- logprobs that an engine returns beyond the requested number;
- with inexact arithmetic, a greedy request after a token that was a near tie in both runs.
"""

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from math import inf, isfinite
from typing import NamedTuple, TypeAlias

from scenarios.events import Abort, NanLogits, Pausing, SpoilLogit, Submit, clears_cache
from scenarios.sampling import Output
from scenarios.trace import Trace
from workers.oracle.derived import has_penalties
from workers.oracle.incremental_values import depends_on_drafts
from workers.record.evidence import Difference, Site, fact, plain_value
from workers.record.observation import logprobs_per_token

# Error of a sum of float32 exponentials of logits. It is larger for an engine that rounds logits differently in each
# batch: its `logit_margin`. Rounding of a logit is relative: logprobs of unlikely tokens have larger errors.
TOLERANCE, RELATIVE_TOLERANCE = 1e-4, 1e-5
# The logprob of the smallest normal float32. An engine with inexact arithmetic may set a smaller probability to 0: in a
# batch with a top-p request, such tokens are masked in all rows. For logits it is relative to the largest logit.
LOGPROB_MIN = -87.3

Outputs: TypeAlias = Mapping[str, Output]


class FailedRun(NamedTuple):
    """A run without outputs: the error that ended it, and its source location if known."""

    error: str
    where: Site = Site(function="")


class Comparison(NamedTuple):
    """The first difference of two runs, or None, and requests that diverge at a near tie."""

    difference: Difference | None
    near_ties: tuple[str, ...] = ()


def compare(
    trace: Trace,
    seen: Outputs | FailedRun,
    wanted: Outputs | FailedRun,
    logit_margin: float = 0.0,
    excused: Set[str] = frozenset(),
) -> Comparison:
    """Return the first difference between outputs `seen` and `wanted` (reference run).

    An engine may choose either of two tokens with logits closer than `logit_margin`. All requests of `wanted` are
    compared, except `excused` ones. A run that failed is always a difference.
    """
    if isinstance(seen, FailedRun):
        return Comparison(_difference("end", "", None, fact("outputs"), fact("failed", error=seen.error)))
    if isinstance(wanted, FailedRun):
        broken = _difference("end", "", None, fact("reference_failed", error=wanted.error), fact("outputs"))
        return Comparison(broken.model_copy(update={"made_at": (wanted.where,) if wanted.where.function else ()}))
    cut_short = {event.request for event in trace.events if isinstance(event, Abort | NanLogits | SpoilLogit)}
    if trace.spec.has_connector:
        # `judge.connector_transfers` decides whether a request may fail because a load lost blocks.
        cut_short |= {name for name, output in seen.items() if output.finish_reason == "error"}
    if any(isinstance(event, Pausing) and event.mode == "abort" for event in trace.events):
        cut_short.update(name for name, output in seen.items() if output.finish_reason == "abort")
    submitted = Counter(event.request for event in trace.submits())
    # After a cache reset discards tokens in flight, an engine with a counting random generator samples other tokens.
    draws_again = any(clears_cache(event) for event in trace.events)
    has_drafts = trace.spec.num_speculative_tokens > 0 or draws_again
    submits = {
        event.request: event
        for event in trace.submits()
        if not (has_drafts and depends_on_drafts(event.params, trace.spec))
    }
    mode, near_ties = trace.spec.logprobs_mode, tuple[str, ...]()
    for name, output in wanted.items():
        if submitted[name] > 1 or name not in submits or name in excused:
            continue
        if name not in seen:
            return Comparison(_difference("tokens", name, None, fact("output"), fact("nothing")), near_ties)
        pair = _Pair(submits[name], seen[name], output, name in cut_short, logit_margin, mode)
        found = pair.first_difference()
        if found is not None:
            return Comparison(found, near_ties)
        near_ties += (name,) if pair.end_of_common is not None else ()
    return Comparison(None, near_ties)


def _difference(variable: str, request: str, position: int | None, expected: object, actual: object) -> Difference:
    """Build the difference of an output variable, or of the run's end, without a step number."""
    return Difference(
        plane={"end": "liveness", "logprobs": "logits", "prompt_logprobs": "logits"}.get(variable, "tokens"),
        variable=variable,
        request=request,
        step=-1,
        position=position,
        expected=plain_value(expected),
        actual=plain_value(actual),
    )


class _Pair:
    """The outputs of one request in two runs, compared up to the first near tie of logits.

    `end_of_common` is the position of that near tie.
    Logits closer than `margin` are tied. `mode` is the engine's `logprobs_mode`.
    """

    def __init__(
        self, submit: Submit, seen: Output, wanted: Output, is_cut_short: bool, margin: float, mode: str
    ) -> None:
        self.end_of_common: int | None = None
        self._submit, self._seen, self._wanted = submit, seen, wanted
        self._is_cut_short, self._margin = is_cut_short, margin
        self._is_raw, self._has_logits = mode.startswith("raw"), mode.endswith("logits")
        # Repetition penalty and temperature multiply logits, and so the error of processed logits.
        penalty, temperature = submit.params.repetition_penalty, submit.params.temperature
        factor = max(1.0, penalty, 1 / penalty) * max(1.0, 1 / temperature if temperature else 1.0)
        self._factor = 1.0 if self._is_raw else factor

    def first_difference(self) -> Difference | None:
        """Return the first difference between both outputs, or None."""
        name, seen, wanted = self._submit.request, self._seen, self._wanted
        common = min(len(wanted.tokens), len(seen.tokens))
        of_prompt = self._prompt_logprobs() if common else None
        if of_prompt is not None:
            return of_prompt
        for position in range(common):
            if seen.tokens[position] != wanted.tokens[position]:
                if not self._is_near_tie(position):
                    return _difference("tokens", name, position, wanted.tokens[position], seen.tokens[position])
                self.end_of_common = position
                return self._logprobs(position)
        if not self._is_cut_short:
            if len(seen.tokens) != len(wanted.tokens):
                expected, actual = (fact("tokens", count=len(each.tokens)) for each in (wanted, seen))
                return _difference("tokens", name, common, expected, actual)
            if seen.finish_reason != wanted.finish_reason:
                return _difference("finish_reason", name, None, wanted.finish_reason, seen.finish_reason)
        return self._logprobs(common)

    def _prompt_logprobs(self) -> Difference | None:
        """Return the first difference in prompt logprobs, located at the prompt token, or None."""
        seen, wanted = self._seen.prompt_logprobs, self._wanted.prompt_logprobs
        width = 2 * self._submit.params.num_prompt_logprobs
        if len(seen) != len(wanted):
            expected, actual = (fact("num_logprobs", count=len(each) // 2) for each in (wanted, seen))
            return _difference("prompt_logprobs", self._submit.request, None, expected, actual)
        for first in range(0, len(wanted), width) if width else ():
            one, other = seen[first : first + width], wanted[first : first + width]
            if not self._are_alike(one, other):
                return _difference("prompt_logprobs", self._submit.request, first // width + 1, other, one)
        return None

    def _is_near_tie(self, position: int) -> bool:
        """Return whether both runs give the two different tokens logits within the margin."""
        params = self._submit.params
        is_raw = self._is_raw and (has_penalties(params) or bool(params.logit_bias))
        if not self._margin or params.temperature or (is_raw and params.repetition_penalty != 1):
            return False
        tokens = self._seen.tokens[position], self._wanted.tokens[position]
        before = [self._subtracted(token, position) if is_raw else 0.0 for token in tokens]
        for output in (self._seen, self._wanted):
            pairs = _shown(output, position)
            logprobs = dict(zip(pairs[::2], pairs[1::2], strict=True))
            if not logprobs.keys() >= set(tokens):
                return False
            first, second = (logprobs[token] - less for token, less in zip(tokens, before, strict=True))
            if not abs(first - second) < self._margin:
                return False
        return True

    def _subtracted(self, token: int, position: int) -> float:
        """Return the amount that penalties and bias subtract from a token's logit at a position."""
        times, params = self._seen.tokens[:position].count(token), self._submit.params
        penalty = params.presence_penalty + params.frequency_penalty * times if times else 0.0
        return penalty - dict(params.logit_bias).get(token, 0.0)

    def _logprobs(self, num_tokens: int) -> Difference | None:
        """Return the first difference in the output logprobs, or None."""
        asked = self._submit.params.logprobs_width
        if None in (logprobs_per_token(output.logprobs, len(output.tokens)) for output in (self._seen, self._wanted)):
            # The number of logprobs differs from token to token, so they cannot be matched to tokens.
            length = 2 * asked * num_tokens if self._is_cut_short else None
            first, second = self._seen.logprobs[:length], self._wanted.logprobs[:length]
            is_alike = self._are_alike(first, second)
            return None if is_alike else _difference("logprobs", self._submit.request, None, second, first)
        for position in range(num_tokens) if asked else ():
            seen, wanted = (_shown(output, position)[: 2 * asked] for output in (self._seen, self._wanted))
            if not self._are_alike(seen, wanted):
                return _difference("logprobs", self._submit.request, position, wanted, seen)
        return None

    def _are_alike(self, seen: Sequence[int | float], wanted: Sequence[int | float]) -> bool:
        """Return whether two lists of logprobs agree at each rank; near ties may swap tokens."""
        if len(seen) != len(wanted):
            return False
        if self._margin > 0:
            seen, wanted = self._without_impossible(seen), self._without_impossible(wanted)
        for rank in range(1, len(wanted), 2):
            if not _is_close(seen[rank], wanted[rank], self._factor * max(TOLERANCE, self._margin)):
                return False
            if seen[rank - 1] != wanted[rank - 1] and not _is_tied(seen, wanted, rank, self._margin * self._factor):
                return False
        return True

    def _without_impossible(self, logprobs: Sequence[int | float]) -> list[int | float]:
        """Return logprobs (or logits) with those of practically impossible tokens set to -inf."""
        least = LOGPROB_MIN + (max(logprobs[1::2], default=0.0) if self._has_logits else 0.0)
        return [-inf if index % 2 and value < least else value for index, value in enumerate(logprobs)]


def _shown(output: Output, position: int) -> tuple[int | float, ...]:
    """Return the reported logprobs at a position, flat: token id, logprob, token id ..."""
    width = len(output.logprobs) // (2 * len(output.tokens))
    return output.logprobs[2 * width * position : 2 * width * (position + 1)]


def _is_close(seen: float, wanted: float, tolerance: float) -> bool:
    """Return whether two logprobs are equal up to the rounding of logits."""
    # Any value would be close to an infinite one by relative tolerance.
    rounding = tolerance + RELATIVE_TOLERANCE * abs(wanted) if isfinite(wanted) else 0.0
    return seen == wanted or abs(seen - wanted) <= rounding


def _is_tied(seen: Sequence[int | float], wanted: Sequence[int | float], rank: int, margin: float) -> bool:
    """Return whether two runs may list different tokens at a rank, because logits nearly tie.

    The token of the last rank may be tied with a token that the other run does not return.
    """
    if rank == 1:
        return False
    others = dict(zip(wanted[2::2], wanted[3::2], strict=True))
    there = others.get(seen[rank - 1], wanted[-1])
    # All forbidden tokens are tied at -inf.
    return margin > 0 and (there == wanted[rank] or abs(there - wanted[rank]) < margin)
