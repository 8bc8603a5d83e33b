"""Find SGLang's virtual environment, and start SGLang's process in it."""

from functools import cache, partial
from pathlib import Path

from workers.targets.child import installation
from workers.targets.child.installation import install_advice_for, keeper_until_exit, python_of
from workers.targets.child.process import Keeper, Launch
from workers.targets.target import DeviceError, Kernels, RunConfig

# The name that `--engine` takes.
SGLANG = "sglang"
ROOT = Path(__file__).resolve().parents[3]
CHILD = "workers.targets.sglang.inside.main"
HOME = ".venv-sglang"
# No compilation. The write-after-read barrier is on, as it is on CUDA by default. The scheduler reserves slots for only
# 8 further output tokens of a request, so that a small KV cache runs out of slots, as on a busy server. Logprobs are
# computed without the request's temperature. Sums have the same order on all processors with AVX2.
ENVIRONMENT = {
    **installation.ENVIRONMENT,
    "SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION": "8",
    "SGLANG_USE_CPU_ENGINE": "0",
    "SGLANG_ENABLE_WAR_BARRIER": "1",
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "1",
    # Ranks are threads: polling SGLang's queue in shared memory, which only connectors use, would block all of them.
    "SGLANG_USE_MESSAGE_QUEUE_BROADCASTER": "0",
    "TORCHDYNAMO_DISABLE": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}


def home_of(config: RunConfig) -> Path:
    """Return the folder of the selected installation (default: the one of this checkout)."""
    return Path(config.engine_home) if config.engine_home else ROOT / HOME


def install_advice() -> str:
    """Return the advice how to install SGLang."""
    return install_advice_for("sglang", HOME, ROOT)


def python_at(home: Path) -> Path:
    """Return the Python interpreter of an installation.

    Raises:
        DeviceError: SGLang is not installed there; the message says what to do.
    """
    python = python_of(home)
    if python is None:
        raise DeviceError(f"engine {SGLANG}: SGLang is not installed in {home}; {install_advice()}")
    return python


def launch(home: Path, overlay: str = "", kernels: Kernels = "defined", fixes: str = "") -> Launch:
    """Return command and environment of the process, with the selected overlay and fixes.

    Raises:
        DeviceError: SGLang is not installed; the message says what to do.
    """
    python = python_at(home)
    own = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0"}
    laid_over = (overlay,) if overlay else ()
    command = (str(python), "-m", CHILD, kernels, str(home / "models"), fixes, *laid_over)
    return Launch(command, {**ENVIRONMENT, **own}, ROOT)


@cache
def keeper_of(home: Path, overlay: str, kernels: Kernels, fixes: str) -> Keeper:
    """Return the object that starts and keeps the process for these options."""
    return keeper_until_exit(SGLANG, partial(launch, home, overlay, kernels, fixes))


def overlay_text(tree: str, home: Path) -> str:
    """Return a text: how many files of a source tree overlay which version of SGLang."""
    count = len([*Path(tree, "sglang").rglob("*.py")])
    return (
        f"{count} file{'s' * (count != 1)} of {tree} over SGLang {installed_version(home) or 'of an unknown version'}"
    )


def installed_version(home: Path) -> str:
    """Return the version of SGLang installed in a folder; empty if it is unknown."""
    for found in home.glob("lib/python*/site-packages/sglang-*.dist-info"):
        return found.name.removesuffix(".dist-info").partition("-")[2]
    return ""
