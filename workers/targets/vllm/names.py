"""Names of vLLM's engines, model runners and releases."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

# Values of `--engine`: vLLM with its second and with its first model runner.
VLLM = "vllm"
VLLM_V1 = "vllm-v1"
# First and second generation of vLLM's model runner. All engines of a process have the same one.
RunnerName: TypeAlias = Literal["v1", "v2"]
# Virtual environments with exact versions: one for CPUs and the simulated device, one for GPUs.
CPU_BUILD, GPU_BUILD = ".venv-vllm", ".venv-vllm-gpu"
# Folders of the releases that `make` installs, the default release first. PyPI has no build for CPUs of 0.33.0: its
# sources run with the compiled code of the CPU build (releases.py).
ON_CPUS: Mapping[str, str] = {"0.32.0": CPU_BUILD, "0.33.0": f"{CPU_BUILD}/0.33.0"}
ON_GPUS: Mapping[str, str] = {"0.32.0": GPU_BUILD}
