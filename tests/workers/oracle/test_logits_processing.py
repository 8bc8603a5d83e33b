"""Grammars: the engine's rules and ops compared with the oracle's automaton."""

from dataclasses import replace

import numpy as np
import pytest

from scenarios.draw import below
from scenarios.draw_params import params_of
from scenarios.events import Submit
from scenarios.sampling import Grammar, SamplingParams
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.engine.grammar_rules import checked_drafts, length_in_grammar, mask_rows
from workers.engine.request import PlanRow, Request
from workers.kernels.grammar.definition import ApplyMasks, GrammarDrafts, grammar_drafts
from workers.kernels.grammar.numpy import apply_masks
from workers.kernels.process_logits.definition import BITS
from workers.kernels.sentinels import NO_DRAFT
from workers.oracle.logits_processing import cut_off, edges_after, edges_of
from workers.oracle.model_values import ModelValueCache
from workers.record.log import ScheduledRow
from workers.record.verdict import Agreed
from workers.run.check import check

SPEC = EngineSpec(vocab_size=33)
COUNTED: Grammar = (((1, 1), (2, 0)), ((1, 2), (3, 0)), ())


def request_of(grammar: Grammar, output: list[int]) -> Request:
    return Request(0, "r", [7, 8, *output], 2, 99, frozenset(), [], SamplingParams(grammar=grammar))


def walk(grammar: Grammar, seed: int, length: int) -> list[int]:
    output: list[int] = []
    while len(output) < length and (edges := edges_after(edges_of(grammar), output)):
        output.append(sorted(edges)[below(len(edges), seed, "walk", "token", len(output))])
    return output


@pytest.mark.parametrize("seed", range(40))
def test_grammar_drafts_masks_and_ends_equal_the_oracles(seed: int) -> None:
    grammar = params_of(64 + 128 * seed, SPEC).grammar
    text = walk(grammar, seed, 12)
    assert text
    for known in range(len(text)):
        if edges_after(edges_of(grammar), text[:known]) is None:
            break
        request = request_of(grammar, text[:known])
        request.drafts = [*text[known : known + 3], below(33, seed, "wrong", "draft", known), NO_DRAFT]
        drafts = [*checked_drafts(request, 5)]
        assert drafts == cut_off(edges_of(grammar), text[:known], (request.drafts + [NO_DRAFT] * 5)[:5], NO_DRAFT)
        row = PlanRow(request, ScheduledRow(0, 0, 0, 6, 5, 0), 0, 0, 0, False, tuple(drafts))
        masks = [*mask_rows(row, 33)]
        kept = [draft for draft in drafts if draft != NO_DRAFT]
        assert len(masks) == 6
        for column in range(len(kept) + 1):
            edges = edges_after(edges_of(grammar), text[:known] + kept[:column])
            words = masks[column]
            allowed = {token for token in range(33) if words[token // BITS] >> token % BITS & 1}
            assert allowed == (set(range(33)) if edges is None else set(edges))
        ends = [n for n in range(1, len(kept) + 1) if edges_after(edges_of(grammar), text[:known] + kept[:n]) is None]
        assert length_in_grammar(request, kept) == (ends[0] if ends else len(kept) + 1)


def test_apply_masks_changes_masked_columns_only() -> None:
    logits = np.arange(12, dtype=np.float32)
    apply_masks(ApplyMasks(np.array([2, 0]), np.array([0b101, 0b010]), logits, 3))
    assert logits.tolist() == [-np.inf, 1, -np.inf, 3, 4, 5, 6, -np.inf, 8, 9, 10, 11]


def test_grammar_drafts_replaces_device_drafts() -> None:
    input_ids, scheduled = np.array([9, 9, 9, 9, 9]), np.array([7, 7, 7, 7])
    fields = [np.array(values) for values in ([0, 2], [2, 3], [1, 2])]
    host_ids = np.array([4, 5, 6, 8, NO_DRAFT])
    grammar_drafts(GrammarDrafts(np.array([1]), fields[0], fields[1], fields[2], host_ids, input_ids, scheduled, 2))
    assert scheduled.tolist() == [7, 7, 8, NO_DRAFT]
    assert input_ids.tolist() == [9, 9, 9, 8, 0]


@pytest.mark.parametrize("depth", [1, 2])
def test_request_stops_at_the_end_of_its_grammar(depth: int) -> None:
    events = tuple(
        Submit(tick=0, request=name, prompt=(1, token), max_tokens=40, params=SamplingParams(grammar=COUNTED))
        for name, token in (("a", 3), ("b", 4), ("c", 5))
    )
    trace = Trace(spec=EngineSpec(depth=depth), events=events).explicit()
    verdict = check(trace, ModelValueCache())
    assert isinstance(verdict, Agreed)
    assert verdict.stats.probes.get("grammar_wait", 0) > 0 or depth == 1
    assert verdict.stats.probes["grammar_drafts"] > 0


def test_request_without_grammar_has_no_grammar_rules() -> None:
    assert not replace(request_of((), []), params=SamplingParams()).has_params
