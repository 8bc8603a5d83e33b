"""Target SGLang: the real engine, unmodified, in a process of its own that is kept between traces."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from scenarios.trace import Trace
from workers.record.evidence import Difference, MissingOrder, Site
from workers.record.observation import Observation
from workers.targets.child.process import Keeper
from workers.targets.child.releases import Release, environment_of, is_older
from workers.targets.child.target import ChildKind
from workers.targets.exported import ExportedTest, Finding
from workers.targets.sglang import limits, sources
from workers.targets.sglang.export.test_file import exported_test
from workers.targets.sglang.installation import home_of, keeper_of, python_at
from workers.targets.sglang.known import BUGS, gives_results_away
from workers.targets.sglang.known_overflows import CRASHES, OVERFLOWS
from workers.targets.target import DEFAULT_CONFIG, SGLANG, Kernels, KnownBug, RunConfig

_BUGS = {**BUGS, **OVERFLOWS}
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
    smoke = ("chunked_prefill", "eagle", "radix_reuse", "retraction")
    # Seen to run beside the packages of constraints-sglang.txt, oldest first.
    releases = ("0.5.20", "0.5.21", "0.5.22", "0.5.23")

    def home(self, config: RunConfig) -> Path:
        return home_of(config)

    def is_known(self, race: MissingOrder, trace: Trace, config: RunConfig = DEFAULT_CONFIG) -> bool:
        """Tell whether a race is one that 0.5.23 has mended, and what runs is older."""
        return gives_results_away(race) and is_older(self.version(config), "0.5.23")

    def known(
        self, found: Difference, trace: Trace, steps: Sequence[Observation], config: RunConfig = DEFAULT_CONFIG
    ) -> str:
        return self._first_of(_BUGS, config, found, trace, steps)

    def known_crash(
        self,
        error: str,
        where: Site,
        trace: Trace,
        config: RunConfig = DEFAULT_CONFIG,
        steps: Sequence[Observation] = (),
    ) -> str:
        return self._first_of(CRASHES, config, error, trace, steps)

    def _first_of(self, matchers: Mapping[KnownBug, Callable[..., bool]], config: RunConfig, *seen: object) -> str:
        """Return the name of the first known bug that matches and is not fixed; empty if there is none."""
        fixed = self.fixed(config).names
        return next((bug.name for bug, matches in matchers.items() if bug.name not in fixed and matches(*seen)), "")

    def known_bugs(self) -> Sequence[KnownBug]:
        return list(dict.fromkeys((*_BUGS, *CRASHES)))

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
        return sources.told(config.engine_path, home_of(config)) if config.engine_path else ""

    def exported(self, finding: Finding) -> ExportedTest:
        return exported_test(finding, limits.CONTEXT_BEYOND)

    def version(self, config: RunConfig) -> str:
        return sources.installed(home_of(config))
