"""Lay out what the oracle knows the way the engine's captures are laid out, and nothing outside a variable's domain."""

from collections.abc import Sequence
from typing import Any, TypeAlias

from scenarios.spec import EngineSpec
from workers.oracle import Release, RowTruth, StepTruth

PAD_SLOT = -1


# Expected values from an offset on: of one row (None: padding), from a position on (None: has none).
Segment: TypeAlias = tuple[int, Sequence[Any], RowTruth | Release | None, int | None]
Layout: TypeAlias = dict[str, list[Segment]]


def expected_inputs(step: StepTruth, spec: EngineSpec) -> Layout:
    """Return what must be fed to the model, padding included."""
    k = spec.num_speculative_tokens
    hybrid = spec.layers == "hybrid"
    layout: Layout = {
        "num_computed": [],
        "accepted_read": [],
        "seq_lens": [],
        "positions": [],
        "slots": [],
        "scheduled_drafts": [],
        "input_ids": [],
    }
    end = 0
    for index, (row, start) in enumerate(zip(step.rows, step.starts, strict=True)):
        n, computed = row.row.n, row.computed
        layout["num_computed"].append((index, (computed,), row, None))
        if hybrid and computed > 0:
            layout["accepted_read"].append((index, (row.accepted_read,), row, None))
        layout["seq_lens"].append((index, (computed + n,), row, None))
        layout["positions"].append((start, list(range(computed, computed + n)), row, computed))
        layout["slots"].append((start, row.slots, row, computed))
        layout["scheduled_drafts"].append((index * k, row.drafts, row, row.base + 1))
        ids = row.truth.tape.tokens[computed : row.base + 1] + [max(0, draft) for draft in row.drafts]
        layout["input_ids"].append((start, ids, row, computed))
        end = start + n
    padding = step.num_tokens - end
    if padding:
        layout["positions"].append((end, [0] * padding, None, None))
        layout["slots"].append((end, [PAD_SLOT] * padding, None, None))
        layout["input_ids"].append((end, [0] * padding, None, None))
    rows = len(step.rows)
    if step.num_rows > rows:
        layout["seq_lens"].append((rows, [0] * (step.num_rows - rows), None, None))
    return layout


def expected_sampled(step: StepTruth, spec: EngineSpec) -> Layout:
    """Return what must be sampled and counted."""
    width = 1 + spec.num_speculative_tokens
    layout: Layout = {"sampled": [], "accepted": [], "valid": [], "next_tokens": []}
    for index, row in enumerate(step.rows):
        if row.valid:
            tokens = row.truth.tape.tokens[row.base + 1 : row.base + 1 + row.valid]
            layout["sampled"].append((index * width, tokens, row, row.base + 1))
        layout["accepted"].append((index, (1 if row.discard else row.valid,), row, None))
        layout["valid"].append((index, (row.valid,), row, None))
        layout["next_tokens"].append((index, (row.next_token,), row, None))
    return layout


def expected_state(step: StepTruth, spec: EngineSpec) -> Layout:
    """Return what caches, recurrent state and drafts must be at the end of a step."""
    k, count = spec.num_speculative_tokens, spec.conv_width - 1
    hybrid = spec.layers == "hybrid"
    layout: Layout = {"kv": [], "attention": [], "drafter_kv": [], "raw": [], "proposed": []}
    if hybrid:
        layout |= {"slot_accepted": [], "state": [], "window": []}
    for index, (row, start) in enumerate(zip(step.rows, step.starts, strict=True)):
        computed, kept, tape = row.computed, row.kept, row.truth.tape
        layout["attention"].append((start, tape.attention[computed:kept], row, computed))
        layout["kv"].append((start, tape.kv[computed:kept], row, computed))
        drafter_kv = tape.drafter_kv[computed:kept]
        if row.discard:
            drafter_kv[-1] = row.chunk_end
        layout["drafter_kv"].append((start, drafter_kv, row, computed))
        layout["raw"].append((index * k, row.raw, row, kept + 1))
        layout["proposed"].append((index * k, row.proposed, row, kept + 1))
        if hybrid:
            layout["slot_accepted"].append((index, (1 if row.discard else row.valid,), row, None))
            if kept:
                layout["state"].append((index, (tape.states[kept - 1],), row, kept - 1))
                layout["window"].append((index * count, tape.window(kept), row, kept - count))
    return layout


def expected_release(release: Release) -> Layout:
    """Return what the caches of a request must hold when its blocks go back."""
    return {"kv_at_end": [(0, release.kv, release, 0)], "drafter_kv_at_end": [(0, release.drafter_kv, release, 0)]}
