"""Tiny engine that returns only output tokens: no log, no lanes, no probes; optional bugs.

The token after `tokens` is their sum of squares plus one, modulo the vocabulary size. A step computes one output token
of each running request. At depth 2 (async scheduling), a token is appended one step late; the step between computes
from guessed tokens, and the engine must correct its result.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from scenarios.capabilities import Capabilities
from scenarios.events import Abort, AnyEvent, Hook, Submit
from scenarios.sampling import Output
from scenarios.trace import Trace
from workers.judge.judge import PLANES_OF_STEPS
from workers.record.engine_records import Drained, DrainedValues, EngineRecord, Opened, OpenedValues
from workers.record.evidence import HOST, RACES, Access, MissingOrder, Site
from workers.record.verdict import CRASH
from workers.targets.target import DeviceError, Progress, RunConfig, Target, TargetKind, Watch

RACE = MissingOrder(
    first=Access(lane="copy", op="d2h", step=0),
    second=Access(lane=HOST, op="access", step=0, how="read"),
    memory="rows",
)
SUBMIT = Site(function="submit", file="black_box.py")
Mistake = Literal["none", "neighbour", "ahead", "crash", "start", "endless", "idle", "leak", "heir"]


@dataclass(slots=True)
class Request:
    """One request: its tokens so far, its final length, and its finish reason."""

    tokens: list[int]
    num_prompt: int
    length: int
    row: int | None = None
    finish_reason: str | None = None


@dataclass(slots=True)
class BlackBox(Target):
    """One engine; `in_flight` has the (request, token) pairs of each step in flight."""

    trace: Trace
    mistake: Mistake
    shows_steps: bool = False
    requests: dict[str, Request] = field(default_factory=dict)
    in_flight: deque[list[tuple[Request, int]]] = field(default_factory=deque)
    num_commits: int = 0
    is_closed: bool = False
    has_raced: bool = False
    # For each batch row, the last token of its last finished request.
    last_tokens: dict[int, int] = field(default_factory=dict)
    probes: Mapping[str, int] = field(default_factory=dict)

    def submit(self, event: Submit, submit: int, script: list[int]) -> None:
        assert script == [], "its drafts are not scripted"
        before = self.requests.get(event.request)
        if before is None or before.finish_reason is not None:
            assert isinstance(event.prompt, tuple)
            tokens = list(event.prompt)
            self.requests[event.request] = Request(tokens, len(tokens), len(tokens) + event.max_tokens)

    def abort(self, event: Abort) -> None:
        request = self.requests.get(event.request)
        if request is not None and request.finish_reason is None:
            request.finish_reason = "abort"

    def apply(self, event: AnyEvent) -> None:
        raise AssertionError(f"{event.do} is not an event of this engine")

    def step(self, happen: Callable[[Hook], None]) -> None:
        happen("before_schedule")
        live = self._live()
        if self.mistake == "crash" and len(live) > 2:
            self.has_raced = True
            raise RuntimeError("three requests are too many")
        self.in_flight.append([(request, self._next(request, live)) for request in live.values()])
        if len(self.in_flight) >= self.trace.spec.depth:
            for request, token in self.in_flight.popleft():
                self._commit(request, token)

    def _live(self) -> dict[str, Request]:
        """Assign free batch rows to waiting requests, in order; return the requests with a row."""
        live = {name: request for name, request in self.requests.items() if request.finish_reason is None}
        free = sorted(set(range(self.trace.spec.max_num_seqs)) - {request.row for request in live.values()})
        for request, row in zip((each for each in live.values() if each.row is None), free, strict=False):
            request.row = row
        return {name: request for name, request in live.items() if request.row is not None}

    def _next(self, request: Request, live: Mapping[str, Request]) -> int:
        tokens = list(request.tokens)
        if self.mistake == "neighbour" and len(live) > 1:
            tokens += next(iter(live.values())).tokens[-1:]
        if self.mistake == "heir":
            tokens.append(self.last_tokens.get(request.row or 0, 0))
        if len(self.in_flight) and self.mistake == "ahead":
            tokens += tokens[-1:]
        return (1 + sum(token * token for token in tokens)) % self.trace.spec.vocab_size

    def _commit(self, request: Request, token: int) -> None:
        if self.mistake == "idle":
            self.has_raced = True
            return
        self.num_commits += 1
        is_stale = self.in_flight and len(request.tokens) > request.num_prompt and self.mistake != "ahead"
        if request.finish_reason is not None:
            return
        if is_stale:
            # The step in flight computed from guessed tokens: compute the token again.
            token = self._next(request, {})
        request.tokens.append(token)
        if len(request.tokens) >= request.length and self.mistake != "endless":
            request.finish_reason = "length"
            self.last_tokens[request.row or 0] = token

    def drained(self) -> bool:
        return all(request.finish_reason is not None for request in self.requests.values())

    def outputs(self) -> dict[str, Output]:
        assert not self.is_closed
        return {
            name: Output(tuple(request.tokens[request.num_prompt :]), request.finish_reason)
            for name, request in self.requests.items()
        }

    def take_engine_records(self) -> list[EngineRecord]:
        """Return sizes and leaks after draining; nothing if steps are not watched."""
        if not self.shows_steps or not self.drained():
            return []
        sizes = OpenedValues(vocab_size=self.trace.spec.vocab_size, block_size=1, state_sizes=[])
        leaks = DrainedValues(leaks={"rows": 2} if self.mistake == "leak" else {})
        return [
            Opened(step=-1, requests=(), values=sizes),
            Drained(step=self.num_commits, requests=(), values=leaks),
        ]

    def races(self) -> tuple[MissingOrder, ...]:
        """Return a race if the engine has crashed or makes no progress."""
        return (RACE,) if self.has_raced else ()

    def progress(self) -> Progress:
        return Progress(len(self.requests), self.num_commits, self.trace.spec.depth - 1)

    def close(self) -> None:
        assert not self.is_closed, "closed twice"
        self.is_closed = True


@dataclass(frozen=True, slots=True)
class BlackBoxKind(TargetKind):
    """The kind of the tiny engine, with at most one bug; `opened` has all engines opened."""

    # Requests enter the engine in `submit`, so failures of steps refer to it.
    places = {(CRASH, "step"): (SUBMIT,), ("liveness", "progress"): (SUBMIT,)}

    mistake: Mistake = "none"
    opened: list[BlackBox] = field(default_factory=list)

    @property
    def name(self) -> str:
        return "black_box"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            events=("abort",),
            hooks=("before_schedule",),
            spec={"depth": (1, 2), "vocab_size": (), "max_num_seqs": ()},
            planes=(*PLANES_OF_STEPS, RACES),
        )

    def require(self, config: RunConfig) -> None:
        if config.device != "sim":
            raise DeviceError(f"{config.device}: the black box runs on sim alone")

    def open(self, trace: Trace, config: RunConfig, watch: Watch) -> BlackBox:
        self.require(config)
        if self.mistake == "start":
            raise RuntimeError("no memory is left")
        box = BlackBox(trace, self.mistake, watch.steps)
        self.opened.append(box)
        return box
