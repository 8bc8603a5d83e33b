"""Specstorm's engine on each device: availability, refusals, byte-equal captures."""

import os
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from scenarios import codec
from scenarios.trace import Trace
from workers.faults.registry import FAULTS
from workers.kernels.copies.definition import CopyInputs
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Diverged
from workers.run.check import check
from workers.run.worker import Worker
from workers.targets.devices import CLEAN, devices_with, functions_on, ops_of, twin_of
from workers.targets.specstorm import Specstorm
from workers.targets.target import DEFAULT_CONFIG, DEVICES, DeviceError, RunConfig

SMOKE = Path(__file__).resolve().parents[3] / "scenarios" / "smoke"
SUBSET = (
    "condense_with_counts_on_the_host",
    "drawn_tokens",
    "everything",
    "mtp_in_chunks",
    "sampling_params",
)
# The interpreter is slow for steps that sample: this many output tokens suffice to resume a request and sample again.
TOKENS_MAX = {"drawn_tokens": 12}
VALUE_CACHE, INTERPRETED = ModelValueCache(), RunConfig(device="triton-cpu")

interpreted = pytest.mark.skipif(torch.cuda.is_available(), reason="with a GPU, Triton compiles its kernels")


@cache
def trace_of(name: str) -> Trace:
    return codec.load(SMOKE / f"{name}.yaml").explicit()


def shortened(name: str) -> Trace:
    """Return a scenario; if its steps are slow, with shorter outputs and no expectations."""
    if name not in TOKENS_MAX:
        return trace_of(name)
    trace = codec.load(SMOKE / f"{name}.yaml")
    events = [
        event.model_copy(update={"max_tokens": min(event.max_tokens, TOKENS_MAX[name])})
        if event.do == "submit"
        else event
        for event in trace.events
    ]
    return trace.model_copy(update={"events": tuple(events), "expect": {}}).explicit()


_ASK = (
    "from workers.targets.devices import functions_on; from workers.targets.target import RunConfig; "
    "functions_on(RunConfig(device='{}'))"
)


def outcome_of(program: str, **environment: str) -> str:
    """Return the last line of stderr of a Python program."""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    return done.stderr.strip().rpartition("\n")[2]


@interpreted
def test_every_device_op_has_a_triton_kernel() -> None:
    twins = ops_of(functions_on(INTERPRETED))
    assert {op.__module__.removeprefix("workers.kernels.") for op in ops_of(CLEAN).values()} >= {
        "count_sampled.definition",
        "eagle.numpy",
    }
    assert [name for name, op in ops_of(CLEAN).items() if twins[name].__module__ == op.__module__] == []


@interpreted
def test_op_without_triton_kernel_is_refused_and_not_a_finding() -> None:
    def copy_by_hand(a: CopyInputs) -> None: ...

    copy_by_hand.__module__ = CLEAN.copy_inputs.__module__
    functions = replace(functions_on(INTERPRETED), copy_inputs=twin_of(copy_by_hand))
    with pytest.raises(DeviceError, match="device op copy_by_hand has no Triton kernel"):
        check(trace_of("burst"), VALUE_CACHE, kind=Specstorm(functions), config=INTERPRETED)


@interpreted
@pytest.mark.parametrize("name", SUBSET)
def test_interpreter_captures_equal_the_numpy_captures(name: str) -> None:
    defined = check(shortened(name), VALUE_CACHE)
    assert isinstance(defined, Agreed)
    interpreted = check(shortened(name), VALUE_CACHE, config=INTERPRETED)
    assert isinstance(interpreted, Agreed), interpreted
    assert interpreted.stats == defined.stats


@interpreted
def test_sweep_on_the_interpreter_agrees_under_every_schedule() -> None:
    judgement = Worker().judge(trace_of("discarded_chunks"), True, INTERPRETED)
    assert isinstance(judgement.verdict, Agreed)
    assert judgement.schedules == 3


@interpreted
def test_host_fault_is_found_on_the_interpreter() -> None:
    fault = "vllm-38556-backup-token"
    trace = trace_of("discarded_chunks").model_copy(update={"faults": (fault,)})
    verdict = check(trace, VALUE_CACHE, config=INTERPRETED)
    assert isinstance(verdict, Diverged)
    defined = check(trace, VALUE_CACHE)
    assert isinstance(defined, Diverged)
    assert verdict.difference == defined.difference


def test_fault_in_a_device_op_exists_on_sim_only() -> None:
    assert devices_with(FAULTS["vllm-43434-draft-order"]) == ("sim",)
    assert devices_with(FAULTS["sglang-28034-inputs-overwritten"]) == DEVICES
    for fault in FAULTS.values():
        changed = [name for name, op in ops_of(CLEAN).items() if ops_of(fault.apply(CLEAN, print)).get(name) is not op]
        assert devices_with(fault) == (("sim",) if changed else DEVICES), fault.id


@interpreted
def test_missing_gpu_is_refused() -> None:
    program = _ASK.format("cuda")
    assert outcome_of(program, TRITON_INTERPRET="0").endswith("cuda: no CUDA device is visible to this process")
    assert outcome_of(program, TRITON_INTERPRET="1").endswith(
        "TRITON_INTERPRET=1 is set, so kernels would be interpreted; unset it"
    )


def test_process_that_compiles_kernels_refuses_to_interpret_them() -> None:
    program = "import triton; " + _ASK.format("triton-cpu")
    message = "triton-cpu: Triton was loaded for another device in this process; use one device in each process"
    assert outcome_of(program, TRITON_INTERPRET="0").endswith(message)


def test_simulated_device_uses_the_numpy_parts() -> None:
    assert functions_on(DEFAULT_CONFIG) is CLEAN
