"""Schedulers and engines that one of vLLM's own tests makes, observed until the test ends.

A scheduler without a runner is observed as long as it is used as an engine uses it: what a test makes up instead
(plans, results, counts of its own) says nothing about vLLM, and what comes behind it is not judged.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from scenarios.events import Schedule
from scenarios.spec import ENGINE
from workers.targets.child.inside.observations import Observations
from workers.targets.child.inside.readback import AtOnce, readback_on
from workers.targets.child.inside.replacements import Replacement, Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.drafting import NO_DRAFTER
from workers.targets.vllm.inside.hooks import WATCHED
from workers.targets.vllm.inside.plans import PlanRecorder
from workers.targets.vllm.inside.recorder import StepRecorder
from workers.targets.vllm.inside.session import memory_of
from workers.targets.vllm.inside.transfer.groups import group_numbers, has_state
from workers.targets.vllm.names import RunnerName

# Where the classes of model runners are.
_RUNNERS: Mapping[str, RunnerName] = {"vllm.v1.worker.gpu_model_runner": "v1", "vllm.v1.worker.gpu.model_runner": "v2"}
# Calls by which a scheduler changes; what changes between them a test has changed.
_CALLS = ("schedule", "update_from_output", "add_request", "finish_requests", "reset_prefix_cache")


class Numbers:
    """Numbers of requests, in the order in which they were first seen."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


@dataclass(slots=True)
class Shown:
    """What a scheduler or an engine showed in a test.

    `names` are its requests by number. It `has_runner` if all of its inputs are shown, and `is_drained` if it had
    nothing left to do. `left` says why a scheduler was not judged to the end, if it was not.
    """

    names: Sequence[str]
    seen: Sequence[Message]
    has_runner: bool
    is_drained: bool
    is_asynchronous: bool = False
    left: str = ""


class WatchedScheduler:
    """A scheduler that a test has made, without a runner."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._numbers = scheduler, Numbers()
        self._seen: list[Message] = []
        self._left = _unjudged(scheduler)
        self._num_open = 0
        if self._left:
            return
        observations = Observations(AtOnce(), self._numbers, lambda point, name: (name,), self._seen, ENGINE)
        self._recorder = PlanRecorder(scheduler, self._numbers, observations)
        self._recorder.opened(scheduler.vllm_config, NO_DRAFTER)
        self._attention = group_numbers(scheduler.kv_cache_config)[0]
        # Plans whose results are to come, the tables of blocks as a runner is told them, and rows that sample nothing.
        self._flying: deque[tuple[Any, set[str]]] = deque()
        self._told: dict[str, list[int]] = {}
        self._state = self._seen_from_outside()
        for name in _CALLS:
            setattr(scheduler, name, self._observed(name, getattr(scheduler, name)))

    def leave(self, why: str) -> None:
        """Observe it no further."""
        if not self._left:
            self._left = why
            self._recorder.stop()

    def shown(self) -> Shown:
        """Return what it has shown, and observe it no further."""
        if not self._left and self._state != self._seen_from_outside():
            self.leave("changed from outside")
        is_drained = not (self._left or self._flying or self._scheduler.requests)
        if is_drained:
            self._recorder.drained({})
        left, self._left = self._left, "the test has ended"
        return Shown(self._numbers.names, self._seen, False, is_drained, left=left)

    def _seen_from_outside(self) -> object:
        """Return what changes in the scheduler's own calls alone."""
        free = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        counts = [(each.request_id, each.num_computed_tokens) for each in self._scheduler.running]
        return free, counts, list(self._scheduler.requests)

    def _observed(self, name: str, before: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(before)
        def call(*arguments: Any, **options: Any) -> Any:
            if self._left:
                return before(*arguments, **options)
            if not self._num_open and self._state != self._seen_from_outside():
                self.leave("changed from outside")
            if name == "update_from_output" and not self._left:
                self._land(*arguments, **options)
            self._num_open += 1
            try:
                result = before(*arguments, **options)
            except BaseException:
                self.leave("ended by an exception")
                raise
            finally:
                self._num_open -= 1
            if name == "schedule" and not self._left:
                self._plan(result)
            if not self._num_open and not self._left:
                self._state = self._seen_from_outside()
            return result

        return call

    def _plan(self, plan: Any) -> None:
        """Note a plan, and what a runner that carries it out knows by then."""
        for new in plan.scheduled_new_reqs:
            self._told[new.req_id] = list(new.block_ids[self._attention])
        cached = plan.scheduled_cached_reqs
        for name, blocks in zip(cached.req_ids, cached.new_block_ids, strict=True):
            if name in cached.resumed_req_ids:
                self._told[name] = []
            if blocks is not None:
                self._told[name] = self._told[name] + list(blocks[self._attention])
        names = list(plan.num_scheduled_tokens)
        if names:
            chunks = {name for name in names if self._scheduler.requests[name].is_prefill_chunk}
            self._flying.append((plan, chunks))
        counts = list(plan.num_scheduled_tokens.values())
        self._recorder.scheduled(plan, num_tokens=counts, told=[self._told[name] for name in names])

    def _land(self, plan: Any, result: Any) -> None:
        """Observe it no further unless results are what a runner may make of their plan."""
        if not plan.num_scheduled_tokens and not result.sampled_token_ids:
            return
        if not self._flying or self._flying[0][0] is not plan:
            self.leave("results out of turn")
            return
        _, chunks = self._flying.popleft()
        rows = dict(zip(result.req_ids, result.sampled_token_ids, strict=False))
        if rows.keys() != plan.num_scheduled_tokens.keys():
            self.leave("results of other requests")
            return
        for name, tokens in rows.items():
            num_drafts = len(plan.scheduled_spec_decode_tokens.get(name, ()))
            if len(tokens) > 1 + num_drafts or (len(tokens) > 0) == (name in chunks):
                self.leave("results that no runner has")


def _unjudged(scheduler: Any) -> str:
    """Return why plans of a scheduler are not judged, if they are not."""
    if scheduler.connector is not None:
        return "it has a connector"
    if scheduler.is_encoder_decoder or not scheduler.num_sampled_tokens_per_step:
        return "its model samples nothing, or encodes"
    if scheduler.dcp_world_size * scheduler.pcp_world_size > 1:
        return "its context is divided among ranks"
    if scheduler.prefix_replay_tokens:
        return "it computes ends of hits again, in the blocks that these have"
    if all(map(has_state, scheduler.kv_cache_config.kv_cache_groups)):
        return "it has no blocks of tokens"
    return ""


class WatchedEngine:
    """An engine that a test has made in its own process, with its runner."""

    def __init__(self, engine: Any, runner: RunnerName, step: Callable[[int], None]) -> None:
        self._engine, self._numbers = engine, Numbers()
        self._recorder = StepRecorder(engine, runner, readback_on("sim"), self._numbers, [], ENGINE)
        self._num_steps, self._step = 0, step
        self._schedule, self._post_step = engine.scheduler.schedule, engine.post_step
        engine.scheduler.schedule, engine.post_step = self._observed_schedule, self._observed_end

    def shown(self) -> Shown:
        """Return what it has shown, once everything has run, and observe it no further."""
        self._recorder.finish()
        engine = self._engine
        is_drained = not (engine.scheduler.has_requests() or engine.batch_queue)
        if is_drained:
            self._recorder.drained({})
        self._recorder.release()
        engine.scheduler.schedule, engine.post_step = self._schedule, self._post_step
        seen, is_asynchronous = self._recorder.take(), engine.batch_queue is not None
        return Shown(self._numbers.names, seen, True, is_drained, is_asynchronous)

    def _observed_schedule(self, *arguments: Any, **options: Any) -> Any:
        self._step(self._num_steps)
        self._num_steps += 1
        plan = self._schedule(*arguments, **options)
        self._recorder.scheduled(plan)
        return plan

    def _observed_end(self, *arguments: Any, **options: Any) -> None:
        self._post_step(*arguments, **options)
        self._recorder.stepped()


def _do_nothing() -> None:
    """Do nothing."""


class WatchedTests:
    """Tests of vLLM's own, one after the other, each a trace of the simulated device under a schedule."""

    def __init__(self, device: SimulatedDevice, schedule: Schedule, version: Version) -> None:
        self._device, self._schedule = device, schedule
        self._schedulers: list[WatchedScheduler] = []
        self._engines: list[WatchedEngine] = []
        self._races: list[Message] = []
        for module, name, made in (
            ("vllm.v1.core.sched.scheduler", "Scheduler.__init__", self._of_scheduler),
            ("vllm.v1.engine.core", "EngineCore.__init__", self._of_engine),
        ):
            Replacement(module, name, "what a test makes is observed", made).apply(version)
        for hooks in WATCHED:
            hooks.check(version)
        reason = "between tests caches of pinned memory are emptied, of which this device has none: PyTorch would crash"
        Replacement("torch.accelerator", "empty_host_cache", reason, lambda before: _do_nothing).apply(version)

    def begin(self) -> None:
        """Begin a test."""
        self._schedulers, self._engines, self._races = [], [], []
        self._watch({})

    def end(self) -> tuple[list[Message], list[Shown]]:
        """End a test: let everything run, and return its races, and what schedulers and engines have shown."""
        try:
            self._races += self._device.report()["races"]
        except BaseException:
            self._device.abandon()
            raise
        finally:
            shown = [each.shown() for each in self._schedulers] + [each.shown() for each in self._engines]
            self._schedulers, self._engines = [], []
        return self._races, shown

    def _watch(self, memory: Mapping[str, object]) -> None:
        self._device.begin(memory, self._schedule, races=True, digests=False, writers=False)

    def _of_scheduler(self, before: Callable[..., None]) -> Callable[..., None]:
        @wraps(before)
        def make(scheduler: Any, *arguments: Any, **options: Any) -> None:
            before(scheduler, *arguments, **options)
            self._schedulers.append(WatchedScheduler(scheduler))

        return make

    def _of_engine(self, before: Callable[..., None]) -> Callable[..., None]:
        @wraps(before)
        def make(engine: Any, *arguments: Any, **options: Any) -> None:
            # An engine is made as elsewhere: what it loads and captures is no step.
            self._races += self._device.report()["races"]
            self._device.idle()
            num_schedulers = len(self._schedulers)
            before(engine, *arguments, **options)
            worker = getattr(getattr(engine.model_executor, "driver_worker", None), "worker", None)
            runner = _RUNNERS.get(type(getattr(worker, "model_runner", None)).__module__)
            if runner is None or engine.scheduler.connector is not None:
                self._watch({})
                return
            for each in self._schedulers[num_schedulers:]:
                each.leave("its engine is observed")
            del self._schedulers[num_schedulers:]
            self._watch(memory_of(engine))
            self._engines.append(WatchedEngine(engine, runner, self._device.step))

        return make
