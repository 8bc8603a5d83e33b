"""SGLang target: runs unmodified SGLang in a child process, which is kept between traces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from workers.targets.child.process import Keeper
from workers.targets.child.releases import Release, environment_of
from workers.targets.child.target import ChildKind
from workers.targets.exported import ExportedTest, Finding
from workers.targets.sglang import limits
from workers.targets.sglang.export.test_file import exported_test
from workers.targets.sglang.installation import SGLANG, home_of, installed_version, keeper_of, overlay_text, python_at
from workers.targets.sglang.request_features import FEATURES
from workers.targets.sglang.situations import AREAS
from workers.targets.target import Kernels, RunConfig

_DEFINITION_IS_WRONG = (
    "the finding occurs with the kernel definitions in workers/targets/sglang/inside/kernels but not with the "
    "interpreted kernels: a definition is wrong; `make test-sglang` shows which, --kernels interpreted avoids them"
)


class Sglang(ChildKind):
    """Engine `sglang`: the installed SGLang, or one overlaid by a source tree."""

    name = SGLANG
    package = "sglang"
    capabilities = limits.CAPABILITIES
    kernels: Sequence[Kernels] = ("defined", "interpreted")
    definition_is_wrong = _DEFINITION_IS_WRONG
    exports = True
    # In SGLang's repository the package is in the folder `python`.
    source_roots = ("", "python")
    executed = Path(__file__).parent / "executed.json"
    areas = AREAS
    smoke = ("chunked_prefill", "eagle", "radix_reuse", "retraction")
    # Tested with the packages of constraints-sglang.txt; oldest first.
    releases = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    @contextmanager
    def release(self, version: str, folder: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Install a release of SGLang; yield the configuration that runs it.

        Other packages are shared with the current installation. The processes that were started end with the context.
        The torch version that the release was built with does not matter: its compiled kernels are not called.
        """
        release = Release(self.package, version, has_compiled_code=False)
        environment = environment_of(release, folder, python_at(home_of(config)))
        released = config.model_copy(update={"engine_home": str(environment)})
        try:
            yield released
        finally:
            self._stop(released)

    @contextmanager
    def overlaid(self, tree: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Overlay the installation with a source tree; end its processes on exit."""
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

    def overlay_description(self, config: RunConfig) -> str:
        return overlay_text(config.engine_path, home_of(config)) if config.engine_path else ""

    def exported(self, finding: Finding) -> ExportedTest:
        return exported_test(finding, FEATURES, limits.CONTEXT_MARGIN)

    def version(self, config: RunConfig) -> str:
        return installed_version(home_of(config))
