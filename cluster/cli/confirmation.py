"""Confirmation of a trace's races on a GPU, for `replay --confirm cuda`: what is run there."""

from collections.abc import Iterator

from cluster.cli.inputs import InputError, check_trace, require_engine
from scenarios.trace import Trace
from workers.run.widening import Widened, widened
from workers.targets.target import RunConfig


def confirmed(trace: Trace, config: RunConfig, times: int, source: str) -> Iterator[Widened]:
    """Return what comes of the races of a trace on the GPU of this machine, each as it is known.

    An `engine_home` is that of the installation for GPUs.

    Raises:
        InputError: another device than the simulated one was asked for, too, or a GPU cannot run the trace.
        DeviceError: one of the devices is not there.
    """
    if config.device != "sim":
        raise InputError(
            f"--device {config.device} and --confirm: races are found on the simulated device; use --device sim"
        )
    gpu = config.model_copy(update={"device": "cuda"})
    check_trace(trace, gpu, source)
    require_engine(gpu)
    return widened(trace.explicit(), config.model_copy(update={"engine_home": ""}), gpu, times)
