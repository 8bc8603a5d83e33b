"""Observations of recurrent states: in which blocks a step's rows have them, and behind how much they go on."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

import torch

from workers.targets.child.inside.readback import Parts


def states_of(groups: Sequence[Any]) -> dict[str, Parts]:
    """Return of each group of layers with a state in which slot it is, row by row, and whether a row goes on from it.

    Rows go on behind as many tokens of the step before as are `kept` of it. Some leave a state behind the `whole` of
    their tokens, others one behind each: of gated delta nets each of those is in a block of its own (`left`).
    """
    found: dict[str, Parts] = {}
    for number, metadata in enumerate(groups):
        is_gated = hasattr(metadata, "non_spec_state_indices_tensor")
        told = _of_delta_nets(metadata) if is_gated else _of_convolutions(metadata)
        found |= {f"{name}_{number}": parts for name, parts in told.items()}
    return found


def copies_of(buffers: Any, num_rows: int) -> dict[str, Parts]:
    """Return of each row behind how many tokens of the step before its state is copied to a new block, 0 if it is not.

    That is where states at ends of blocks are kept, beside drafts.
    """
    aligned = getattr(buffers, "postprocess_align", None)
    if aligned is None:
        return {}
    columns, biases = (each.cpu[:num_rows] for each in (aligned.precopy_src_col_buf, aligned.precopy_token_bias_buf))
    return {"copied": [torch.where(columns < 0, 0, biases + 1)]}


def _of_convolutions(metadata: Any) -> dict[str, list[torch.Tensor]]:
    """Return what is told of short convolutions.

    Rows that verify drafts or have one token come first: all of these go on. Others go on behind the first token of
    the step before, and leave a state behind the whole of theirs.
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


def _of_delta_nets(metadata: Any) -> dict[str, list[torch.Tensor]]:
    """Return what is told of gated delta nets: rows of either kind may stand between those of the other."""
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
            # Those that are no prompts come first, and go on from a state whatever it is.
            goes_on = [ones[: max(0, min(count, metadata.num_decodes - first))].bool()]
            if metadata.num_prefills:
                goes_on.append(metadata.has_initial_state[rows][len(goes_on[0]) :])
        told = {"states": [left[:, 0]], "goes_on": goes_on, "kept": [kept], "whole": [whole], "left": [left]}
        for name, parts in told.items():
            found[name] += parts
    return found


def _runs(metadata: Any) -> Iterator[tuple[bool, int, int]]:
    """Yield runs of rows that verify drafts or do not: whether they do, the first one among its kind, how many."""
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
