"""Report on edited functions of an engine's sources that no trace executed."""

from collections.abc import Collection, Sequence

from workers.targets.registry import target_kind
from workers.targets.target import RunConfig

# The most functions that a line lists.
_NAMED = 5


def never_run(config: RunConfig, ran: Collection[str]) -> tuple[str, ...]:
    """Return the edited functions that no trace executed, given those that ran."""
    return tuple(name for name in target_kind(config.engine).edited(config).watched if name not in ran)


def edited_lines(config: RunConfig, ran: Collection[str]) -> list[str]:
    """Return lines on edited functions that never ran; none if no source is edited."""
    if not config.engine_path:
        return []
    edited = target_kind(config.engine).edited(config)
    idle = [name for name in edited.watched if name not in ran]
    lines = []
    if idle:
        lines.append(f"edited, never ran: {len(idle)} of {_count(len(edited.watched))}: {_named(idle)}")
    elif edited.watched:
        lines.append(f"edited: {_count(len(edited.watched))}, {'all ran' if len(edited.watched) > 1 else 'it ran'}")
    else:
        package = target_kind(config.engine).package
        lines.append(f"edited: no function of {config.engine_path} differs from the installed {package}")
    if edited.compiled:
        lines.append(f"edited, compiled, not known to run: {_named(edited.compiled)}")
    return lines


def _count(number: int) -> str:
    return f"{number:,} {'function' if number == 1 else 'functions'}"


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED:,} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
