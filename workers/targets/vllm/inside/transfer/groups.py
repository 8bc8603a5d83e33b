"""KV-cache groups of vLLM: full attention, recurrent states, sliding windows."""

from typing import Any


def group_numbers(config: Any) -> list[int]:
    """Return the index of the full-attention group, then of groups with recurrent states."""
    groups, windows = config.kv_cache_groups, window_numbers(config)
    numbers = [number for number in range(len(groups)) if number not in windows]
    return sorted(numbers, key=lambda number: has_state(groups[number]))


def window_numbers(config: Any) -> list[int]:
    """Return the indexes of sliding-window groups; if all groups are such, all but the first."""
    from vllm.v1.kv_cache_interface import SlidingWindowSpec  # noqa: PLC0415  import after our replacements in vLLM

    groups = config.kv_cache_groups
    found = [number for number, group in enumerate(groups) if isinstance(group.kv_cache_spec, SlidingWindowSpec)]
    return found if len(found) < len(groups) else found[1:]


def has_state(group: Any) -> bool:
    """Return whether the blocks of a KV-cache group hold recurrent states."""
    return hasattr(group.kv_cache_spec, "mamba_type")
