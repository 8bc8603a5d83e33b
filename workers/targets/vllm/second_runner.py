"""Engine kind vllm-v2: vLLM with its second model runner, whose Triton kernels are interpreted.

Everything but the runner is that of engine vllm: process, scheduler, models, judges.
"""

from workers.targets.target import VLLM_V2
from workers.targets.vllm import limits
from workers.targets.vllm.installation import ModelRunner
from workers.targets.vllm.target import Vllm

# Triton is not where vLLM would find it unasked: the first runner would load it, and run no differently.
SECOND_RUNNER = ModelRunner("v2", VLLM_V2, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, packages=("triton",))


class VllmV2(Vllm):
    """The kind of engine that is vLLM's with its second model runner."""

    name = VLLM_V2
    runner = SECOND_RUNNER
    capabilities = limits.SECOND_RUNNER
