"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.child.process import Keeper
from workers.targets.child.target import ChildKind
from workers.targets.exported import ExportedTest, Finding
from workers.targets.sglang import limits, sources
from workers.targets.sglang.export.test_file import exported_test
from workers.targets.sglang.installation import home_of, keeper_of
from workers.targets.sglang.known import BUGS
from workers.targets.target import DEFAULT_CONFIG, SGLANG, Kernels, KnownBug, RunConfig

_DEFINITION_IS_WRONG = (
    "what is found with the definitions of kernels in workers/targets/sglang/inside/kernels is not found with those "
    "themselves, interpreted: a definition is wrong; `make test-sglang` says which, --kernels interpreted does without"
)


class Sglang(ChildKind):
    """The kind of engine that is SGLang's, as it is installed or with some of its files laid over that."""

    name = SGLANG
    package = "sglang"
    capabilities = limits.CAPABILITIES
    kernels: Sequence[Kernels] = ("defined", "interpreted")
    definition_is_wrong = _DEFINITION_IS_WRONG
    exports = True

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    def known(
        self, found: Difference, trace: Trace, steps: Sequence[Observation], config: RunConfig = DEFAULT_CONFIG
    ) -> str:
        return next((bug.name for bug, matches in BUGS.items() if matches(found, trace, steps)), "")

    def known_bugs(self) -> Sequence[KnownBug]:
        return list(BUGS)

    @contextmanager
    def over(self, tree: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Lay some files of SGLang's sources over an installation; its processes end with the context."""
        laid = config.model_copy(update={"engine_path": str(tree)})
        try:
            yield laid
        finally:
            for kernels in self.kernels:
                self.keeper(laid.model_copy(update={"kernels": kernels})).stop()

    def keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(home_of(config), config.engine_path, config.kernels)

    def laid_over(self, config: RunConfig) -> str:
        return sources.told(config.engine_path, home_of(config)) if config.engine_path else ""

    def exported(self, finding: Finding) -> ExportedTest:
        return exported_test(finding, limits.CONTEXT_BEYOND)

    def version(self, config: RunConfig) -> str:
        return sources.installed(home_of(config))
