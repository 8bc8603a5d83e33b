"""Groups of layers of vLLM's cache (KV cache groups): of full attention, of recurrent states, of sliding windows."""

from typing import Any


def group_numbers(config: Any) -> list[int]:
    """Return the number of the group of full attention, and of those whose layers have states."""
    groups, windows = config.kv_cache_groups, window_numbers(config)
    numbers = [number for number in range(len(groups)) if number not in windows]
    return sorted(numbers, key=lambda number: has_state(groups[number]))


def window_numbers(config: Any) -> list[int]:
    """Return the numbers of the groups of layers that see the last tokens alone, where others see all."""
    from vllm.v1.kv_cache_interface import SlidingWindowSpec  # noqa: PLC0415  what they replace must be replaced by then

    groups = config.kv_cache_groups
    found = [number for number, group in enumerate(groups) if isinstance(group.kv_cache_spec, SlidingWindowSpec)]
    return found if len(found) < len(groups) else found[1:]


def has_state(group: Any) -> bool:
    """Tell whether a group of layers has recurrent states in its blocks, and no tokens."""
    return hasattr(group.kv_cache_spec, "mamba_type")
