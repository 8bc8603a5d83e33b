"""Lay out what the oracle knows the way the engine's captures are laid out, and nothing outside a variable's domain."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from scenarios.spec import EngineSpec
from workers.oracle import Release, RowTruth, StepTruth

PAD_SLOT = -1


@dataclass(frozen=True, slots=True)
class Segment:
    """Expected values from `offset` on: of one request (None: padding), from `position` on (None: has none)."""

    offset: int
    values: Sequence[Any]
    request: str
    commit: str
    position: int | None


Layout = dict[str, list[Segment]]


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
    add = _adder(layout)
    end = 0
    for index, (row, start) in enumerate(zip(step.rows, step.starts, strict=True)):
        n, computed = row.row.n, row.computed
        add("num_computed", index, (computed,), row, None)
        if hybrid and computed > 0:
            add("accepted_read", index, (row.accepted_read,), row, None)
        add("seq_lens", index, (computed + n,), row, None)
        add("positions", start, list(range(computed, computed + n)), row, computed)
        add("slots", start, row.slots, row, computed)
        add("scheduled_drafts", index * k, row.drafts, row, row.base + 1)
        ids = row.truth.tape.tokens[computed : row.base + 1] + [max(0, draft) for draft in row.drafts]
        add("input_ids", start, ids, row, computed)
        end = start + n
    padding = step.num_tokens - end
    if padding:
        layout["positions"].append(Segment(end, [0] * padding, "padding", "padding", None))
        layout["slots"].append(Segment(end, [PAD_SLOT] * padding, "padding", "padding", None))
        layout["input_ids"].append(Segment(end, [0] * padding, "padding", "padding", None))
    rows = len(step.rows)
    if step.num_rows > rows:
        layout["seq_lens"].append(Segment(rows, [0] * (step.num_rows - rows), "padding", "padding", None))
    return layout


def expected_sampled(step: StepTruth, spec: EngineSpec) -> Layout:
    """Return what must be sampled and counted."""
    width = 1 + spec.num_speculative_tokens
    layout: Layout = {"sampled": [], "accepted": [], "valid": [], "next_tokens": []}
    add = _adder(layout)
    for index, row in enumerate(step.rows):
        if row.valid:
            tokens = row.truth.tape.tokens[row.base + 1 : row.base + 1 + row.valid]
            add("sampled", index * width, tokens, row, row.base + 1)
        add("accepted", index, (1 if row.discard else row.valid,), row, None)
        add("valid", index, (row.valid,), row, None)
        add("next_tokens", index, (row.next_token,), row, None)
    return layout


def expected_state(step: StepTruth, spec: EngineSpec) -> Layout:
    """Return what caches, recurrent state and drafts must be at the end of a step."""
    k, count = spec.num_speculative_tokens, spec.conv_width - 1
    hybrid = spec.layers == "hybrid"
    layout: Layout = {"kv": [], "attention": [], "drafter_kv": [], "raw": [], "proposed": []}
    if hybrid:
        layout |= {"slot_accepted": [], "state": [], "window": []}
    add = _adder(layout)
    for index, (row, start) in enumerate(zip(step.rows, step.starts, strict=True)):
        computed, kept, tape = row.computed, row.kept, row.truth.tape
        add("attention", start, tape.attention[computed:kept], row, computed)
        add("kv", start, tape.kv[computed:kept], row, computed)
        drafter_kv = tape.drafter_kv[computed:kept]
        if row.discard:
            drafter_kv[-1] = row.chunk_end
        add("drafter_kv", start, drafter_kv, row, computed)
        add("raw", index * k, row.raw, row, kept + 1)
        add("proposed", index * k, row.proposed, row, kept + 1)
        if hybrid:
            add("slot_accepted", index, (1 if row.discard else row.valid,), row, None)
            if kept:
                add("state", index, (tape.states[kept - 1],), row, kept - 1)
                add("window", index * count, tape.window(kept), row, kept - count)
    return layout


def expected_release(release: Release) -> Layout:
    """Return what the caches of a request must hold when its blocks go back."""
    at = (release.truth.name, release.commit, 0)
    return {
        "kv_at_end": [Segment(0, release.kv, *at)],
        "drafter_kv_at_end": [Segment(0, release.drafter_kv, *at)],
    }


def _adder(layout: Layout) -> Any:
    def add(variable: str, offset: int, values: Sequence[Any], row: RowTruth, position: int | None) -> None:
        layout[variable].append(Segment(offset, values, row.truth.name, row.commit, position))

    return add
