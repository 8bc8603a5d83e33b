"""Installation of SGLang in an environment of its own, and how an engine's process is started there."""

from functools import cache, partial
from pathlib import Path

from workers.targets.child import installation
from workers.targets.child.installation import kept, making_of, python_of
from workers.targets.child.process import Keeper, Launch
from workers.targets.target import DeviceError, Kernels, RunConfig

# As `--engine` takes it.
SGLANG = "sglang"
ROOT = Path(__file__).resolve().parents[3]
CHILD = "workers.targets.sglang.inside.main"
HOME = ".venv-sglang"
# No compilation. The barrier is CUDA's alone without being asked for. Of long outputs
# as little is reckoned with as of those that servers see: a pool runs short here, too. Logprobs are those of the
# model's own distribution, not at a request's temperature. Sums are made in one order on all processors with AVX2.
ENVIRONMENT = {
    **installation.ENVIRONMENT,
    "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "8",
    "SGLANG_USE_CPU_ENGINE": "0",
    "SGLANG_ENABLE_WAR_BARRIER": "1",
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


def home_of(config: RunConfig) -> Path:
    """Return the folder of the installation that is asked for, by default this checkout's."""
    return Path(config.engine_home) if config.engine_home else ROOT / HOME


def making() -> str:
    """Return how an installation is made, from a checkout or from what was installed of a wheel."""
    return making_of("sglang", HOME, ROOT)


def python_at(home: Path) -> Path:
    """Return the Python of an installation.

    Raises:
        DeviceError: it is not installed; the message says what to do.
    """
    python = python_of(home)
    if python is None:
        raise DeviceError(f"engine {SGLANG}: SGLang is not installed in {home}; {making()}")
    return python


def launch(home: Path, overlay: str = "", kernels: Kernels = "defined", fixes: str = "") -> Launch:
    """Return how a process is started: with a source tree laid over the installed one, and with fixes applied.

    Raises:
        DeviceError: it is not installed; the message says what to do.
    """
    python = python_at(home)
    own = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    laid_over = (overlay,) if overlay else ()
    command = (str(python), "-m", CHILD, kernels, str(home / "models"), fixes, *laid_over)
    return Launch(command, {**ENVIRONMENT, **own}, ROOT)


@cache
def keeper_of(home: Path, overlay: str, kernels: Kernels, fixes: str) -> Keeper:
    """Return the keeper of the process of an installation with a tree laid over it and fixes; it ends with ours."""
    return kept(SGLANG, partial(launch, home, overlay, kernels, fixes))


def overlay_text(tree: str, home: Path) -> str:
    """Return what runs where files are laid over the installation in a folder."""
    count = len([*Path(tree, "sglang").rglob("*.py")])
    return f"{count} file{'s' * (count != 1)} of {tree} over SGLang {installed(home) or 'of an unknown version'}"


def installed(home: Path) -> str:
    """Return the version of the installation in a folder; nothing where none is told."""
    for found in home.glob("lib/python*/site-packages/sglang-*.dist-info"):
        return found.name.removesuffix(".dist-info").partition("-")[2]
    return ""
