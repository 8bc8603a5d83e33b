"""Expected values of captures (copies of device variables), in the layout of the engine.

Values outside the domain of a variable are not compared. Token ids of logprobs and their order must be exact, each
logprob within TOLERANCE.
"""

from collections.abc import Sequence
from math import inf
from operator import eq
from struct import pack, unpack
from typing import Any, TypeAlias

from scenarios.drafters import TRAITS
from scenarios.spec import EngineSpec
from workers.oracle.derived import keeps_states_with_blocks
from workers.oracle.logits_processing import ONE, hash_of
from workers.oracle.random_sampling import ACCEPT_STREAM, SELECT_STREAM, noise
from workers.oracle.rejection_sampling import NUM_TRIES
from workers.oracle.truth import Release, RowTruth, StepTruth

PAD_SLOT = -1
# Variables with one value for each token of each batch row.
_PER_TOKEN = frozenset({"positions", "slots", "input_ids", "kv", "attention", "hidden", "drafter_kv"})
# An engine sums float32 exponentials of logits below 16: its error stays below 1e-5 for 65536 tokens.
TOLERANCE = 1e-4

Flat: TypeAlias = tuple[int | float, ...]


# Marks a value outside its domain, which is not compared.
SCRATCH: Any = object()
# Expected values of each variable in capture order; a variable that is not compared is missing.
Expectation: TypeAlias = dict[str, list[Any]]
Owner: TypeAlias = RowTruth | Release
# The owner of a value (None for padding), and its position in that request, if any.
Place: TypeAlias = tuple[Owner | None, int | None]


def first_difference(wanted: Sequence[Any], actual: Sequence[Any]) -> int | None:
    """Return the first index at which a value differs from the expected one, or None.

    `actual` is at least as long as `wanted`.
    """
    # SCRATCH is equal to nothing.
    if sum(map(eq, wanted, actual)) == len(wanted) - wanted.count(SCRATCH):
        return None
    return next(
        index
        for index, (value, seen) in enumerate(zip(wanted, actual, strict=False))
        if value is not SCRATCH and value != seen
    )


def expected_inputs(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected model inputs of a step, padding included."""
    k, last_token, rows = spec.num_speculative_tokens, spec.vocab_size - 1, step.rows
    # Built token by token, because the tokens of all rows are concatenated.
    positions: list[int] = []
    slots: list[int] = []
    input_ids: list[int] = []
    scheduled: list[Any] = []
    for row in rows:
        computed, drafts = row.computed, row.drafts
        positions += range(computed, computed + row.row.n)
        slots += row.slots
        input_ids += row.model_values.tokens[computed : row.base + 1]
        if drafts:
            scheduled += drafts
            input_ids += drafts
        if len(drafts) < k:
            scheduled += [SCRATCH] * (k - len(drafts))
    if min(input_ids) < 0 or max(input_ids) > last_token:
        # Ids outside the vocabulary are clamped.
        input_ids = [0 if token < 0 else last_token if token > last_token else token for token in input_ids]
    seq_lens = [row.computed + row.row.n for row in rows]
    padding = step.num_tokens - len(positions)
    if padding:
        positions += [0] * padding
        slots += [PAD_SLOT] * padding
        input_ids += [0] * padding
    seq_lens += [0] * (step.num_rows - len(rows))
    expected: Expectation = {
        "num_computed": [row.computed for row in rows],
        "seq_lens": seq_lens,
        "positions": positions,
        "slots": slots,
        "scheduled_drafts": scheduled,
        "input_ids": input_ids,
    }
    if spec.layers == "hybrid":
        expected["accepted_read"] = [row.accepted_read if row.computed else SCRATCH for row in rows]
    return expected


def expected_poisoned(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the blocks that hold only poison before a step's writes, in ascending order."""
    return {"poisoned": [*step.poisoned]}


def expected_sampling(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected sampling parameters, noise, draft logits and status, by row.

    Float32 numbers are given as bits; a temperature is in units of logits.
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
        hashes: list[Any] = []
        for row, here in zip(rows, by_chance, strict=True):
            drawn = [hash_of(each.logits) for each in row.drawn] if here else []
            hashes += drawn + [SCRATCH] * (spec.num_speculative_tokens - len(drawn))
        read["draft_logits_read"] = hashes
    accept_noise, select_noise = _expected_noise(rows, by_chance, spec)
    return read | {
        "temperature": _where(_bits([each.temperature * ONE for each in params]), samples),
        "top_p": _where(_bits([each.top_p for each in params]), by_chance),
        "top_k": _where([each.top_k for each in params], by_chance),
        "seeds": _where([each.seed for each in params], by_chance),
        "noise_positions": _where([row.base + 1 for row in rows], by_chance),
        "accept_noise": accept_noise,
        "select_noise": select_noise,
        "sampler_status": _where([row.status for row in rows], samples),
    }


def _expected_noise(
    rows: Sequence[RowTruth], by_chance: Sequence[int], spec: EngineSpec
) -> tuple[list[Any], list[Any]]:
    """Return the expected random numbers for acceptance and for sampling, as float32 bits.

    Selection noise has four numbers per column and try.
    """
    k, num_tries = spec.num_speculative_tokens, NUM_TRIES if spec.draft_sampling == "probabilistic" else 0
    accept: list[Any] = []
    select: list[Any] = []
    for row, here in zip(rows, by_chance, strict=True):
        num_drafts, num_columns = (row.row.d, 1 + row.row.d) if here else (0, 0)
        params, position = row.truth.params, row.base + 1
        accept += _bits([noise(params, position, ACCEPT_STREAM, column)[0] for column in range(num_drafts)])
        accept += [SCRATCH] * (k - num_drafts)
        numbers: list[float] = []
        for column in range(num_columns):
            for tried in range(1 + num_tries):
                numbers += noise(params, position + column, SELECT_STREAM, tried)
        select += _bits(numbers)
        select += [SCRATCH] * ((1 + k - num_columns) * (1 + num_tries) * 4)
    return accept, select


def _bits(numbers: Sequence[float]) -> tuple[int, ...]:
    """Return the float32 bits of non-negative numbers."""
    return unpack(f"{len(numbers)}i", pack(f"{len(numbers)}f", *numbers))


def expected_sampled(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected KV entries, layer outputs, sampled tokens and accepted counts."""
    width, rows = 1 + spec.num_speculative_tokens, step.rows
    kv: list[Any] = []
    attention: list[Any] = []
    hidden: list[Any] = []
    sampled: list[Any] = []
    has_logits = False
    for row in rows:
        model_values, computed, kept, first, valid = row.model_values, row.computed, row.kept, row.base + 1, row.valid
        kv += model_values.kv[computed:kept]
        attention += model_values.attention[computed:kept]
        hidden += model_values.hidden[computed:kept]
        rejected = computed + row.row.n - kept
        if rejected:
            scratch = [SCRATCH] * rejected
            kv += scratch
            attention += scratch
            hidden += scratch
        sampled += model_values.tokens[first : first + valid]
        if valid < width:
            sampled += [SCRATCH] * (width - valid)
        if valid and model_values.logits:
            has_logits = True
    expected: Expectation = {"kv": kv, "attention": attention, "hidden": hidden}
    if has_logits:
        expected["logits"] = _expected_logits(rows, width)
    expected["sampled"] = sampled
    expected["accepted"] = [row.accepted for row in rows]
    expected["valid"] = [row.valid for row in rows]
    expected["next_tokens"] = [row.next_token for row in rows]
    return expected


def _expected_logits(rows: Sequence[RowTruth], width: int) -> list[Any]:
    """Return hashes of the expected logits after masks and penalties, for valid tokens."""
    logits: list[Any] = []
    for row in rows:
        count = row.valid if row.model_values.logits else 0
        logits += row.model_values.logits_at(row.base, count) + [SCRATCH] * (width - count)
    return logits


def expected_state(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected drafter KV cache, recurrent states and draft tokens after a step."""
    k, rows = spec.num_speculative_tokens, step.rows
    drafter_kv: list[Any] = []
    raw: list[Any] = []
    proposed: list[Any] = []
    traits, length_max = TRAITS[spec.drafter], spec.drafter_max_len
    has_cache = not traits.goes_through_host
    for row in () if traits.is_on_host else rows:
        if has_cache:
            computed, end = row.computed, len(drafter_kv) + row.row.n
            drafter_kv += row.model_values.drafter.words[computed : row.kept]
            if row.discard:
                drafter_kv[-1] = row.chunk_end
            if length_max and row.kept > length_max:
                del drafter_kv[end - row.row.n + max(0, length_max - computed) :]
            if len(drafter_kv) < end:
                drafter_kv += [SCRATCH] * (end - len(drafter_kv))
        drafted = row.drafted
        raw += drafted.raw
        proposed += drafted.proposed
        if len(drafted.raw) < k:
            raw += [SCRATCH] * (k - len(drafted.raw))
        if len(drafted.proposed) < k:
            proposed += [SCRATCH] * (k - len(drafted.proposed))
    expected: Expectation = {"drafter_kv": drafter_kv, "raw": raw, "proposed": proposed}
    if spec.layers == "hybrid":
        expected["slot_accepted"] = [row.accepted for row in rows]
        expected["state"], expected["window"] = _states_of(rows, spec)
    return expected


def _states_of(rows: Sequence[RowTruth], spec: EngineSpec, length_max: float = inf) -> tuple[list[Any], list[Any]]:
    """Return each row's recurrent state and convolution window after its kept tokens."""
    states: list[Any] = []
    windows: list[Any] = []
    for row in rows:
        model_values, kept = row.model_values, row.kept
        is_cached = 0 < kept <= length_max
        states.append(model_values.states[kept - 1] if is_cached else SCRATCH)
        windows += model_values.window(kept) if is_cached else [SCRATCH] * (spec.conv_width - 1)
    return states, windows


def expected_drafted(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected values of a drafter: predictions, recurrent or hidden states."""
    k, rows = spec.num_speculative_tokens, step.rows
    if TRAITS[spec.drafter].carries_hidden_state:
        return {"carried": [row.model_values.hidden[row.kept - 1] if row.kept else SCRATCH for row in rows]}
    if not TRAITS[spec.drafter].has_model:
        return {}
    own: list[Any] = []
    for row in rows:
        own += [*row.drafted.own, *[SCRATCH] * (k - len(row.drafted.own))]
    expected: Expectation = {"own": own}
    if spec.layers == "hybrid":
        length_max = spec.drafter_max_len or spec.max_model_len
        expected["drafter_state"], expected["drafter_window"] = _states_of(rows, spec, length_max)
    return expected


def expected_kept(step: StepTruth, spec: EngineSpec) -> Expectation:
    """Return the expected recurrent states that a step stores with its KV-cache blocks.

    A capture covers the blocks from the one of the token before the verified tokens on: a full block has the state at
    its end, the last block the state after the last kept token.
    """
    states: list[Any] = []
    windows: list[Any] = []
    num_compared, count = _num_compared(spec), spec.conv_width - 1
    for row in step.rows:
        ends = _ends_of_kept(row, spec.block_size)
        for end in ends:
            states.append(row.model_values.states[end - 1])
            windows += row.model_values.window(end)
        states += [SCRATCH] * (num_compared - len(ends))
        windows += [SCRATCH] * ((num_compared - len(ends)) * count)
    return {"block_state": states, "block_window": windows}


def _num_compared(spec: EngineSpec) -> int:
    """Return how many blocks the verified tokens of this and the previous step can span."""
    return 1 + (spec.num_speculative_tokens + spec.block_size) // spec.block_size


def _ends_of_kept(row: RowTruth, size: int) -> list[int]:
    """Return, per block that the step verifies tokens of, how many tokens its state includes."""
    first = max(0, row.base - 1) // size
    return [min((column + 1) * size, row.kept) for column in range(first, -(-row.kept // size))]


def expected_release(release: Release, spec: EngineSpec) -> Expectation:
    """Return the expected KV cache content of a request's blocks when they are freed."""
    expected: Expectation = {"kv_at_end": [*release.kv], "drafter_kv_at_end": [*release.drafter_kv]}
    if keeps_states_with_blocks(spec):
        ends, windows = _ends_of_blocks(release, spec.block_size), []
        for end in ends:
            windows += release.model_values.window(end)
        expected["block_state_at_end"] = [release.model_values.states[end - 1] for end in ends]
        expected["block_window_at_end"] = windows
    return expected


def _ends_of_blocks(release: Release, size: int) -> list[int]:
    """Return the end position of each block of a freed request."""
    length = len(release.kv)
    return [min(start + size, length) for start in range(0, length, size)]


def _where(values: Sequence[int], defined: Sequence[int]) -> list[Any]:
    """Return the values, with SCRATCH (never compared) where `defined` is 0."""
    return [value if here else SCRATCH for value, here in zip(values, defined, strict=True)]


def row_and_position(variable: str, index: int, owners: StepTruth | Release, spec: EngineSpec) -> Place:
    """Return which row (or request) and position element `index` of a variable belongs to."""
    if isinstance(owners, StepTruth):
        return _place_in_step(variable, index, owners, spec)
    return _place_in_release(variable, index, owners, spec)


def _place_in_step(variable: str, index: int, step: StepTruth, spec: EngineSpec) -> Place:
    k, count = spec.num_speculative_tokens, spec.conv_width - 1
    if variable == "poisoned":
        block = step.poisoned[index] if index < len(step.poisoned) else None
        return next((row for row in step.rows if block in row.row.blocks.new), None), None
    if variable in _PER_TOKEN:
        start = 0
        for row in step.rows:
            if start <= index < start + row.row.n:
                return row, row.computed + index - start
            start += row.row.n
        return None, None
    num_blocks = _num_compared(spec)
    tries = 1 + (NUM_TRIES if spec.draft_sampling == "probabilistic" else 0)
    widths = {
        **dict.fromkeys(("scheduled_drafts", "accept_noise", "draft_logits_read", "raw", "proposed", "own"), k),
        **dict.fromkeys(("sampled", "logits"), 1 + k),
        **dict.fromkeys(("window", "drafter_window"), count),
        "select_noise": (1 + k) * tries * 4,
        "block_state": num_blocks,
        "block_window": num_blocks * count,
    }
    number, at = divmod(index, widths.get(variable, 1))
    if number >= len(step.rows):
        return None, None
    row = step.rows[number]
    match variable:
        case "scheduled_drafts" | "accept_noise" | "draft_logits_read" | "sampled":
            return row, row.base + 1 + at
        case "logits":
            return row, row.base + at
        case "raw" | "proposed" | "own":
            return row, row.kept + 1 + at
        case "window" | "drafter_window":
            return row, row.kept - count + at
        case "block_state":
            return row, _ends_of_kept(row, spec.block_size)[at] - 1
        case "block_window":
            return row, _ends_of_kept(row, spec.block_size)[at // count] - count + at % count
        case _:
            return row, None


def _place_in_release(variable: str, index: int, release: Release, spec: EngineSpec) -> Place:
    count = spec.conv_width - 1
    match variable:
        case "block_state_at_end":
            return release, _ends_of_blocks(release, spec.block_size)[index] - 1
        case "block_window_at_end":
            end = _ends_of_blocks(release, spec.block_size)[index // count]
            return release, end - count + index % count
        case _:
            return release, index


def expected_logprobs(rows: Sequence[RowTruth], delivered: Sequence[tuple[int, ...]], mode: str) -> list[Flat] | None:
    """Return the expected logprobs of each row's returned tokens; None if no row wants any."""
    if not [row for row in rows if row.truth.num_logprobs and not row.discard]:
        return None
    found: list[Flat] = []
    for row, tokens in zip(rows, delivered, strict=True):
        truth = row.truth
        values: list[int | float] = []
        if truth.num_logprobs:
            for position in range(row.base, row.base + len(tokens)):
                values += row.model_values.logprobs_after(position, truth.num_logprobs, mode)
        found.append(tuple(values))
    return found


def are_close(seen: Flat, wanted: Flat) -> bool:
    """Return whether two lists of logprobs agree: equal token ids, values within TOLERANCE."""
    return len(seen) == len(wanted) and all(map(_is_close, seen, wanted))


def _is_close(seen: float, wanted: float) -> bool:
    return seen == wanted or (type(wanted) is float and abs(seen - wanted) <= TOLERANCE)
