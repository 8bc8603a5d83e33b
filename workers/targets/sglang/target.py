"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from workers.targets.child import answers
from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.sglang import limits
from workers.targets.sglang.installation import home_of, keeper_of
from workers.targets.target import SGLANG, Confirmation, DeviceError, EngineFailed, Kernels, RunConfig

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

    def keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(home_of(config), config.kernels)

    def interpreted(self, config: RunConfig) -> Mapping[str, str]:
        try:
            return self.keeper(config).process().ask({"do": "kernels"}, answers.Kernels).interpreted
        except EngineFailed as error:
            raise DeviceError(f"engine {self.name}: {error}") from error

    def confirmation(self, config: RunConfig) -> Confirmation | None:
        """Have a finding seen with interpreted kernels, too: they are SGLang's, their definitions ours."""
        if config.kernels == "interpreted":
            return None
        return Confirmation(config.model_copy(update={"kernels": "interpreted"}), _DEFINITION_IS_WRONG)

    def installed(self, config: RunConfig) -> Path | None:
        packages = home_of(config).glob(f"lib/python*/site-packages/{self.package}")
        return next((package.parent for package in packages), None)
