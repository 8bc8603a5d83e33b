"""Names of vLLM's engines and model runners."""

from typing import Literal, TypeAlias

# Values of `--engine`: vLLM with its second and with its first model runner.
VLLM = "vllm"
VLLM_V1 = "vllm-v1"
# First and second generation of vLLM's model runner. All engines of a process have the same one.
RunnerName: TypeAlias = Literal["v1", "v2"]
