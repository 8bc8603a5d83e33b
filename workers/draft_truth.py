"""What an EAGLE-like drafter must compute for each draft, by the target's tape and its own cache."""

from scenarios.spec import EngineSpec
from workers import model
from workers.truth import Truth


def raw_words(truth: Truth, position: int, proposed: tuple[int, ...], spec: EngineSpec) -> tuple[int, ...]:
    """Return what the drafter computes for each draft after `position`, the last kept one."""
    if truth.deltas:
        return _compute(truth, position, proposed, spec)
    known = truth.tape.raw
    found = known.get((position, proposed))
    if found is None:
        found = known[position, proposed] = _compute(truth, position, proposed, spec)
    return found


def _compute(truth: Truth, position: int, proposed: tuple[int, ...], spec: EngineSpec) -> tuple[int, ...]:
    tape = truth.tape
    sums, sums_position = tape.drafter_sums[position]
    for at, word in truth.deltas.items():
        if at <= position:
            sums += word - tape.drafter_kv[at]
            sums_position += (word - tape.drafter_kv[at]) * at
    vector = model.draft_hidden(tape.hidden[position], tape.tokens[position + 1])
    found: list[int] = []
    for index in range(min(len(proposed), spec.max_model_len - position - 2)):
        if index:
            position += 1
            vector = model.draft_hidden(found[-1], proposed[index - 1])
            word = model.kv_word(vector, position, model.DRAFTER_LAYER)
            sums += word
            sums_position += word * position
        found.append(model.mix((vector + model.attention(sums, sums_position, position)) & model.MASK))
    return tuple(found)
