"""CUDA lanes: computed delays; GPU captures equal the definitions', without extra work."""

from collections import Counter
from functools import cache
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
import torch

from scenarios import codec
from scenarios.events import LANES as SCHEDULED
from scenarios.events import Hold, Label, Schedule, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.captures import Captures
from workers.engine.runner import LANES
from workers.lanes import cuda as lanes_of_cuda
from workers.lanes.cuda import CudaMachine, cuda, cycles_per_microsecond, host_delay, lane_delay
from workers.lanes.policies import HOST, Eager, LaneOrder, Lazy, Random
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.engine_run import Options, Run
from workers.targets.specstorm import specstorm_target
from workers.targets.target import DeviceError, RunConfig

SMOKE = sorted((Path(__file__).resolve().parents[3] / "scenarios" / "smoke").glob("*.yaml"))
VALUE_CACHE, CUDA = ModelValueCache(), RunConfig(device="cuda")
SCHEDULES = (
    Schedule(policy="lazy"),
    Schedule(policy="lane_order", order=SCHEDULED),
    Schedule(policy="lane_order", order=SCHEDULED[::-1]),
    Schedule(policy="random", seed=3),
)
DECODES = Trace(
    spec=EngineSpec(depth=2),
    events=tuple(Submit(tick=0, request=f"r{index}", prompt=(1, 2, 3), max_tokens=100) for index in range(2)),
).explicit()

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")


def test_eager_lane_delay_is_zero_and_lazy_delay_is_not() -> None:
    for lane in LANES:
        assert lane_delay(Eager(), lane, "attention", 3) == 0
        assert lane_delay(Lazy(), lane, "attention", 3) > 0
    assert host_delay(Eager(), "schedule", 3) == host_delay(Lazy(), "schedule", 3) == 0


def test_lane_order_delays_grow_with_rank() -> None:
    for order in list(permutations(SCHEDULED))[::7]:
        policy = LaneOrder(order)
        delays = [lane_delay(policy, lane, "attention", 0) for lane in order if lane != HOST]
        assert delays == sorted(delays)
        assert len(set(delays)) == len(delays)
        assert (host_delay(policy, "schedule", 0) == 0) == (order[0] == HOST)


def test_random_delays_depend_on_op_and_call_only() -> None:
    def drawn(seed: int) -> list[int]:
        policy = Random(seed)
        delays = [lane_delay(policy, "compute", op, step) for op in ("attention", "kv_write") for step in range(9)]
        return delays + [host_delay(policy, label, step) for label in ("schedule", "launched") for step in range(9)]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)
    assert len(set(drawn(1))) > 20


@cache
def digest(path: Path) -> str:
    """Return the digest of the captures of the op definitions."""
    verdict = check(codec.load(path).explicit(), VALUE_CACHE)
    assert isinstance(verdict, Agreed)
    return verdict.stats.digest


@on_a_gpu
@pytest.mark.parametrize("path", SMOKE, ids=lambda path: path.stem)
def test_gpu_captures_equal_those_of_the_definitions(path: Path) -> None:
    try:
        verdict = check(codec.load(path).explicit(), VALUE_CACHE, config=CUDA)
    except DeviceError as error:
        pytest.skip(str(error))
    assert isinstance(verdict, Agreed), verdict
    assert verdict.stats.digest == digest(path)


@on_a_gpu
@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda schedule: str(schedule.policy))
def test_gpu_captures_are_the_same_under_every_delay(schedule: Schedule) -> None:
    path = next(each for each in SMOKE if each.stem == "everything")
    trace = codec.load(path).explicit().model_copy(update={"schedule": schedule})
    verdict = check(trace, VALUE_CACHE, config=CUDA)
    assert isinstance(verdict, Agreed), verdict
    assert verdict.stats.digest == digest(path)


@on_a_gpu
def test_capture_memory_is_reused_once_full(monkeypatch: pytest.MonkeyPatch) -> None:
    path = next(each for each in SMOKE if each.stem == "burst")
    captured: list[int] = []

    class SmallMachine(lanes_of_cuda.CudaMachine):
        def capture(self, lane: Any, function: Any, spans: Any) -> int:
            captured.append(sum(span.tensor.numel() * span.tensor.element_size() for span in spans))
            return super().capture(lane, function, spans)

    monkeypatch.setattr(lanes_of_cuda, "CAPTURE_BYTES", 1 << 16)
    monkeypatch.setattr(lanes_of_cuda, "CudaMachine", SmallMachine)
    verdict = check(codec.load(path).explicit(), VALUE_CACHE, config=CUDA)
    assert isinstance(verdict, Agreed), verdict
    assert verdict.stats.digest == digest(path)
    assert sum(captured) > 2 * lanes_of_cuda.CAPTURE_BYTES


@on_a_gpu
def test_missing_wait_is_a_race_on_a_gpu() -> None:
    for wait in (("compute", "inputs_ready"), ("h2d", "inputs_read"), ("d2h_output", "sampled_ready")):
        verdict = check(DECODES, VALUE_CACHE, Options(without=frozenset({wait})), config=CUDA)
        assert isinstance(verdict, Diverged), wait
        assert verdict.difference.plane == "races" or verdict.difference.missing_order


@on_a_gpu
@pytest.mark.parametrize(
    ("wait", "held_op"), [(("compute", "inputs_ready"), "copy_inputs"), (("host", "output_done"), "copy_output")]
)
def test_missing_wait_with_a_held_op_diverges_on_a_gpu(wait: tuple[str, str], held_op: str) -> None:
    held = Hold(op=Label(name=held_op, step=12), until=Label(name="schedule", step=14))
    trace = DECODES.model_copy(update={"schedule": Schedule(holds=(held,))})
    assert isinstance(check(trace, VALUE_CACHE, Options(races=False), config=CUDA), Agreed)
    verdict = check(trace, VALUE_CACHE, Options(races=False, without=frozenset({wait})), config=CUDA)
    assert not isinstance(verdict, Agreed)


@on_a_gpu
def test_the_host_cannot_reach_device_memory() -> None:
    run = Run(DECODES, VALUE_CACHE, Options(), config=CUDA)
    with pytest.raises(PermissionError, match="kv is device memory"):
        specstorm_target(run.target).machine.host(specstorm_target(run.target).machine.buffers["kv"].all, "r")


@on_a_gpu
def test_lane_delay_takes_the_calibrated_time() -> None:
    start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    start.record()
    cuda._sleep(int(2000 * cycles_per_microsecond()))
    end.record()
    end.synchronize()
    assert 1800 < 1000 * start.elapsed_time(end) < 2600


class Blind(Captures):
    """Captures that read no memory."""

    def inputs(self, *arguments: Any) -> None: ...

    def sampled(self, *arguments: Any) -> None: ...

    def state(self, *arguments: Any) -> None: ...

    def caches(self, *arguments: Any) -> None: ...


@on_a_gpu
def test_decode_step_is_kernels_and_declared_copies_only() -> None:
    steps = 5
    run = Run(DECODES, VALUE_CACHE, Options(races=False), config=CUDA)
    context = specstorm_target(run.target).engine.runner.context
    context.captures = Blind(run.trace.spec, context.memory, context.compute, specstorm_target(run.target).recorder)
    for _ in range(20):
        run.feed.step()
    specstorm_target(run.target).machine.drain()
    launched: Counter[str] = Counter()
    machine = specstorm_target(run.target).machine
    assert isinstance(machine, CudaMachine)
    for lane in machine.lanes:
        original = lane.launch

        def counting(op: Any, arguments: Any, original: Any = original) -> None:
            launched[op.__name__] += 1
            original(op, arguments)

        lane.launch = counting  # type: ignore[method-assign]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(steps):
            run.feed.step()
        cuda.synchronize()
    seen = Counter(event.name for event in profile.events() if str(event.device_type) == "DeviceType.CUDA")
    copies = {name: count for name, count in seen.items() if name.startswith(("Memcpy", "Memset"))}
    kernels = {name: count for name, count in seen.items() if name not in copies}
    assert copies == {
        "Memcpy HtoD (Pinned -> Device)": steps,
        "Memcpy DtoH (Device -> Pinned)": 2 * steps,
    }
    num_copies = sum(count for name, count in launched.items() if name.startswith("copy_"))
    assert num_copies == 3 * steps
    assert sum(kernels.values()) == launched.total() - num_copies, (kernels, launched)
    assert not any("at::" in name for name in kernels)
