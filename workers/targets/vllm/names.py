"""Names of vLLM as an engine, and of its model runners."""

from typing import Literal, TypeAlias

# As `--engine` takes them: with the second model runner, and with the first.
VLLM = "vllm"
VLLM_V1 = "vllm-v1"
# The first and the second generation: a process has engines with one of them.
RunnerName: TypeAlias = Literal["v1", "v2"]
