"""Make the environment of each release of vLLM that has no build for CPUs.

Run it by the Python of the CPU build: `.venv-vllm/bin/python -m workers.targets.vllm.releases`. Such a release runs as
Python sources with the compiled code of the CPU build (docs/engines.md).
"""

import sys
from pathlib import Path

from workers.targets.child.releases import InstallError, Release, overlay_environment
from workers.targets.vllm.installation import ROOT
from workers.targets.vllm.names import CPU_BUILD, ON_CPUS
from workers.targets.vllm.sources import PACKAGE


def main() -> int:
    """Make each environment that is missing or older than the CPU build; return the exit code."""
    build = ROOT / CPU_BUILD
    for version, folder in ON_CPUS.items():
        if folder == CPU_BUILD or _is_newer(ROOT / folder / "installed", build / "installed"):
            continue
        # vLLM selects its platform by the suffix of this version.
        distributions = {PACKAGE: version, "vllm": f"{version}+cpu"}
        try:
            overlay_environment(Release("vllm", version), ROOT / folder, build / "bin" / "python", distributions)
        except InstallError as error:
            print(f"vLLM {version}: {error}", file=sys.stderr)
            return 1
        # The second runner has Triton on its path.
        (ROOT / folder / "triton").symlink_to(build / "triton")
    return 0


def _is_newer(file: Path, other: Path) -> bool:
    return file.exists() and file.stat().st_mtime >= other.stat().st_mtime


if __name__ == "__main__":
    sys.exit(main())
