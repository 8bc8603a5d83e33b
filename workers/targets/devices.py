"""Devices of our own engine: device ops and lanes on each.

`sim` runs each op's NumPy implementation (or its plain definition, if it has none) on simulated lanes, `triton-cpu`
runs the Triton kernels in Triton's interpreter on the same lanes, `cuda` runs the Triton kernels on the streams of a
GPU. The scheduler and the host code of model runner and drafter are the same on all three. Torch and Triton are loaded
only for the last two.
"""

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache, wraps
from importlib import import_module
from typing import Any

from scenarios.events import Schedule
from workers.engine.functions import EngineFunctions
from workers.faults.fault import Fault
from workers.faults.registry import FAULTS
from workers.lanes.base import HeldOp
from workers.lanes.lane import Machine
from workers.lanes.policies import Eager, LaneOrder, Lazy, Policy, Random
from workers.lanes.simulated import SimulatedMachine
from workers.targets.registry import target_kind
from workers.targets.target import DEVICES, Device, DeviceError, RunConfig, Watch

CLEAN = EngineFunctions()
_OPS = "workers.kernels."
_INTERPRET = "TRITON_INTERPRET"


def ops_of(functions: EngineFunctions) -> dict[str, Any]:
    """Return the device ops among an engine's replaceable functions."""
    found = {field.name: getattr(functions, field.name) for field in fields(functions)}
    return {name: part for name, part in found.items() if str(part.__module__).startswith(_OPS)}


def devices_with(fault: Fault) -> tuple[Device, ...]:
    """Return the devices (`sim`, `cuda`, ...) on which a planted fault can be switched on.

    A fault in a device op replaces its NumPy code, so it exists on `sim` only.
    """
    faulty = fault.apply(CLEAN, lambda: None)
    in_an_op = any(getattr(faulty, name) is not op for name, op in ops_of(CLEAN).items())
    return ("sim",) if in_an_op else DEVICES


def faults_on(config: RunConfig) -> list[str]:
    """Return the ids of the faults that a device supports, in alphabetical order."""
    if not target_kind(config.engine).capabilities.faults:
        return []
    return [fault for fault in sorted(FAULTS) if config.device in devices_with(FAULTS[fault])]


def twin_of(op: Any) -> Any:
    """Return the Triton kernel of a device op: the function of the same name in the op's folder.

    If the op has no Triton kernel, the returned function raises `DeviceError` at its launch.
    """

    @wraps(op)
    def missing(_: Any) -> None:
        raise DeviceError(f"device op {op.__name__} has no Triton kernel")

    module = f"{op.__module__.rpartition('.')[0]}.triton"
    try:
        return getattr(import_module(module), op.__name__, missing)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        return missing


@cache
def functions_on(config: RunConfig) -> EngineFunctions:
    """Return the fault-free engine functions and ops for the device of a run configuration.

    Raises:
        DeviceError: this process cannot use the device.
    """
    if config.device == "sim":
        return CLEAN
    if config.device == "cpu":
        raise DeviceError(f"--device cpu: engine {config.engine} runs on {', '.join(DEVICES)}")
    _load_triton(interprets=config.device == "triton-cpu")
    twins = {name: twin_of(op) for name, op in ops_of(CLEAN).items()}
    import_module("workers.kernels.launch.triton").hash_in_order({twin.__module__ for twin in twins.values()})
    return EngineFunctions(**twins)


def policy_of(schedule: Schedule) -> Policy:
    """Return the policy of a schedule: it decides when host and lanes advance."""
    match schedule.policy:
        case "eager":
            return Eager()
        case "lazy":
            return Lazy()
        case "lane_order":
            return LaneOrder(schedule.order)
        case "random":
            return Random(schedule.seed)


def machine_on(config: RunConfig, lanes: Sequence[str], schedule: Schedule, watch: Watch) -> Machine:
    """Return the machine (lanes, events, buffers) of one run, after `functions_on`."""
    policy = policy_of(schedule)
    held = [HeldOp((hold.op.name, hold.op.step), (hold.until.name, hold.until.step)) for hold in schedule.holds]
    if config.device == "cuda":
        launches_of = import_module("workers.kernels.launch.triton").launches_of
        machine: Machine = import_module("workers.lanes.cuda").CudaMachine(
            lanes, policy, watch.watcher, held, watch.without, watch.blame, launches_of=launches_of
        )
        return machine
    as_tensor: Callable[..., Any] | None = None
    if config.device == "triton-cpu":
        as_tensor = import_module("torch").from_numpy
    return SimulatedMachine(
        lanes,
        policy,
        watch.watcher,
        held,
        without=watch.without,
        blame=watch.blame,
        as_tensor=as_tensor,
        observer=watch.observer,
    )


def _load_triton(interprets: bool) -> None:
    """Import Triton; only at import does it decide whether to interpret or compile kernels."""
    device = "triton-cpu" if interprets else "cuda"
    if "triton" in sys.modules:
        if (os.environ.get(_INTERPRET) == "1") != interprets:
            raise DeviceError(
                f"{device}: Triton was loaded for another device in this process; use one device in each process"
            )
    elif interprets:
        os.environ[_INTERPRET] = "1"
    elif os.environ.get(_INTERPRET) == "1":
        raise DeviceError(f"cuda: {_INTERPRET}=1 is set, so kernels would be interpreted; unset it")
    try:
        torch = import_module("torch")
        import_module("triton")
    except ModuleNotFoundError as error:
        raise DeviceError(f"{device}: {error.name} is not installed; pip install {error.name}") from error
    if device == "cuda" and not torch.cuda.is_available():
        raise DeviceError("cuda: no CUDA device is visible to this process")
