"""vLLM target: runs the unmodified engine in a child process that is kept between traces."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from scenarios.capabilities import Capabilities
from workers.targets.child.process import Keeper
from workers.targets.child.releases import Release, environment_of
from workers.targets.child.target import ChildKind
from workers.targets.exported import ExportedTest, Finding
from workers.targets.target import Device, Kernels, RunConfig
from workers.targets.vllm import limits, places, sources
from workers.targets.vllm.engine_sizes import window_blocks_max
from workers.targets.vllm.export.test_file import exported_test
from workers.targets.vllm.installation import (
    FIRST_RUNNER,
    ROOT,
    SECOND_RUNNER,
    Installation,
    folders_on,
    home_of,
    keeper_of,
    num_gpus,
)
from workers.targets.vllm.names import CPU_BUILD, GPU_BUILD, ON_CPUS, VLLM, VLLM_V1
from workers.targets.vllm.request_features import FIRST
from workers.targets.vllm.situations import AREAS

# Releases that `bisect` tries, oldest first: some install with the torch version of constraints-vllm.txt, the newest
# are installed already.
RELEASES = ("0.27.1", "0.28.0", "0.29.0", "0.30.0", "0.31.0", *sorted(ON_CPUS))
_DEFINITION_IS_WRONG = (
    "the finding occurs with the kernel definitions in workers/targets/vllm/inside/kernels but not with the kernels "
    "themselves, interpreted: a definition is wrong; `make vllm-kernels` says which, --kernels interpreted does without"
)


class Vllm(ChildKind):
    """Engine `vllm`: the installed or overlaid vLLM, with the model runner that it selects.

    For every allowed spec vLLM selects its second runner; Triton kernels run as their definitions, or interpreted.
    """

    name = VLLM
    package = "vllm"
    runner = SECOND_RUNNER
    capabilities = limits.SECOND_RUNNER
    kernels: Sequence[Kernels] = ("defined", "interpreted")
    definition_is_wrong = _DEFINITION_IS_WRONG
    stand_ins = ("vllm/utils/cpu_triton_utils.py",)
    executed = Path(__file__).parent / "executed.json"
    areas = AREAS
    places = places.SECOND_RUNNER
    exports = True
    # Scenarios for a change that no scenario executes.
    smoke = ("batch", "chunks_beside_drafts", "pool_too_small", "shared_prefixes")

    def capabilities_under(self, config: RunConfig) -> Capabilities:
        """Return the capabilities on the device of a run configuration.

        On a GPU, offloading and handoffs are not observed; on a CPU there are no CUDA graphs. On both, several ranks
        are processes.
        """
        match config.device:
            case "cuda":
                return limits.on_a_gpu(self.capabilities, num_gpus())
            case "cpu":
                return limits.on_a_cpu(self.capabilities)
            case _:
                return self.capabilities

    def releases_on(self, where: Device) -> Sequence[str]:
        return (*folders_on(where),) if where in self.capabilities.devices else ()

    @contextmanager
    def release(self, version: str, folder: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Install a vLLM release; yield the configuration that runs it; stop its process on exit."""
        if version in folders_on(config.device) and not config.engine_home:
            released = config.model_copy(update={"release": version})
        else:
            build = GPU_BUILD if config.device == "cuda" else CPU_BUILD
            home = Path(config.engine_home) if config.engine_home else ROOT / build
            python = Installation(home, FIRST_RUNNER).python()
            environment = environment_of(Release(sources.PACKAGE, version), folder, python)
            released = config.model_copy(update={"release": "", "engine_home": str(environment)})
        try:
            yield released
        finally:
            self.keeper(released).stop()

    @contextmanager
    def overlaid(self, tree: Path, config: RunConfig) -> Iterator[RunConfig]:
        """Yield a configuration that overlays a source tree; stop its child processes on exit."""
        laid = config.model_copy(update={"engine_path": str(tree)})
        try:
            yield laid
        finally:
            for kernels in self.kernels or (laid.kernels,):
                self.keeper(laid.model_copy(update={"kernels": kernels})).stop()

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    def keeper(self, config: RunConfig) -> Keeper:
        installation = Installation(home_of(config), self.runner, config.device)
        return keeper_of(installation, config.engine_path, config.kernels, config.fixes)

    def overlay_description(self, config: RunConfig) -> str:
        return sources.overlay_text(config.engine_path, home_of(config)) if config.engine_path else ""

    def version(self, config: RunConfig) -> str:
        return sources.version(config.engine_path, home_of(config))

    def exported(self, finding: Finding) -> ExportedTest:
        return exported_test(finding, FIRST, "cpu" in self.capabilities.devices, window_blocks_max(finding.trace.spec))


class VllmV1(Vllm):
    """Engine `vllm-v1`: vLLM with its first model runner, which needs no Triton."""

    name = VLLM_V1
    executed = Path(__file__).parent / "executed_v1.json"
    # It supports one rank only.
    areas = {area: patterns for area, patterns in AREAS.items() if area != "ranks"}
    releases = RELEASES
    runner = FIRST_RUNNER
    capabilities = limits.FIRST_RUNNER
    places = places.FIRST_RUNNER
    kernels = ()
