"""Target vLLM: the real engine, unmodified, in a process of its own that is kept between traces."""

from workers.record.evidence import MissingOrder
from workers.targets.child.keeper import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.target import VLLM, RunConfig
from workers.targets.vllm import limits
from workers.targets.vllm.installation import ModelRunner, keeper_of
from workers.targets.vllm.known_races import is_known

FIRST_RUNNER = ModelRunner("v1", VLLM, {"VLLM_USE_V2_MODEL_RUNNER": "0"})


class Vllm(ChildKind):
    """The kind of engine that is vLLM's, as it is installed or laid over that."""

    name = VLLM
    package = "vllm"
    runner = FIRST_RUNNER
    capabilities = limits.FIRST_RUNNER

    def is_known(self, race: MissingOrder) -> bool:
        return is_known(race.first.actor, race.second.actor, race.memory)

    def _keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(config.engine_home, config.engine_path, config.device, self.runner)
