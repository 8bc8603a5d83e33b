"""Target vLLM: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Sequence

from scenarios.trace import Trace
from workers.record.evidence import Difference, MissingOrder
from workers.record.observation import Observation
from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.target import VLLM, VLLM_V2, KnownBug, RunConfig
from workers.targets.vllm import limits
from workers.targets.vllm.installation import ModelRunner, keeper_of
from workers.targets.vllm.known import KNOWN_BUGS, is_known_race

FIRST_RUNNER = ModelRunner("v1", VLLM, {"VLLM_USE_V2_MODEL_RUNNER": "0"})
# Triton is not where vLLM would find it unasked: the first runner would load it, and run no differently.
SECOND_RUNNER = ModelRunner("v2", VLLM_V2, {"VLLM_USE_V2_MODEL_RUNNER": "1"}, packages=("triton",))


class Vllm(ChildKind):
    """The kind of engine that is vLLM's, as it is installed or laid over that."""

    name = VLLM
    package = "vllm"
    runner = FIRST_RUNNER
    capabilities = limits.FIRST_RUNNER

    def is_known(self, race: MissingOrder) -> bool:
        return is_known_race(race)

    def known(self, found: Difference, trace: Trace, steps: Sequence[Observation]) -> str:
        return next((bug.name for bug, matches in KNOWN_BUGS.items() if matches(found, trace, steps)), "")

    def known_bugs(self) -> Sequence[KnownBug]:
        """Return the known bugs of vLLM, less races, which are counted."""
        return list(KNOWN_BUGS)

    def _keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(config.engine_home, config.engine_path, config.device, self.runner)


class VllmV2(Vllm):
    """The same with its second model runner, whose Triton kernels are interpreted; all else is as of the first."""

    name = VLLM_V2
    runner = SECOND_RUNNER
    capabilities = limits.SECOND_RUNNER
