"""Tiny engine with its own sampler, which returns tokens and logprobs; optional bugs.

The logits after `tokens` depend only on the tokens, so runs do not differ from each other. At depth 2 (async
scheduling), a token is delivered one step after it was computed. A `breach` is a bug that violates one sampling
contract.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import exp, inf, log

from scenarios.capabilities import Capabilities
from scenarios.draw import below
from scenarios.events import Abort, AnyEvent, Hook, Submit
from scenarios.sampling import Output, SamplingParams
from scenarios.trace import Trace
from workers.targets.target import Progress, RunConfig, Target, TargetKind, Watch

Delivered = tuple[int, tuple[int | float, ...]]
FEATURES = ("stop", *SamplingParams.model_fields)
# The request with other logits in the same context, for the breach `same_context`.
SHIFTED = "shifted"


@dataclass(slots=True, eq=False)
class Request:
    """One request: computed tokens, delivered output tokens, and its finish reason."""

    submit: Submit
    computed: list[int]
    why: str | None = None
    delivered: list[Delivered] = field(default_factory=list)
    finish_reason: str | None = None

    @property
    def output(self) -> list[int]:
        assert isinstance(self.submit.prompt, tuple)
        return self.computed[len(self.submit.prompt) :]


def logits_after(tokens: Sequence[int], vocab_size: int) -> list[float]:
    """Return logits between -4 and 4 that depend on all tokens."""
    seed = 0
    for token in tokens:
        seed = (31 * seed + token + 1) % 1_000_003
    return [(seed + 1) * (token + 7) * 7919 % 8009 / 1000 - 4 for token in range(vocab_size)]


@dataclass(slots=True)
class SamplerBox(Target):
    """One engine; `in_flight` has the results of each step in flight, by request."""

    trace: Trace
    breach: str
    wobble: float = 0.0
    requests: dict[str, Request] = field(default_factory=dict)
    in_flight: deque[list[tuple[Request, Delivered | None, str | None]]] = field(default_factory=deque)
    num_commits: int = 0
    probes: dict[str, int] = field(default_factory=dict)

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        before = self.requests.get(event.request)
        if before is not None and before.finish_reason is None:
            return
        assert isinstance(event.prompt, tuple)
        self.requests[event.request] = Request(event, list(event.prompt))
        if before is not None and self.breach == "name":
            self.requests[event.request].delivered += before.delivered[:1]

    def abort(self, event: Abort) -> None:
        request = self.requests.get(event.request)
        if request is not None and request.finish_reason is None:
            request.finish_reason = request.why = "abort"

    def apply(self, event: AnyEvent) -> None:
        raise AssertionError(f"{event.do} is not an event of this engine")

    def step(self, happen: Callable[[Hook], None]) -> None:
        happen("before_schedule")
        step = []
        for request in self.requests.values():
            if request.why is None:
                is_broken = request.submit.params.broken_grammar and self.breach != "broken_grammar"
                delivered = None if is_broken else self._next(request)
                if delivered is not None:
                    request.computed.append(delivered[0])
                request.why = self._end(request) if delivered is not None else "error"
                step.append((request, delivered, request.why))
        self.in_flight.append(step)
        if len(self.in_flight) >= self.trace.spec.depth:
            for request, delivered, why in self.in_flight.popleft():
                self._deliver(request, delivered, why)

    def _deliver(self, request: Request, delivered: Delivered | None, why: str | None) -> None:
        self.num_commits += 1
        if delivered is not None and (request.finish_reason is None or self.breach == "abort"):
            request.delivered.append(delivered)
        if request.finish_reason is None:
            request.finish_reason = why
        if self.breach == "delivery" and len(request.delivered) == 3:
            request.delivered[0] = request.delivered[1]

    def _next(self, request: Request) -> Delivered | None:
        """Return the next token of a request with its logprobs, or None if no token is allowed."""
        params, vocab_size = request.submit.params, self.trace.spec.vocab_size
        raw = logits_after(request.computed, vocab_size)
        if self.wobble:
            is_later = self.trace.spec.depth > 1
            raw = [round(logit) + self.wobble * (token % 2) * is_later for token, logit in enumerate(raw)]
        found = self._processed(request, raw)
        if max(found) == -inf:
            return None
        token = self._chosen(request, found)
        shown = found if self.trace.spec.logprobs_mode.startswith("processed") else raw
        total = self._subtracted(shown)
        if self.breach == "same_context" and request.submit.request == SHIFTED:
            total -= 1
        order = sorted(range(vocab_size), key=lambda each: (-shown[each], each))[: max(0, params.num_logprobs - 1)]
        if self.breach == "logprob_ranks":
            order.reverse()
        if params.logprob_tokens:
            order = list(params.logprob_tokens)
        if self.breach == "logprob_tokens" and params.logprob_tokens:
            order.reverse()
        if self.breach == "logprob_sum":
            total -= 3
        ids = ([token] if params.logprobs_width else []) + order
        if self.breach == "logprobs" and len(request.output) == 1:
            ids = ids[1:]
        flat = tuple(value for each in ids for value in (each, shown[each] - total))
        return (vocab_size if self.breach == "vocabulary" and len(request.output) == 2 else token), flat

    def _subtracted(self, logits: Sequence[float]) -> float:
        """Return the log-sum-exp to subtract from logits; 0 if logits are delivered instead."""
        if self.trace.spec.logprobs_mode.endswith("logits"):
            return 0
        largest = max(logits)
        return largest + log(sum(exp(logit - largest) for logit in logits))

    def _of_prompt(self, request: Request) -> tuple[int | float, ...]:
        """Return the prompt logprobs, once the request has an output token."""
        width, prompt = request.submit.params.num_prompt_logprobs, request.submit.prompt
        assert isinstance(prompt, tuple)
        found: list[int | float] = []
        for place in range(1, len(prompt)) if width and request.delivered else ():
            logits = logits_after(prompt[:place], self.trace.spec.vocab_size)
            total = self._subtracted(logits)
            order = sorted(range(len(logits)), key=lambda each: (-logits[each], each))[: width - 1]
            own = prompt[place - (self.breach == "prompt_logprobs")]
            found += [value for each in (own, *order) for value in (each, logits[each] - total)]
        return tuple(found)

    def _processed(self, request: Request, logits: Sequence[float]) -> list[float]:
        """Return the logits after penalties and masks."""
        params, output = request.submit.params, request.output
        found = list(logits)
        for token, bias in params.logit_bias if self.breach != "logit_bias" else ():
            found[token] += bias
        for token in set(request.computed) if self.breach != "penalties" else ():
            if token < len(found):
                rate = params.repetition_penalty if found[token] > 0 else 1 / params.repetition_penalty
                times = output.count(token)
                found[token] = found[token] / rate - params.frequency_penalty * times
                found[token] -= params.presence_penalty if times else 0
        return [-inf if self._is_masked(request, token) else logit for token, logit in enumerate(found)]

    def _is_masked(self, request: Request, token: int) -> bool:
        submit, params, output = request.submit, request.submit.params, request.output
        masks = {
            "min_tokens": len(output) < params.min_tokens and token in submit.stop,
            "allowed_tokens": bool(params.allowed_tokens) and token not in params.allowed_tokens,
            "bad_words": any((*request.computed, token)[-len(word) :] == word for word in params.bad_words),
            "no_repeats": params.no_repeats and output[-1:] == [token],
            "grammar": bool(params.grammar) and token not in self._edges(request),
        }
        return any(masks[name] for name in masks if name != self.breach)

    def _edges(self, request: Request) -> dict[int, int] | range:
        """Return the edges of the current grammar state; all tokens after leaving the grammar."""
        edges: dict[int, int] = dict(request.submit.params.grammar[0])  # type: ignore[arg-type]
        for token in request.output:
            if token not in edges:
                return range(self.trace.spec.vocab_size)
            edges = dict(request.submit.params.grammar[edges[token]])  # type: ignore[arg-type]
        return edges

    def _chosen(self, request: Request, logits: Sequence[float]) -> int:
        """Return the likeliest token, or a sampled one."""
        params = request.submit.params
        order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
        if not params.temperature:
            is_plain = params.presence_penalty == params.frequency_penalty == 0 and params.repetition_penalty == 1
            is_second = self.breach == "greedy" and is_plain and len(request.output) % 3 == 1
            return order[1] if is_second and logits[order[1]] > -inf else order[0]
        if params.top_k and self.breach != "top_k":
            order = order[: params.top_k]
        weights = [exp((logits[token] - logits[order[0]]) / params.temperature) for token in order]
        if self.breach != "min_p":
            weights = [weight * (weight >= params.min_p) for weight in weights]
        if params.top_p < 1 and self.breach != "top_p":
            before = [sum(weights[:place]) < params.top_p * sum(weights) for place in range(len(order))]
            weights = [weight * is_in for weight, is_in in zip(weights, before, strict=True)]
        if self.breach == "leak" and self.trace.spec.depth > 1:
            weights[0] /= 2
        left = below(10**9, params.seed, "draw", "", len(request.computed)) / 10**9 * sum(weights)
        for token, weight in zip(order, weights, strict=True):
            left -= weight
            if left < 0:
                return token
        return order[0]

    def _end(self, request: Request) -> str | None:
        """Return the finish reason of a request after its latest token, if it ends."""
        submit, output = request.submit, request.output
        ends_word = bool(submit.params.grammar) and self._edges(request) in ({}, range(self.trace.spec.vocab_size))
        is_past_minimum = len(output) > submit.params.min_tokens and self.breach != "stop_words"
        ends_word |= is_past_minimum and any(tuple(output[-len(word) :]) == word for word in submit.params.stop_words)
        if (output[-1] in submit.stop and self.breach != "stop") or ends_word:
            return "length" if self.breach == "finish_reason" else "stop"
        room = min(submit.max_tokens, self.trace.spec.max_model_len - len(request.computed) + len(output))
        return "length" if len(output) >= room + (self.breach == "max_tokens") else None

    def drained(self) -> bool:
        return all(request.finish_reason is not None for request in self.requests.values())

    def outputs(self) -> dict[str, Output]:
        found = {
            name: Output(
                tuple(token for token, _ in request.delivered),
                request.finish_reason,
                tuple(value for _, logprobs in request.delivered for value in logprobs),
                self._of_prompt(request),
            )
            for name, request in self.requests.items()
        }
        if self.breach == "answer":
            found = {name: output for name, output in found.items() if len(output.tokens) != 3}
        return found

    def progress(self) -> Progress:
        return Progress(len(self.requests), self.num_commits, self.trace.spec.depth - 1)

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class SamplerBoxKind(TargetKind):
    """The kind of the tiny engine, with at most one violated contract.

    With a `wobble`, its logits have few values, and with async scheduling half of them are larger by this amount; the
    engine declares an accuracy of `logit_margin`.
    """

    breach: str = "none"
    wobble: float = 0.0
    logit_margin: float = 0.0

    @property
    def name(self) -> str:
        return "sampler_box"

    @property
    def capabilities(self) -> Capabilities:
        sizes = ("vocab_size", "max_model_len", "logprobs_mode")
        return Capabilities(
            events=("abort",),
            hooks=("before_schedule",),
            features=FEATURES,
            spec={"depth": (1, 2), **dict.fromkeys(sizes, ())},
            logit_margin=self.logit_margin,
        )

    def require(self, config: RunConfig) -> None:
        pass

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> SamplerBox:
        return SamplerBox(trace, self.breach, self.wobble)
