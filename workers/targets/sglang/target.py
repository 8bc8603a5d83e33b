"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from pathlib import Path

from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.sglang import limits
from workers.targets.sglang.installation import home_of, keeper_of
from workers.targets.target import SGLANG, RunConfig


class Sglang(ChildKind):
    """The kind of engine that is SGLang's, as it is installed."""

    name = SGLANG
    package = "sglang"
    capabilities = limits.CAPABILITIES

    def keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(home_of(config))

    def installed(self, config: RunConfig) -> Path | None:
        packages = home_of(config).glob(f"lib/python*/site-packages/{self.package}")
        return next((package.parent for package in packages), None)
