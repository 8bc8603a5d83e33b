"""Find vLLM's installation (a virtual environment), and launch its engine processes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from workers.targets.child import installation
from workers.targets.child.installation import install_advice_for, keeper_until_exit, python_of
from workers.targets.child.process import SECONDS, Keeper, Launch, Seconds
from workers.targets.target import Device, DeviceError, Kernels, RunConfig
from workers.targets.vllm.names import ON_CPUS, ON_GPUS, VLLM, VLLM_V1, RunnerName

ROOT = Path(__file__).resolve().parents[3]
CHILD = "workers.targets.vllm.inside.main"
HOME, GPU_HOME = (next(iter(folders.values())) for folders in (ON_CPUS, ON_GPUS))
# No torch.compile: piecewise CUDA graphs are split at attention layers during their capture instead.
ENVIRONMENT = {
    **installation.ENVIRONMENT,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_USE_BREAKABLE_CUDAGRAPH": "1",
    # Worker processes of several ranks load the same overlay and fixes as the engine's process, by its main module. A
    # rank that hangs ends the trace before the answer is late.
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "90",
}
# Capture on the simulated device needs no garbage collection before and after it.
CPU_ENVIRONMENT = {
    "VLLM_CPU_CI_ENV": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "VLLM_ENABLE_CUDAGRAPH_GC": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
# Products of float32 stay float32, so that the logits of a row are the same in every batch, up to rounding.
# Collectives are NCCL's, without NVLink multicast.
GPU_ENVIRONMENT = {
    "TRITON_F32_DEFAULT": "ieee",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",
    "NCCL_NVLS_ENABLE": "0",
}


# The answer about a new engine with several ranks waits until its worker processes have imported vLLM.
SECONDS_OF_PROCESSES = Seconds(answer=300.0)


@dataclass(frozen=True, slots=True, eq=False)
class ModelRunner:
    """One of vLLM's two model runners: `--engine` name, environment variables, packages.

    `packages` are folders of the CPU installation that only this runner has on its path.
    """

    name: RunnerName
    engine: str
    environment: Mapping[str, str]
    packages: tuple[str, ...] = ()


FIRST_RUNNER = ModelRunner("v1", VLLM_V1, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
# vLLM selects the second runner if it finds Triton. The first runner needs no Triton, so it is not on its path.
SECOND_RUNNER = ModelRunner("v2", VLLM, {}, packages=("triton",))


def folders_on(device: Device) -> Mapping[str, str]:
    """Return the folder of each installed release for a device, the default release first."""
    return ON_GPUS if device == "cuda" else ON_CPUS


def home_of(config: RunConfig) -> Path:
    """Return the folder of vLLM's installation: `engine_home`, or the folder of the selected release."""
    if config.engine_home:
        return Path(config.engine_home)
    folders = folders_on(config.device)
    return ROOT / folders[config.release or next(iter(folders))]


def install_advice(target: str) -> str:
    """Return the text that says how to install a target, from a checkout or an installed wheel."""
    return install_advice_for(target, GPU_HOME if target == "vllm-gpu" else HOME, ROOT)


@dataclass(frozen=True, slots=True)
class Installation:
    """Installation of vLLM in a folder, used with one model runner on one device."""

    home: Path
    runner: ModelRunner
    device: Device = "sim"

    def python(self) -> Path:
        """Return the path of the Python interpreter in vLLM's virtual environment.

        Raises:
            DeviceError: vLLM is not installed; the message has the command that installs it.
        """
        python, engine = python_of(self.home), self.runner.engine
        if python is None:
            made = install_advice("vllm-gpu" if self.device == "cuda" else "vllm-cpu")
            raise DeviceError(f"engine {engine}: vLLM is not installed in {self.home}; {made}")
        for folder in self._packages:
            if not (self.home / folder / "installed").exists():
                missing = f"{folder} is not installed in {self.home / folder}"
                raise DeviceError(f"engine {engine}: {missing}; {install_advice('vllm-cpu')}")
        return python

    def launch(
        self,
        overlay: str = "",
        kernels: Kernels = "defined",
        child: str = CHILD,
        hash_seed: str = "0",
        fixes: str = "",
    ) -> Launch:
        """Return the command and environment that start an engine's child process.

        `overlay` is a source tree laid over the installed one; `fixes` names the findings to fix in the sources.

        Raises:
            DeviceError: vLLM is not installed; the message has the command that installs it.
        """
        laid_over = (overlay,) if overlay else ()
        arguments = (self.device, self.runner.name, kernels, str(self.home / "models"), fixes, *laid_over)
        folders = os.pathsep.join([str(ROOT), *(str(self.home / folder) for folder in self._packages)])
        own = {"PYTHONPATH": folders, "PYTHONHASHSEED": hash_seed, **self.runner.environment}
        of_device = GPU_ENVIRONMENT if self.device == "cuda" else CPU_ENVIRONMENT
        return Launch((str(self.python()), "-m", child, *arguments), {**ENVIRONMENT, **of_device, **own}, ROOT)

    @property
    def _packages(self) -> tuple[str, ...]:
        """Folders added to the child's import path; none on a GPU, where PyTorch has Triton."""
        return () if self.device == "cuda" else self.runner.packages


@cache
def keeper_of(of: Installation, overlay: str, kernels: Kernels, fixes: str) -> Keeper:
    """Return the object that starts and keeps the child process of an installation."""
    seconds = SECONDS if of.device == "sim" else SECONDS_OF_PROCESSES
    return keeper_until_exit(of.runner.engine, partial(of.launch, overlay, kernels, fixes=fixes), seconds)


def num_gpus(environment: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> int:
    """Return how many GPUs an engine's process sees: those in CUDA_VISIBLE_DEVICES, or all of this machine."""
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return len([each for each in visible.split(",") if each.strip()])
    return sum(each.name.removeprefix("nvidia").isdecimal() for each in devices.glob("nvidia*"))
