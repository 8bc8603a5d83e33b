"""Registry of the engines; each engine's module is imported when first used."""

from importlib import import_module

from workers.targets.target import SPECSTORM, TargetKind

# By the value of `--engine`: the module and the class of the kind of engine.
_KINDS: dict[str, tuple[str, str]] = {
    SPECSTORM: ("workers.targets.specstorm", "Specstorm"),
    "vllm": ("workers.targets.vllm.target", "Vllm"),
    "vllm-v1": ("workers.targets.vllm.target", "VllmV1"),
    "sglang": ("workers.targets.sglang.target", "Sglang"),
}


def known_engines() -> tuple[str, ...]:
    """Return the engine names that `--engine` accepts."""
    return tuple(_KINDS)


def target_kind(engine: str) -> TargetKind:
    """Return the kind of engine with this name, e.g. `vllm`.

    Raises:
        KeyError: no engine has this name.
    """
    module, name = _KINDS[engine]
    kind: TargetKind = getattr(import_module(module), name)()
    return kind


def is_counted(probe: str, engine: str) -> bool:
    """Return whether an engine counts a probe (a situation in a run); True if unknown."""
    return engine not in _KINDS or probe in target_kind(engine).capabilities.probes
