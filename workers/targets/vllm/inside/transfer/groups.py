"""Groups of layers of vLLM's cache (KV cache groups): those of attention, and those with recurrent states."""

from typing import Any


def group_numbers(config: Any) -> list[int]:
    """Return the numbers of the groups of layers that have blocks of their own, that of attention first."""
    groups = config.kv_cache_groups
    return sorted(range(len(groups)), key=lambda number: has_state(groups[number]))


def has_state(group: Any) -> bool:
    """Tell whether a group of layers has recurrent states in its blocks, and no tokens."""
    return hasattr(group.kv_cache_spec, "mamba_type")
