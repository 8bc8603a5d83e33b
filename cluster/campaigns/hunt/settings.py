"""Settings of a hunt: what its traces are, and the fault that it must find to prove that it sees anything."""

from scenarios.shards import Profile
from scenarios.spec import Value
from workers.targets.registry import kind_of
from workers.targets.target import RunConfig

# It replaces a function of the host, and so exists on every device.
CANARY = "vllm-38556-backup-token"


class HuntSettings(Value):
    """What a hunt looks at: its traces and faults, on which engine and device; `canary` is the fault it must find.

    `canary` is empty for an engine in which no fault can be switched on, `corpus` the digest of the traces that the
    hunt begins from, empty for none.
    """

    profile: Profile = "mixed"
    seed: int = 0
    faults: tuple[str, ...] = ()
    canary: str = CANARY
    config: RunConfig = RunConfig()
    corpus: str = ""


def canary_of(config: RunConfig) -> str:
    """Return the fault that a hunt must find unless it is told otherwise; none in an engine without any."""
    return CANARY if kind_of(config.engine).capabilities.faults else ""
