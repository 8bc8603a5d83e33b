"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workers.targets.child.process import Keeper
from workers.targets.child.releases import Release, environment_of
from workers.targets.child.target import ChildKind
from workers.targets.exported import ExportedTest, Finding
from workers.targets.sglang import limits
from workers.targets.sglang.export.test_file import exported_test
from workers.targets.sglang.installation import SGLANG, home_of, installed, keeper_of, overlay_text, python_at
from workers.targets.sglang.request_features import FEATURES
from workers.targets.sglang.situations import AREAS
from workers.targets.target import Kernels, RunConfig

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
    # SGLang's repository has its package below `python`.
    source_roots = ("", "python")
    executed = Path(__file__).parent / "executed.json"
    areas = AREAS
    smoke = ("chunked_prefill", "eagle", "radix_reuse", "retraction")
    # Seen to run beside the packages of constraints-sglang.txt, oldest first.
    releases = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    @contextmanager
    def release(self, version: str, folder: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Install a release of SGLang beside the packages of an installation; its processes end with the context.

        What it was built with does not matter: nothing of its compiled kernels is called.
        """
        release = Release(self.package, version, has_compiled_code=False)
        environment = environment_of(release, folder, python_at(home_of(config)))
        released = config.model_copy(update={"engine_home": str(environment)})
        try:
            yield released
        finally:
            self._stop(released)

    @contextmanager
    def over(self, tree: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Lay some files of SGLang's sources over an installation; its processes end with the context."""
        laid = config.model_copy(update={"engine_path": str(tree)})
        try:
            yield laid
        finally:
            self._stop(laid)

    def _stop(self, config: RunConfig) -> None:
        for kernels in self.kernels:
            self.keeper(config.model_copy(update={"kernels": kernels})).stop()

    def keeper(self, config: RunConfig) -> Keeper:
        return keeper_of(home_of(config), config.engine_path, config.kernels, config.fixes)

    def laid_over(self, config: RunConfig) -> str:
        return overlay_text(config.engine_path, home_of(config)) if config.engine_path else ""

    def exported(self, finding: Finding) -> ExportedTest:
        return exported_test(finding, FEATURES, limits.CONTEXT_BEYOND)

    def version(self, config: RunConfig) -> str:
        return installed(home_of(config))
