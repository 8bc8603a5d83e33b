"""Expected captures: what the oracle knows, laid out as the engine shows it, and nothing outside a variable's domain.

Of logprobs the ids and their order are expected exactly, each logprob within TOLERANCE.
"""

from collections.abc import Sequence
from struct import pack, unpack
from typing import Any, TypeAlias

from scenarios.spec import ON_THE_HOST, THROUGH_THE_HOST, EngineSpec
from workers.oracle.derived import keeps_states_with_blocks
from workers.oracle.logits_processing import ONE, hash_of
from workers.oracle.random_sampling import ACCEPT_STREAM, SELECT_STREAM, noise
from workers.oracle.rejection_sampling import NUM_TRIES
from workers.oracle.truth import Release, RowTruth, StepTruth

PAD_SLOT = -1
# An engine sums float32 exponentials of logits below 16: its error stays below 1e-5 for 65536 tokens.
TOLERANCE = 1e-4

Flat: TypeAlias = tuple[int | float, ...]


# Expected values from an offset on; whose they are (a row, one row a value, or None: padding); where the first of them
# is in its request, or where each is.
Owner: TypeAlias = RowTruth | Release
Segment: TypeAlias = tuple[int, list[Any], Owner | list[RowTruth] | None, int | list[int] | None]
Expectation: TypeAlias = dict[str, list[Segment]]


def position_of(segment: Segment, index: int) -> int | None:
    """Return the position of a value of a segment, if it has one."""
    first = segment[3]
    return first[index] if isinstance(first, list) else None if first is None else first + index


def expected_inputs(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return what must be fed to the model, padding included."""
    k, last_token, rows = spec.num_speculative_tokens, spec.vocab_size - 1, list(step.rows)
    # Token by token, for the tokens of all rows lie one after the other.
    owners: list[RowTruth] = []
    positions: list[int] = []
    slots: list[int] = []
    input_ids: list[int] = []
    drafts: list[Segment] = []
    for index, row in enumerate(rows):
        computed, n, base = row.computed, row.row.n, row.base
        owners += [row] * n
        positions += range(computed, computed + n)
        slots += row.slots
        input_ids += row.tape.tokens[computed : base + 1]
        if row.drafts:
            drafts.append((index * k, row.drafts, row, base + 1))
            # What is no token is fed as the nearest one.
            input_ids += [0 if draft < 0 else last_token if draft > last_token else draft for draft in row.drafts]
    expected: Expectation = {
        "num_computed": [(0, [row.computed for row in rows], rows, None)],
        "seq_lens": [(0, [row.computed + row.row.n for row in rows], rows, None)],
        "positions": [(0, positions, owners, positions)],
        "slots": [(0, slots, owners, positions)],
        "scheduled_drafts": drafts,
        "input_ids": [(0, input_ids, owners, positions)],
    }
    padding = step.num_tokens - len(positions)
    if padding:
        for variable, nothing in (("positions", 0), ("slots", PAD_SLOT), ("input_ids", 0)):
            expected[variable].append((len(positions), [nothing] * padding, None, None))
    if step.num_rows > len(rows):
        expected["seq_lens"].append((len(rows), [0] * (step.num_rows - len(rows)), None, None))
    if spec.layers == "hybrid":
        expected["accepted_read"] = _where(rows, [row.accepted_read for row in rows], [row.computed for row in rows])
    return expected


def expected_sampling(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return how each row must be sampled, by chance from which tokens and with which noise, and what is told of it.

    Float32 numbers are given as their bits; a temperature is in units of logits.
    """
    rows = list(step.rows)
    params = [row.truth.params for row in rows]
    samples = [int(not row.discard) for row in rows]
    by_chance = [
        int(here and (each.temperature > 0 or spec.sampling == "synthetic"))
        for here, each in zip(samples, params, strict=True)
    ]
    if spec.sampling != "synthetic" and not any(by_chance):
        return {}
    read: Expectation = {}
    if spec.draft_sampling == "probabilistic" and spec.num_speculative_tokens:
        read["draft_logits_read"] = [
            (
                index * spec.num_speculative_tokens,
                [hash_of(each.logits) for each in row.drawn],
                row,
                row.base + 1,
            )
            for index, row in enumerate(rows)
            if by_chance[index] and row.drawn
        ]
    accept_noise, select_noise = _expected_noise(rows, by_chance, spec)
    return read | {
        "temperature": _where(rows, [_bits(each.temperature * ONE) for each in params], samples),
        "top_p": _where(rows, [_bits(each.top_p) for each in params], by_chance),
        "top_k": _where(rows, [each.top_k for each in params], by_chance),
        "seeds": _where(rows, [each.seed for each in params], by_chance),
        "noise_positions": _where(rows, [row.base + 1 for row in rows], by_chance),
        "accept_noise": accept_noise,
        "select_noise": select_noise,
        "sampler_status": _where(rows, [row.status for row in rows], samples),
    }


def _expected_noise(
    rows: Sequence[RowTruth], by_chance: Sequence[int], spec: EngineSpec
) -> tuple[list[Segment], list[Segment]]:
    """Return the numbers by which drafts are kept, and those which select tokens: four a column and a try, as bits."""
    k, num_tries = spec.num_speculative_tokens, NUM_TRIES if spec.draft_sampling == "probabilistic" else 0
    accept: list[Segment] = []
    select: list[Segment] = []
    for index, row in enumerate(rows):
        if by_chance[index]:
            params, position, d = row.truth.params, row.base + 1, row.row.d
            kept_by = [noise(params, position, ACCEPT_STREAM, column)[0] for column in range(d)]
            selected_by = [
                number
                for column in range(1 + d)
                for tried in range(1 + num_tries)
                for number in noise(params, position + column, SELECT_STREAM, tried)
            ]
            accept.append((index * k, [*map(_bits, kept_by)], row, position))
            select.append((index * (1 + k) * (1 + num_tries) * 4, [*map(_bits, selected_by)], row, None))
    return accept, select


def _bits(number: float) -> int:
    """Return the bits of a number, which is not negative, as float32."""
    (bits,) = unpack("i", pack("f", number))
    return int(bits)


def expected_sampled(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return what the model must compute, and what must be sampled and counted."""
    width, rows = 1 + spec.num_speculative_tokens, list(step.rows)
    kv: list[Segment] = []
    attention: list[Segment] = []
    hidden: list[Segment] = []
    logits: list[Segment] = []
    sampled: list[Segment] = []
    for index, (row, start) in enumerate(zip(rows, step.starts, strict=True)):
        tape, computed, kept, base, valid = row.tape, row.computed, row.kept, row.base, row.valid
        kv.append((start, tape.kv[computed:kept], row, computed))
        attention.append((start, tape.attention[computed:kept], row, computed))
        hidden.append((start, tape.hidden[computed:kept], row, computed))
        if valid:
            sampled.append((index * width, tape.tokens[base + 1 : base + 1 + valid], row, base + 1))
            if tape.logits:
                logits.append((index * width, tape.logits_at(base, valid), row, base))
    expected: Expectation = {"kv": kv, "attention": attention, "hidden": hidden}
    if logits:
        expected["logits"] = logits
    expected["sampled"] = sampled
    expected["accepted"] = [(0, [row.accepted for row in rows], rows, None)]
    expected["valid"] = [(0, [row.valid for row in rows], rows, None)]
    expected["next_tokens"] = [(0, [row.next_token for row in rows], rows, None)]
    return expected


def expected_state(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return what the drafter's cache, recurrent state and drafts must be at the end of a step."""
    k, rows = spec.num_speculative_tokens, list(step.rows)
    expected: Expectation = {"drafter_kv": [], "raw": [], "proposed": []}
    drafter_kv, raw, proposed = expected.values()
    has_cache, length_max = spec.drafter not in THROUGH_THE_HOST, spec.drafter_max_len
    on_device = () if spec.drafter in ON_THE_HOST else zip(rows, step.starts, strict=True)
    for index, (row, start) in enumerate(on_device):
        computed, kept = row.computed, row.kept
        if has_cache:
            words = row.tape.drafter.words[computed:kept]
            if row.discard:
                words[-1] = row.chunk_end
            if length_max:
                words = words[: max(0, length_max - computed)]
            drafter_kv.append((start, words, row, computed))
        raw.append((index * k, [*row.raw], row, kept + 1))
        proposed.append((index * k, [*row.proposed], row, kept + 1))
    if spec.layers == "hybrid":
        count = spec.conv_width - 1
        kept_all = [row.kept for row in rows]
        states = [row.tape.states[row.kept - 1] for row in rows]
        expected["slot_accepted"] = [(0, [row.accepted for row in rows], rows, None)]
        expected["state"] = _where(rows, states, kept_all)
        expected["window"] = [
            (index * count, row.tape.window(row.kept), row, row.kept - count)
            for index, row in enumerate(rows)
            if row.kept
        ]
    return expected


def expected_drafted(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return what only some drafters have: their own predictions, recurrent states, and words they carry on."""
    k, count, rows = spec.num_speculative_tokens, spec.conv_width - 1, list(step.rows)
    if spec.drafter == "mtp":
        carried = [row.tape.hidden[row.kept - 1] for row in rows]
        return {"carried": _where(rows, carried, [row.kept for row in rows])}
    if spec.drafter != "draft_model":
        return {}
    expected: Expectation = {"own": [(index * k, [*row.own], row, row.kept + 1) for index, row in enumerate(rows)]}
    if spec.layers == "hybrid":
        limit = spec.drafter_max_len or spec.max_model_len
        here = [(index, row, row.tape) for index, row in enumerate(rows) if 0 < row.kept <= limit]
        expected["drafter_state"] = [(index, [tape.states[row.kept - 1]], row, None) for index, row, tape in here]
        expected["drafter_window"] = [
            (index * count, tape.window(row.kept), row, row.kept - count) for index, row, tape in here
        ]
    return expected


def expected_kept(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the states that must be kept with the blocks in which each row computed, once it is known what stays.

    A capture shows the blocks from that of the token before the verified ones on: of a full block the state at its
    end, of the last one the state after the last token that stays.
    """
    size, count = spec.block_size, spec.conv_width - 1
    # A run of 1 + K tokens and the one before it touch at most so many blocks.
    num_compared = 1 + (spec.num_speculative_tokens + size) // size
    states: list[Segment] = []
    windows: list[Segment] = []
    for index, row in enumerate(step.rows):
        first = max(0, row.base - 1) // size
        for column in range(first, -(-row.kept // size)):
            at, end = index * num_compared + column - first, min((column + 1) * size, row.kept)
            states.append((at, [row.tape.states[end - 1]], row, end - 1))
            windows.append((at * count, row.tape.window(end), row, end - count))
    return {"block_state": states, "block_window": windows}


def expected_release(release: Release, spec: EngineSpec) -> Expectation:
    """Return what the caches of a request must hold when its blocks go back."""
    expected: Expectation = {
        "kv_at_end": [(0, [*release.kv], release, 0)],
        "drafter_kv_at_end": [(0, [*release.drafter_kv], release, 0)],
    }
    if keeps_states_with_blocks(spec):
        tape, size, count, length = release.tape, spec.block_size, spec.conv_width - 1, len(release.kv)
        ends = [min(start + size, length) for start in range(0, length, size)]
        expected["block_state_at_end"] = [(at, [tape.states[end - 1]], release, end - 1) for at, end in enumerate(ends)]
        expected["block_window_at_end"] = [
            (at * count, tape.window(end), release, end - count) for at, end in enumerate(ends)
        ]
    return expected


def _where(rows: list[RowTruth], values: list[int], defined: list[int]) -> list[Segment]:
    """Return one value a row, for the rows whose `defined` is not 0."""
    if all(defined):
        return [(0, values, rows, None)]
    return [(index, values[index : index + 1], rows[index], None) for index in range(len(rows)) if defined[index]]


def expected_logprobs(rows: Sequence[RowTruth], delivered: Sequence[tuple[int, ...]], mode: str) -> list[Flat] | None:
    """Return the logprobs of the tokens that each row delivers, or None if no row that samples wants any."""
    if not [row for row in rows if row.truth.num_logprobs and not row.discard]:
        return None
    found: list[Flat] = []
    for row, tokens in zip(rows, delivered, strict=True):
        truth = row.truth
        values: list[int | float] = []
        if truth.num_logprobs:
            for position in range(row.base, row.base + len(tokens)):
                values += row.tape.logprobs_after(position, truth.num_logprobs, mode)
        found.append(tuple(values))
    return found


def are_close(seen: Flat, wanted: Flat) -> bool:
    """Tell whether logprobs are the same: ids are integers and equal, the others close."""
    return len(seen) == len(wanted) and all(map(_is_close, seen, wanted))


def _is_close(seen: float, wanted: float) -> bool:
    return seen == wanted or (type(wanted) is float and abs(seen - wanted) <= TOLERANCE)
