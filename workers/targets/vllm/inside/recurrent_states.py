"""Observer of recurrent states: each row's state block, and the tokens that it includes."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from workers.targets.child.inside.readback import Parts


def states_of(groups: Sequence[Any]) -> dict[str, Parts]:
    """Return each row's state block per recurrent KV-cache group, and which state it continues.

    A row continues after the `kept` first tokens of the step before. Some rows write one state after all of their
    tokens (`whole`), others one after each token; gated delta nets put each of these in a block of its own (`left`).
    """
    found: dict[str, Parts] = {}
    for number, metadata in enumerate(groups):
        is_gated = hasattr(metadata, "non_spec_state_indices_tensor")
        values = _delta_net_states(metadata) if is_gated else _convolution_states(metadata)
        found |= {f"{name}_{number}": parts for name, parts in values.items()}
    return found


def copies_of(buffers: Any, num_rows: int) -> dict[str, Parts]:
    """Return by row how many tokens of the last step the copied state includes; 0: no copy.

    {} without draft tokens, or if states are not kept at block ends.
    """
    aligned = getattr(buffers, "postprocess_align", None)
    if aligned is None:
        return {}
    columns, biases = (each.cpu[:num_rows] for each in (aligned.precopy_src_col_buf, aligned.precopy_token_bias_buf))
    return {"copied": [torch.where(columns < 0, 0, biases + 1)]}


def _convolution_states(metadata: Any) -> dict[str, list[torch.Tensor]]:
    """Return state blocks of short-convolution layers by row, and where rows continue.

    Decode rows, with or without draft tokens, come first and continue from a state. Prefill rows continue after the
    first token of the step before, and write one state after all of their tokens.
    """
    slots, goes_on = [], [torch.ones(metadata.num_decodes, dtype=torch.bool)]
    kept = [torch.ones(metadata.num_decodes, dtype=torch.int32)]
    if metadata.num_decodes:
        slots.append(metadata.state_indices_tensor_d[:, 0])
        if metadata.num_accepted_tokens is not None:
            kept = [metadata.num_accepted_tokens]
    if metadata.num_prefills:
        slots.append(metadata.state_indices_tensor_p)
        goes_on.append(metadata.has_initial_states_p)
        kept.append(torch.ones(metadata.num_prefills, dtype=torch.int32))
    whole = [torch.arange(metadata.num_decodes + metadata.num_prefills) >= metadata.num_decodes]
    return {"states": slots, "goes_on": goes_on, "kept": kept, "whole": whole}


def _delta_net_states(metadata: Any) -> dict[str, list[torch.Tensor]]:
    """Return state blocks of gated-delta-net layers by row, and where rows continue.

    Rows with and without draft tokens may alternate.
    """
    found: dict[str, list[torch.Tensor]] = {name: [] for name in ("states", "goes_on", "kept", "whole", "left")}
    for verifies, first, count in _runs(metadata):
        rows = slice(first, first + count)
        ones = torch.ones(count, dtype=torch.int32)
        if verifies:
            left, kept = metadata.spec_state_indices_tensor[rows], metadata.num_accepted_tokens[rows]
            goes_on, whole = [ones.bool()], ~ones.bool()
        else:
            left, kept = metadata.non_spec_state_indices_tensor[rows].unsqueeze(1), ones
            whole = torch.arange(first, first + count) >= metadata.num_decodes
            # Decode rows come first, and always continue from a state.
            goes_on = [ones[: max(0, min(count, metadata.num_decodes - first))].bool()]
            if metadata.num_prefills:
                goes_on.append(metadata.has_initial_state[rows][len(goes_on[0]) :])
        values = {"states": [left[:, 0]], "goes_on": goes_on, "kept": [kept], "whole": [whole], "left": [left]}
        for name, parts in values.items():
            found[name] += parts
    return found


def _runs(metadata: Any) -> Iterator[tuple[bool, int, int]]:
    """Yield (has drafts, first row, number of rows) of consecutive rows with or without drafts."""
    others = metadata.num_decodes + metadata.num_prefills
    if metadata.spec_sequence_masks_cpu is None:
        yield False, 0, others
        return
    mask = metadata.spec_sequence_masks_cpu[: others + metadata.num_spec_decodes].tolist()
    seen = {True: 0, False: 0}
    for verifies, run in groupby(mask):
        count = len(list(run))
        yield verifies, seen[verifies], count
        seen[verifies] += count
