"""Registry of the engines that can be driven: each is loaded when it is first asked for."""

from importlib import import_module

from workers.targets.target import SPECSTORM, TargetKind

# The name that `--engine` takes, and where the kind is: module and class.
_KINDS: dict[str, tuple[str, str]] = {
    SPECSTORM: ("workers.targets.specstorm", "Specstorm"),
    "vllm": ("workers.targets.vllm.target", "Vllm"),
    "vllm-v1": ("workers.targets.vllm.target", "VllmV1"),
    "sglang": ("workers.targets.sglang.target", "Sglang"),
}


def known_engines() -> tuple[str, ...]:
    """Return the names of the engines that can be driven."""
    return tuple(_KINDS)


def kind_of(engine: str) -> TargetKind:
    """Return the kind of engine of a name.

    Raises:
        KeyError: there is none.
    """
    module, name = _KINDS[engine]
    kind: TargetKind = getattr(import_module(module), name)()
    return kind


def is_counted(probe: str, engine: str) -> bool:
    """Whether an engine counts a probe; of one that is not known here all are taken to be."""
    return engine not in _KINDS or probe in kind_of(engine).capabilities.probes
