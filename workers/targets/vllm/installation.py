"""Installation of vLLM in an environment of its own, and how an engine's process is started there."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

from workers.targets.child import installation
from workers.targets.child.installation import kept, making_of, python_of
from workers.targets.child.process import Keeper, Launch
from workers.targets.target import Device, DeviceError, Kernels, RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1, RunnerName

ROOT = Path(__file__).resolve().parents[3]
CHILD = "workers.targets.vllm.inside.main"
# Installations, each with exact versions: for CPUs, which has the simulated device too, and for GPUs.
HOME, GPU_HOME = ".venv-vllm", ".venv-vllm-gpu"
# No compilation: where a model's pieces are graphs, these are broken at layers of attention while they are captured.
ENVIRONMENT = {
    **installation.ENVIRONMENT,
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_COMPILE_DISABLE": "1",
    "VLLM_USE_BREAKABLE_CUDAGRAPH": "1",
}
# Graphs of the simulated device need no garbage to be collected before and behind their capture.
OF_CPUS = {"VLLM_CPU_CI_ENV": "1", "CUDA_VISIBLE_DEVICES": "", "VLLM_ENABLE_CUDAGRAPH_GC": "1"}
# Products of float32 are float32: logits of one row are the same, but for rounding, in whatever batch it is.
OF_GPUS = {"TRITON_F32_DEFAULT": "ieee", "VLLM_USE_FLASHINFER_SAMPLER": "0"}


@dataclass(frozen=True, slots=True, eq=False)
class ModelRunner:
    """One of vLLM's model runners: the engine by which it is known here, and what its process needs.

    `packages` are folders of an installation for CPUs that only it has on its path.
    """

    name: RunnerName
    engine: str
    environment: Mapping[str, str]
    packages: tuple[str, ...] = ()


FIRST_RUNNER = ModelRunner("v1", VLLM_V1, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
# What vLLM takes where it finds Triton, which is not where the first runner, that needs none, would load it.
SECOND_RUNNER = ModelRunner("v2", VLLM, {}, packages=("triton",))


def home_of(config: RunConfig) -> Path:
    """Return the folder of the installation that is asked for, by default this checkout's for the device."""
    by_default = GPU_HOME if config.device == "cuda" else HOME
    return Path(config.engine_home) if config.engine_home else ROOT / by_default


def making(target: str) -> str:
    """Return how an installation is made, from a checkout or from what was installed of a wheel."""
    return making_of(target, GPU_HOME if target == "vllm-gpu" else HOME, ROOT)


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation in a folder, for one of the runners on a device."""

    home: Path
    runner: ModelRunner
    device: Device = "sim"

    def python(self) -> Path:
        """Return the Python that vLLM is installed for.

        Raises:
            DeviceError: it is not installed; the message says what to do.
        """
        python, engine = python_of(self.home), self.runner.engine
        if python is None:
            made = making("vllm-gpu" if self.device == "cuda" else "vllm-cpu")
            raise DeviceError(f"engine {engine}: vLLM is not installed in {self.home}; {made}")
        for folder in self._packages:
            if not (self.home / folder / "installed").exists():
                missing = f"{folder} is not installed in {self.home / folder}"
                raise DeviceError(f"engine {engine}: {missing}; {making('vllm-cpu')}")
        return python

    def launch(
        self,
        overlay: str = "",
        kernels: Kernels = "defined",
        child: str = CHILD,
        hash_seed: str = "0",
        fixes: str = "",
    ) -> Launch:
        """Return how a process is started: with a source tree laid over the installed one, and with fixes applied.

        Raises:
            DeviceError: it is not installed; the message says what to do.
        """
        laid_over = (overlay,) if overlay else ()
        arguments = (self.device, self.runner.name, kernels, str(self.home / "models"), fixes, *laid_over)
        folders = os.pathsep.join([str(ROOT), *(str(self.home / folder) for folder in self._packages)])
        own = {"PYTHONPATH": folders, "PYTHONHASHSEED": hash_seed, **self.runner.environment}
        of_device = OF_GPUS if self.device == "cuda" else OF_CPUS
        return Launch((str(self.python()), "-m", child, *arguments), {**ENVIRONMENT, **of_device, **own}, ROOT)

    @property
    def _packages(self) -> tuple[str, ...]:
        """The folders on the path of its process: what a GPU's PyTorch needs is installed with it."""
        return () if self.device == "cuda" else self.runner.packages


@cache
def keeper_of(of: Installation, overlay: str, kernels: Kernels, fixes: str) -> Keeper:
    """Return the keeper of the process of an installation with a tree laid over it and fixes; it ends with ours."""
    return kept(of.runner.engine, partial(of.launch, overlay, kernels, fixes=fixes))
