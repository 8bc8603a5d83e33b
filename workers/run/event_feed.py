"""Event feed: counts ticks (steps) and passes trace events to the engine at their hooks."""

from collections.abc import Mapping, Sequence
from itertools import count

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Continuation, EndSession, Hook, Pausing, Submit, prompt_tokens
from scenarios.trace import Trace
from workers.judge.contracts.judge import Contracts
from workers.oracle.incremental_values import script_of
from workers.oracle.model_values import ModelValueCache
from workers.targets.target import Target


class EventQueue:
    """Events of a trace by tick and hook (point of the step), with the numbers of submits."""

    def __init__(self, events: Sequence[AnyEvent]) -> None:
        self.last_tick = max((event.tick for event in events), default=-1)
        self._events: dict[tuple[int, Hook], list[tuple[AnyEvent, int]]] = {}
        num_submits = 0
        for event in events:
            self._events.setdefault((event.tick, event.at), []).append((event, num_submits))
            num_submits += isinstance(event, Submit)

    def at(self, tick: int, hook: Hook) -> Sequence[tuple[AnyEvent, int]]:
        """Return the events of one hook of a step, in order."""
        return self._events.get((tick, hook), ())


class EventFeed:
    """Drives an engine step by step, and applies the events of the trace at their hooks.

    `contracts` receives each submit and abort, with the output before and after it. `scripts` has the draft script of
    each submit, empty for an engine whose draft tokens are not scripted. `prompts` has, by number of the submit, the
    prompt that a continuation or a session part got in this run, None if the request that it continues never came.
    """

    def __init__(
        self, trace: Trace, target: Target, scripts: Sequence[list[int]], contracts: Contracts | None = None
    ) -> None:
        self.tick = 0
        self.events = EventQueue(trace.events)
        self.prompts: dict[int, tuple[int, ...] | None] = {}
        self._trace = trace
        # The prompt of the last request of each name.
        self._last: dict[str, tuple[int, ...]] = {}
        self._target = target
        self._scripts = scripts
        self._contracts = contracts
        self._has_continuations = any(
            isinstance(event.prompt, Continuation) or event.session for event in trace.submits()
        )
        # The last part of each session, and the parts that wait for the end of the named part before.
        self._sessions: dict[str, str] = {}
        self._waiting: list[tuple[Submit, int, str]] = []

    def drained(self) -> bool:
        """Return whether no event, live request or step in flight is left."""
        return self.tick > self.events.last_tick and self._target.drained()

    def step(self) -> None:
        """Apply the events of this tick around one engine step."""
        self._target.step(self._apply_events)
        self._begin_session_inputs()
        self.tick += 1

    def _apply_events(self, hook: Hook) -> None:
        for event, submit in self.events.at(self.tick, hook):
            match event:
                case Submit():
                    self._submit(event, submit)
                case Abort():
                    if self._contracts is not None:
                        self._contracts.aborted(event, self._target.outputs().get(event.request))
                    self._target.abort(event)
                case _:
                    if isinstance(event, Pausing) and event.mode == "abort" and self._contracts is not None:
                        self._contracts.all_aborted(self._target.outputs())
                    self._target.apply(event)

    def _submit(self, event: Submit, submit: int) -> None:
        contracts, target, name = self._contracts, self._target, event.request
        if event.session is not None:
            part_before = self._sessions.get(event.session)
            self._sessions[event.session] = name
            if part_before is not None:
                self.prompts[submit] = None
                self._waiting.append((event, submit, part_before))
                target.submit(event, submit, self._scripts[submit])
                self._begin_session_inputs()
                return
        if isinstance(event.prompt, Continuation):
            prompt = self.prompts[submit] = self._continuing_prompt(event, event.prompt)
            if prompt is None:
                return
            event = event.model_copy(update={"prompt": prompt})
        if self._has_continuations:
            alive = target.outputs().get(name)
            if alive is None or alive.finish_reason is not None:
                assert isinstance(event.prompt, tuple), "the trace is explicit"
                self._last[name] = event.prompt
        is_again = contracts is not None and contracts.is_known(name)
        before = target.outputs().get(name) if is_again else None
        target.submit(event, submit, self._scripts[submit])
        if contracts is not None:
            contracts.submitted(event, before, target.outputs().get(name) if is_again else None)

    def _begin_session_inputs(self) -> None:
        """Pass the full prompt of each session input that has begun to `contracts`."""
        if not self._waiting:
            return
        for part in tuple(self._waiting):
            event, submit, before = part
            outputs = self._target.outputs()
            if event.request not in outputs:
                continue
            assert isinstance(event.prompt, tuple), "the trace is explicit"
            # A session drops the last output token of a part: its KV cache entry was not computed.
            prompt = (*self._last[before], *outputs[before].tokens[:-1], *event.prompt)
            self.prompts[submit] = self._last[event.request] = prompt
            if self._contracts is not None:
                self._contracts.submitted(event.model_copy(update={"prompt": prompt}), None, None)
            self._waiting.remove(part)

    def _continuing_prompt(self, event: Submit, turn: Continuation) -> tuple[int, ...] | None:
        """Return the prompt that continues another request, cut to the engine's limits.

        Return None if the request that it continues was never submitted, or if no token fits.
        """
        before, spec = self._last.get(turn.continues), self._trace.spec
        if before is None:
            return None
        own = prompt_tokens(event, self._trace.seed, spec.vocab_size)
        prompt = (*before, *self._target.outputs()[turn.continues].tokens, *own)[: spec.max_model_len - 1]
        while prompt and spec.blocks_needed(len(prompt), event.max_tokens) > spec.num_blocks:
            prompt = prompt[:-1]
        return prompt or None


def with_prompts(trace: Trace, prompts: Mapping[int, tuple[int, ...] | None]) -> Trace:
    """Return the trace with these prompts in place of continuations of other requests.

    A continuation without a prompt is removed.
    """
    if not prompts and not any(event.session for event in trace.submits()):
        return trace
    numbers = count()
    events: list[AnyEvent] = []
    for event in trace.events:
        if not isinstance(event, Submit):
            events += [] if isinstance(event, EndSession) else [event]
            continue
        prompt = prompts.get(next(numbers), None if isinstance(event.prompt, Continuation) else event.prompt)
        if prompt is not None:
            events.append(event.model_copy(update={"prompt": prompt, "session": None}))
    return trace.model_copy(update={"events": tuple(events)})


def scripts_of(trace: Trace, value_cache: ModelValueCache, capabilities: Capabilities) -> list[list[int]]:
    """Return the scripted draft tokens of each submit; empty if the engine drafts by itself."""
    submits = trace.submits()
    if not capabilities.scripts_drafts:
        return [[] for _ in submits]
    return [script_of(event, trace.spec, value_cache) for event in submits]
