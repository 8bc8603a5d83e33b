"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Sequence
from pathlib import Path

from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.sglang import limits
from workers.targets.sglang.installation import home_of, keeper_of
from workers.targets.target import SGLANG, Kernels, RunConfig

_DEFINITION_IS_WRONG = (
    "what is found with the definitions of kernels in workers/targets/sglang/inside/kernels is not found with those "
    "themselves, interpreted: a definition is wrong; `make test-sglang` says which, --kernels interpreted does without"
)


class Sglang(ChildKind):
    """The kind of engine that is SGLang's, as it is installed."""

    name = SGLANG
    package = "sglang"
    capabilities = limits.CAPABILITIES
    kernels: Sequence[Kernels] = ("defined", "interpreted")
    definition_is_wrong = _DEFINITION_IS_WRONG

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    def keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(home_of(config), config.kernels)
