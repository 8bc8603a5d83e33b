"""Names of vLLM's model runners."""

from typing import Literal, TypeAlias

# The first and the second generation: a process has engines with one of them.
RunnerName: TypeAlias = Literal["v1", "v2"]
