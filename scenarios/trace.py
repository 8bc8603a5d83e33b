"""Trace: the complete input of a run; nothing else can change the verdict."""

import difflib
from collections import Counter
from dataclasses import dataclass, replace

from pydantic import ValidationInfo, model_validator

from scenarios.events import (
    HOOKS,
    LANES,
    AnyEvent,
    Continuation,
    EndSession,
    Schedule,
    Submit,
    accept_bits,
    prompt_tokens,
)
from scenarios.features import refusals
from scenarios.probes import PROBES
from scenarios.spec import RATE_STEPS, Count, EngineSpec, Index, Name, Value


@dataclass(frozen=True, slots=True)
class Problem:
    """An error in a trace: its path of keys and indexes, and a message."""

    path: tuple[str | int, ...]
    message: str


class Trace(Value):
    """Complete input of a run: specification, events, schedule, faults, expected probe counts.

    `expect` maps a probe to the minimum number of times that it must be counted; with fewer the run is `Vacuous`.
    """

    spec: EngineSpec = EngineSpec()
    seed: Index = 0
    events: tuple[AnyEvent, ...]
    schedule: Schedule = Schedule()
    faults: tuple[Name, ...] = ()
    expect: dict[Name, Count] = {}

    @model_validator(mode="after")
    def _is_possible(self, info: ValidationInfo) -> "Trace":
        """Raise ValueError for the first problem; do nothing if the caller collects all problems."""
        if not (info.context or {}).get("problems_listed"):
            for problem in problems(self):
                raise ValueError(f"{'.'.join(map(str, problem.path))}: {problem.message}")
        return self

    def submits(self) -> tuple[Submit, ...]:
        """Return the submits in the order of `events`."""
        return tuple(event for event in self.events if isinstance(event, Submit))

    def submitted(self) -> tuple[Submit, ...]:
        """Return the submits in the order in which the engine receives them: by tick and hook."""
        return tuple(sorted(self.submits(), key=lambda submit: (submit.tick, HOOKS.index(submit.at))))

    def explicit(self) -> "Trace":
        """Return the trace with prompts as token ids and acceptance scripts as bits."""
        events = tuple(self._explicit_event(event) for event in self.events)
        return self.model_copy(update={"events": events})

    def _explicit_event(self, event: AnyEvent) -> AnyEvent:
        if not isinstance(event, Submit):
            return event
        accept = accept_bits(event, self.seed, self.spec.num_speculative_tokens)
        if isinstance(event.prompt, Continuation):
            # The prompt contains output tokens of another request, known only when the request is submitted.
            return event.model_copy(update={"accept": accept})
        prompt = prompt_tokens(event, self.seed, self.spec.vocab_size)
        return event.model_copy(update={"prompt": prompt, "accept": accept})


def problems(trace: Trace) -> list[Problem]:
    """Return the problems of a well-formed trace because of which no engine can run it."""
    found = _spec_problems(trace)
    for index, event in enumerate(trace.events):
        if isinstance(event, Submit):
            found += _submit_problems(event, index, trace.spec)
    order = trace.schedule.order
    if sorted(order) != sorted(LANES):
        message = f"order is {', '.join(order)}; it must name each of {', '.join(LANES)} once"
        found.append(Problem(("schedule", "order"), message))
    return found + _session_problems(trace) + _expect_problems(trace)


def _session_problems(trace: Trace) -> list[Problem]:
    """Return the problems of streaming sessions: request names, prompts, ends, total lengths."""
    found, spec = [], trace.spec
    names = Counter(submit.request for submit in trace.submits())
    before: dict[str, int] = {}
    in_order = sorted(enumerate(trace.events), key=lambda each: (each[1].tick, HOOKS.index(each[1].at)))
    for index, part in in_order:
        if isinstance(part, EndSession) and part.session not in before:
            found.append(Problem(("events", index, "session"), f"session {part.session!r} has no part by then"))
        if not isinstance(part, Submit) or part.session is None:
            continue
        if names[part.request] > 1:
            message = f"{part.request!r} is the name of several requests; a session part needs a unique name"
            found.append(Problem(("events", index, "request"), message))
        if isinstance(part.prompt, Continuation):
            message = "the prompt continues a request; a session part continues the previous part of its session"
            found.append(Problem(("events", index, "prompt"), message))
        length = before.get(part.session, 0) + part.prompt_length
        needed = spec.blocks_needed(length, part.max_tokens)
        if length >= spec.max_model_len or needed > spec.num_blocks:
            room = f"max_model_len is {spec.max_model_len}, num_blocks {spec.num_blocks}"
            message = f"session {part.session!r} can have {length} tokens by then, in {needed} blocks; {room}"
            found.append(Problem(("events", index, "session"), message))
        before[part.session] = length + part.max_tokens
    return found


def _spec_problems(trace: Trace) -> list[Problem]:
    spec = trace.spec
    least = 1 + spec.num_speculative_tokens
    found = [Problem(("spec", rule.key), rule.message(spec)) for rule in refusals(spec, trace.faults)]
    if spec.max_num_batched_tokens < least:
        message = f"max_num_batched_tokens is {spec.max_num_batched_tokens}; one decode needs 1 + K = {least}"
        found.append(Problem(("spec", "max_num_batched_tokens"), message))
    for key, least in (("vocab_tile", 1), ("vocab_block", spec.vocab_tile)):
        size = getattr(spec, key)
        if size & (size - 1) or size < least:
            message = f"{key} is {size}; allowed are powers of two" + (f" from vocab_tile = {least} on" * (least > 1))
            found.append(Problem(("spec", key), message))
    return found + _rate_problems(spec)


def _rate_problems(spec: EngineSpec) -> list[Problem]:
    if bool(spec.synthetic_rates) != (spec.sampling == "synthetic"):
        wanted = "at least one rate" if spec.sampling == "synthetic" else "none"
        message = f"synthetic_rates has {len(spec.synthetic_rates)} rates; sampling {spec.sampling} needs {wanted}"
        return [Problem(("spec", "synthetic_rates"), message)]
    return [
        Problem(("spec", "synthetic_rates", index), f"rate {rate}; allowed are multiples of 1/{RATE_STEPS}")
        for index, rate in enumerate(spec.synthetic_rates)
        if not (rate * RATE_STEPS).is_integer()
    ]


def _expect_problems(trace: Trace) -> list[Problem]:
    unknown = [probe for probe in trace.expect if probe not in PROBES]
    found = [Problem(("expect", probe), f"unknown probe {probe!r}") for probe in unknown]
    if unknown:
        # Suggest a similar name for the first unknown probe only: thousands of searches would be slow.
        near = difflib.get_close_matches(unknown[0], PROBES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        found[0] = replace(found[0], message=f"{found[0].message}; {hint}allowed are {', '.join(sorted(PROBES))}")
    return found


def _submit_problems(event: Submit, index: int, spec: EngineSpec) -> list[Problem]:
    found = []
    prompt, length = event.prompt, event.prompt_length
    at = ("events", index)
    if length >= spec.max_model_len:
        most = spec.max_model_len - 1
        message = f"the prompt has {length} tokens; max_model_len = {spec.max_model_len} allows {most}"
        found.append(Problem((*at, "prompt"), message))
    for key, tokens in (("prompt", prompt if isinstance(prompt, tuple) else ()), ("stop", event.stop)):
        for position, token in enumerate(tokens):
            if token >= spec.vocab_size:
                message = f"token id {token}; allowed are 0 to vocab_size - 1 = {spec.vocab_size - 1}"
                found.append(Problem((*at, key, position), message))
    found += [Problem((*at, "params", *where), text) for where, text in event.params.problems(spec.vocab_size)]
    needed = spec.blocks_needed(length, event.max_tokens)
    if length < spec.max_model_len and needed > spec.num_blocks:
        message = f"request {event.request!r} can never fit: it needs {needed} blocks, num_blocks is {spec.num_blocks}"
        found.append(Problem((*at, "request"), message))
    return found
