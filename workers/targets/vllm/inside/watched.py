"""Observer of the schedulers and engines that vLLM's own tests create.

A scheduler without a model runner is observed while the test uses it like an engine. Once a test invents plans, results
or counts, they prove nothing about vLLM, and the rest of the test is not judged.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

from scenarios.events import Schedule
from scenarios.spec import ENGINE
from workers.targets.child.inside.readback import readback_on
from workers.targets.child.inside.replacements import Replacement, Version
from workers.targets.child.inside.simulated_device import SimulatedDevice
from workers.targets.child.messages import Message
from workers.targets.vllm.inside.hooks import WATCHED
from workers.targets.vllm.inside.plans import SchedulerRecorder
from workers.targets.vllm.inside.recorder import StepRecorder
from workers.targets.vllm.inside.session import memory_of
from workers.targets.vllm.inside.transfer.groups import has_state
from workers.targets.vllm.names import RunnerName

# Modules of the model runner classes.
_RUNNERS: Mapping[str, RunnerName] = {"vllm.v1.worker.gpu_model_runner": "v1", "vllm.v1.worker.gpu.model_runner": "v2"}
# Methods that change a scheduler; changes between their calls come from the test.
_CALLS = ("schedule", "update_from_output", "add_request", "finish_requests", "reset_prefix_cache")


class Numbers:
    """Numbers for request ids, in the order of their first use."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def __call__(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)


@dataclass(slots=True)
class WatchedResult:
    """The recorded steps of one scheduler or engine that a vLLM test created.

    `names` are request ids by number. `has_runner`: the model inputs are observed too. `is_drained`: no request was
    left. `left` is the reason for an early end of the observation of a scheduler, "" if there was none.
    """

    names: Sequence[str]
    seen: Sequence[Message]
    has_runner: bool
    is_drained: bool
    is_asynchronous: bool = False
    left: str = ""


class WatchedScheduler:
    """Observes a scheduler that a vLLM test drives without a model runner."""

    def __init__(self, scheduler: Any) -> None:
        self._scheduler, self._numbers = scheduler, Numbers()
        self._seen: list[Message] = []
        self._left = _why_unjudged(scheduler)
        self._call_depth = 0
        if self._left:
            return
        self._recorder = SchedulerRecorder.of_scheduler(scheduler, self._numbers, self._seen, ENGINE)
        # Plans without results yet, with prefill-chunk rows, which sample nothing.
        self._in_flight: deque[tuple[Any, set[str]]] = deque()
        self._state = self._own_state()
        for name in _CALLS:
            setattr(scheduler, name, self._observed(name, getattr(scheduler, name)))

    def stop(self, why: str) -> None:
        """Stop recording; the first reason `why` is kept."""
        if not self._left:
            self._left = why
            self._recorder.stop()

    def result(self) -> WatchedResult:
        """Stop recording, and return what was recorded."""
        if not self._left and self._state != self._own_state():
            self.stop("changed from outside")
        is_drained = not (self._left or self._in_flight or self._scheduler.requests)
        if is_drained:
            self._recorder.drained({})
        left, self._left = self._left, "the test has ended"
        return WatchedResult(self._numbers.names, self._seen, False, is_drained, left=left)

    def _own_state(self) -> object:
        """Return free blocks, counts and requests, to detect changes that the test makes itself."""
        free = self._scheduler.kv_cache_manager.block_pool.get_num_free_blocks()
        counts = [(each.request_id, each.num_computed_tokens) for each in self._scheduler.running]
        return free, counts, list(self._scheduler.requests)

    def _observed(self, name: str, before: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(before)
        def call(*arguments: Any, **options: Any) -> Any:
            if self._left:
                return before(*arguments, **options)
            if not self._call_depth and self._state != self._own_state():
                self.stop("changed from outside")
            if name == "update_from_output" and not self._left:
                self._check_results(*arguments, **options)
            self._call_depth += 1
            try:
                result = before(*arguments, **options)
            except BaseException:
                self.stop("ended by an exception")
                raise
            finally:
                self._call_depth -= 1
            if name == "schedule" and not self._left:
                self._plan(result)
            if not self._call_depth and not self._left:
                self._state = self._own_state()
            return result

        return call

    def _plan(self, plan: Any) -> None:
        """Record a scheduler output, with the block tables that a runner would have."""
        names = list(plan.num_scheduled_tokens)
        if names:
            chunks = {name for name in names if self._scheduler.requests[name].is_prefill_chunk}
            self._in_flight.append((plan, chunks))
        self._recorder.scheduled(plan)

    def _check_results(self, plan: Any, result: Any) -> None:
        """Stop recording if the test passes results that no runner would return for this step."""
        if not plan.num_scheduled_tokens and not result.sampled_token_ids:
            return
        if not self._in_flight or self._in_flight[0][0] is not plan:
            self.stop("results out of turn")
            return
        _, chunks = self._in_flight.popleft()
        rows = dict(zip(result.req_ids, result.sampled_token_ids, strict=False))
        if rows.keys() != plan.num_scheduled_tokens.keys():
            self.stop("results of other requests")
            return
        for name, tokens in rows.items():
            num_drafts = len(plan.scheduled_spec_decode_tokens.get(name, ()))
            if len(tokens) > 1 + num_drafts or (len(tokens) > 0) == (name in chunks):
                self.stop("results that no runner would return")


def _why_unjudged(scheduler: Any) -> str:
    """Return why a scheduler's outputs cannot be judged; "" if they can."""
    if scheduler.connector is not None:
        return "it has a KV connector"
    if scheduler.is_encoder_decoder or not scheduler.num_sampled_tokens_per_step:
        return "its model is an encoder, or samples nothing"
    if scheduler.dcp_world_size * scheduler.pcp_world_size > 1:
        return "it uses context parallelism"
    if scheduler.prefix_replay_tokens:
        return "it recomputes the end of a prefix-cache hit in the hit's own blocks"
    if all(map(has_state, scheduler.kv_cache_config.kv_cache_groups)):
        return "no KV-cache group holds tokens"
    return ""


class WatchedEngine:
    """Observes an engine with a model runner that a vLLM test created in this process."""

    def __init__(self, engine: Any, runner: RunnerName, step: Callable[[int], None]) -> None:
        self._engine, self._numbers = engine, Numbers()
        self._recorder = StepRecorder(engine, runner, readback_on("sim"), self._numbers, [], ENGINE)
        self._num_steps, self._step = 0, step
        self._schedule, self._post_step = engine.scheduler.schedule, engine.post_step
        engine.scheduler.schedule, engine.post_step = self._observed_schedule, self._observed_end

    def result(self) -> WatchedResult:
        """Wait for all device work, stop recording, and return what was recorded."""
        self._recorder.finish()
        engine = self._engine
        is_drained = not (engine.scheduler.has_requests() or engine.batch_queue)
        if is_drained:
            self._recorder.drained({})
        self._recorder.release()
        engine.scheduler.schedule, engine.post_step = self._schedule, self._post_step
        seen, is_asynchronous = self._recorder.take(), engine.batch_queue is not None
        return WatchedResult(self._numbers.names, seen, True, is_drained, is_asynchronous)

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
    """Do nothing: the simulated device has no cache of pinned memory to empty."""


class WatchedTests:
    """Observes vLLM's own tests, each as one trace on the simulated device."""

    def __init__(self, device: SimulatedDevice, schedule: Schedule, version: Version) -> None:
        self._device, self._schedule = device, schedule
        self._schedulers: list[WatchedScheduler] = []
        self._engines: list[WatchedEngine] = []
        self._races: list[Message] = []
        for module, name, made in (
            ("vllm.v1.core.sched.scheduler", "Scheduler.__init__", self._of_scheduler),
            ("vllm.v1.engine.core", "EngineCore.__init__", self._of_engine),
        ):
            Replacement(module, name, "schedulers and engines of a test are observed", made).apply(version)
        for hooks in WATCHED:
            hooks.check(version)
        reason = "tests empty the cache of pinned memory, which this device does not have: PyTorch would crash"
        Replacement("torch.accelerator", "empty_host_cache", reason, lambda before: _do_nothing).apply(version)

    def begin(self) -> None:
        """Begin a test: observe races, and the schedulers and engines that it creates."""
        self._schedulers, self._engines, self._races = [], [], []
        self._watch({})

    def end(self) -> tuple[list[Message], list[WatchedResult]]:
        """Run the remaining device work of a test; return its races and records."""
        try:
            self._races += self._device.report()["races"]
        except BaseException:
            self._device.abandon()
            raise
        finally:
            shown = [each.result() for each in self._schedulers] + [each.result() for each in self._engines]
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
            # Loading and capture are not observed, as for other engines.
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
                each.stop("its engine is observed")
            del self._schedulers[num_schedulers:]
            self._watch(memory_of(engine))
            self._engines.append(WatchedEngine(engine, runner, self._device.step))

        return make
