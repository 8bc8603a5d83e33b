"""Known bugs of vLLM are recognised by their mechanism, and by nothing that is near it."""

from pathlib import Path

import pytest

from scenarios.drafters import Drafter
from scenarios.events import DisturbTransfer, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec, Handoff, Transfer
from scenarios.trace import Trace
from tests.workers.targets.vllm.test_sources import make_whole
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
from workers.record.rules import Reference
from workers.targets.target import VLLM_V1, RunConfig
from workers.targets.vllm.target import Vllm, VllmV1


@pytest.mark.parametrize(
    ("prompt", "drafts", "count", "name"),
    [
        ((3,), 2, 8, "vllm_v2_prompt_logprobs_padded"),
        # Neither a longer prompt, nor one that was not padded, nor another number of rows.
        ((3, 4), 2, 8, ""),
        ((3,), 0, 8, ""),
        ((3,), 2, 4, ""),
    ],
)
def test_logprobs_of_a_prompts_padding_are_known_of_one_token_and_a_row_for_each_draft(
    prompt: tuple[int, ...], drafts: int, count: int, name: str
) -> None:
    submit = Submit(tick=0, request="a", prompt=prompt, max_tokens=2, params=SamplingParams(num_prompt_logprobs=4))
    found = Difference(
        plane="contracts",
        variable="prompt_logprobs",
        request="a",
        step=5,
        expected=fact("nothing"),
        actual=fact("num_logprobs", count=count),
    )
    trace = Trace(spec=EngineSpec(num_speculative_tokens=drafts), events=(submit,))
    assert Vllm().known(found, trace, ()) == name
    assert VllmV1().known(found, trace, ()) == ""


@pytest.mark.parametrize(
    ("stop", "position", "reference", "logprob", "name"),
    [
        (24, 2, Reference.SYNCHRONOUS, -0.67, "vllm_min_tokens_asynchronous"),
        # Neither behind the minimum, nor before what one step may have in flight, nor without a stop token.
        (24, 9, Reference.SYNCHRONOUS, -0.67, ""),
        (24, 1, Reference.SYNCHRONOUS, -0.67, ""),
        (None, 2, Reference.SYNCHRONOUS, -0.67, ""),
        # A token is less likely beside what is not masked; the synchronous engine masks it, whatever it drafts.
        (24, 2, Reference.SYNCHRONOUS, -0.3, ""),
        (24, 2, Reference.WITHOUT_SPECULATION, -0.67, ""),
    ],
)
def test_a_stop_token_that_is_too_likely_before_a_minimum_is_known_as_one_that_comes(
    stop: int | None, position: int, reference: Reference, logprob: float, name: str
) -> None:
    params, stops = SamplingParams(min_tokens=6, num_logprobs=1), () if stop is None else (stop,)
    submit = Submit(tick=0, request="a", prompt=(3,), max_tokens=12, stop=stops, params=params)
    found = Difference(
        plane="logits",
        variable="logprobs",
        request="a",
        step=5,
        position=position,
        expected=(29, -0.5),
        actual=(29, logprob),
        reference=reference,
    )
    trace = Trace(spec=EngineSpec(num_speculative_tokens=3, logprobs_mode="processed"), events=(submit,))
    assert VllmV1().known(found, trace, ()) == name
    raw = trace.model_copy(update={"spec": EngineSpec(num_speculative_tokens=3)})
    assert VllmV1().known(found, raw, ()) == ""


@pytest.mark.parametrize(
    ("expected", "actual", "reference", "named", "name"),
    [
        ((3, -0.5, 0, "-inf"), (3, -0.5, 3, -0.5), Reference.WITHOUT_SPECULATION, (2,), "vllm_logprob_tokens_rows"),
        # Of several tokens, where fewer are named than are asked for.
        (
            (3, -0.5, 0, "-inf"),
            (3, -0.5, 3, -0.5, 1, -2.0),
            Reference.WITHOUT_SPECULATION,
            (2,),
            "vllm_logprob_tokens_rows",
        ),
        # Neither where padding is in the run with drafts, or in both, nor in another run, nor where none are named.
        ((3, -0.5, 3, -0.5), (3, -0.5, 0, "-inf"), Reference.WITHOUT_SPECULATION, (2,), ""),
        ((3, -0.5, 0, "-inf"), (3, -0.4, 0, "-inf"), Reference.WITHOUT_SPECULATION, (2,), ""),
        ((3, -0.5, 0, "-inf"), (3, -0.5, 3, -0.5), Reference.SYNCHRONOUS, (2,), ""),
        ((3, -0.5, 0, "-inf"), (3, -0.5, 3, -0.5), Reference.WITHOUT_SPECULATION, (), ""),
        ((3, -0.5, 2, -0.7), (3, -0.5, 3, -0.5), Reference.WITHOUT_SPECULATION, (2,), ""),
    ],
)
def test_padding_among_logprobs_is_known_beside_named_tokens_in_the_run_that_drafts_nothing(
    expected: tuple[object, ...], actual: tuple[object, ...], reference: Reference, named: tuple[int, ...], name: str
) -> None:
    asking, naming = SamplingParams(num_logprobs=2), SamplingParams(logprob_tokens=named)
    submits = (
        Submit(tick=0, request="a", prompt=(1,), max_tokens=2, params=asking),
        Submit(tick=0, request="b", prompt=(1,), max_tokens=2, params=naming),
    )
    place = {"plane": "logits", "variable": "logprobs", "request": "a", "step": 5, "position": 1}
    found = {**place, "expected": expected, "actual": actual, "reference": reference}
    trace = Trace(spec=EngineSpec(num_speculative_tokens=3), events=submits)
    assert VllmV1().known(Difference.model_validate(found), trace, ()) == name
    assert Vllm().known(Difference.model_validate(found), trace, ()) == ""


@pytest.mark.parametrize(
    ("num_blocks", "how", "failures", "lost", "name"),
    [
        (6, "fail", "recompute", 1, "vllm_failed_load_reserved"),
        (7, "drop", "recompute", 1, "vllm_failed_load_reserved"),
        # Neither with room for it twice, nor without a loss, nor where a lost load ends its request.
        (8, "fail", "recompute", 1, ""),
        (6, "fail", "recompute", 0, ""),
        (6, "repeat", "recompute", 1, ""),
        (6, "fail", "fail", 1, ""),
    ],
)
def test_no_progress_is_known_behind_a_lost_load_without_room_for_it_twice(
    num_blocks: int, how: str, failures: str, lost: int, name: str
) -> None:
    transfer = Transfer.model_validate({"failures": failures})
    spec = EngineSpec(block_size=32, num_blocks=num_blocks, transfer=transfer)
    submit = Submit(tick=0, request="a", prompt=(1,) * 97, max_tokens=2)
    disturbed = DisturbTransfer.model_validate({"tick": 1, "do": "disturb_transfer", "request": "a", "how": how})
    trace = Trace(spec=spec, events=(submit, disturbed))
    assert Vllm().known_hang(trace, {"lost_load": lost}) == VllmV1().known_hang(trace, {"lost_load": lost}) == name
    handoff = Handoff.model_validate({"failures": failures})
    handed = trace.model_copy(update={"spec": EngineSpec(block_size=32, num_blocks=num_blocks, handoff=handoff)})
    assert Vllm().known_hang(handed, {"lost_load": lost}) == name


@pytest.mark.parametrize(
    ("num_blocks", "max_tokens", "preempted", "name"),
    [
        (9, 4, 1, "vllm_failed_load_reserved"),
        # Neither with room for both, nor where its outputs fill no other block, nor where it did not come again.
        (10, 4, 1, ""),
        (9, 2, 1, ""),
        (9, 4, 0, ""),
    ],
)
def test_what_a_preempted_request_has_put_out_is_loaded_as_well(
    num_blocks: int, max_tokens: int, preempted: int, name: str
) -> None:
    transfer = Transfer(failures="recompute")
    spec = EngineSpec(block_size=32, num_blocks=num_blocks, max_model_len=160, transfer=transfer)
    submit = Submit(tick=0, request="a", prompt=(1,) * 126, max_tokens=max_tokens)
    trace = Trace(spec=spec, events=(submit, DisturbTransfer(tick=1, request="a", how="drop")))
    assert VllmV1().known_hang(trace, {"lost_load": 1, "preemption": preempted}) == name


@pytest.mark.parametrize(
    ("what", "grammar", "processed", "in_last", "variable", "is_known"),
    [
        ("pause_keep", True, True, 0, "grammar", True),
        ("pause_keep", True, True, 0, "failures", True),
        ("pause_keep", True, True, 0, "mirror_computed", False),
        ("pause_keep", False, True, 0, "grammar", False),
        ("pause_keep", True, False, 0, "grammar", False),
        ("pause_keep", True, True, 1, "grammar", False),
        ("pause_wait", True, True, 0, "grammar", False),
    ],
)
def test_a_grammar_is_known_to_be_lost_in_the_first_step_behind_a_pause_alone(
    what: str, grammar: bool, processed: bool, in_last: int, variable: str, is_known: bool
) -> None:
    edges = SamplingParams(grammar=(((3, 0),),)) if grammar else SamplingParams()
    trace = Trace(events=(Submit(tick=0, request="a", prompt=(1,), max_tokens=9, params=edges),))
    steps = [
        Observation("scheduled", 0, (in_last,), {"planned_drafts": [0]}),
        Observation("controlled", 0, (), {"what": what, "version": 0, "tokens": []}),
        *([Observation("processed", 0, (in_last,), {"sampled": [[3]]})] if processed else []),
        Observation("scheduled", 1, (0,), {"planned_drafts": [3]}),
    ]
    plane = {"failures": "transfers", "grammar": "contracts"}.get(variable, "counts")
    wrong = Difference(plane=plane, variable=variable, request="a", step=9, position=2, expected=1, actual=2)
    assert (VllmV1().known(wrong, trace, steps) == "vllm_paused_grammars") is is_known


@pytest.mark.parametrize(
    ("others", "num_begun", "name"),
    [
        # The block behind is another's too; or it is of the request's own stay before.
        ([[1, 2, 3, 4, 5]], 1, "vllm_drafter_prefix_successor"),
        ([[1, 2, 9, 9]], 2, "vllm_drafter_prefix_successor"),
        # Nobody had the block behind, so none was dropped.
        ([[1, 2, 9, 9]], 1, ""),
    ],
)
def test_an_entry_at_the_end_of_a_found_block_is_known_where_the_block_behind_it_was_found_too(
    others: list[list[int]], num_begun: int, name: str, tmp_path: Path
) -> None:
    known = [[1, 2, 3], *others, *[[1, 2, 3, 4, 6]] * num_begun]
    numbers = [*range(len(others) + 1), *[len(others) + 1] * num_begun]
    steps = [
        Observation("scheduled", step, (number,), {"begun": [(number, tokens)]})
        for step, (number, tokens) in enumerate(zip(numbers, known, strict=True))
    ]
    found = Difference(
        plane="drafts",
        variable="draft_cache",
        request=f"submit {numbers[-1]}",
        step=len(steps),
        position=1,
        expected=fact("entry_of", token=3, position=1, request=numbers[-1]),
        actual=fact("entry_of", token=9, position=1, request=0),
    )
    submit = Submit(tick=0, request="a", prompt=(1,), max_tokens=1)
    trace = Trace(spec=EngineSpec(prefix_cache=True, block_size=2, layers="attention"), events=(submit,))
    assert VllmV1().known(found, trace, steps) == name
    # 0.33.0 has mended it, but beside a connector.
    make_whole(tmp_path / "vllm")
    (tmp_path / "vllm" / "_version.py").write_text("__version__ = version = '0.33.0'\n")
    mended = RunConfig(engine=VLLM_V1, engine_path=str(tmp_path))
    beside = trace.model_copy(update={"spec": trace.spec.model_copy(update={"transfer": Transfer()})})
    assert VllmV1().known(found, trace, steps, mended) == ""
    assert VllmV1().known(found, beside, steps, mended) == name


@pytest.mark.parametrize(
    ("rows", "sampled", "name"),
    [
        ((1, 0), [], "vllm_lookups_of_moved_rows"),
        # Its row stays, or it has got a token by then.
        ((1, 1), [], ""),
        ((1, 0), [7], ""),
    ],
)
def test_lookups_are_known_to_be_of_others_where_a_row_moved_behind_a_chunk(
    rows: tuple[int, int], sampled: list[int], name: str
) -> None:
    steps = [Observation("inputs", step, (3, 5) if row else (5, 3), {}) for step, row in enumerate(rows)]
    steps.append(Observation("processed", 0, (3, 5), {"sampled": [[1], sampled]}))
    found = Difference(
        plane="drafts", variable="looked_up", request="submit 5", step=4, position=9, expected=1, actual=2
    )
    assert VllmV1().known(found, Trace(spec=EngineSpec(drafter="ngram_gpu"), events=()), steps) == name
    assert VllmV1().known(found, Trace(spec=EngineSpec(drafter="ngram", depth=1), events=()), steps) == ""


@pytest.mark.parametrize(
    ("at", "there", "drafter", "name"),
    [
        (96, 127, "dflash", "vllm_v2_drafts_past_the_model"),
        (100, 127, "dflash", "vllm_v2_drafts_past_the_model"),
        # Further than drafts go, in another block, of another position, of another drafter.
        (101, 127, "dflash", ""),
        (64, 127, "dflash", ""),
        (96, 126, "dflash", ""),
        (96, 127, "eagle", ""),
    ],
)
def test_what_dflash_writes_behind_the_model_is_known_by_its_place(
    at: int, there: int, drafter: Drafter, name: str
) -> None:
    found = Difference(
        plane="drafts",
        variable="draft_cache",
        request="submit 0",
        step=4,
        position=at,
        expected=fact("entry_of", token=3, position=at, request=0),
        actual=fact("entry_of", token=0, position=there, request=0),
    )
    spec = EngineSpec(drafter=drafter, num_speculative_tokens=5, block_size=32, max_model_len=128, layers="attention")
    submit = Submit(tick=0, request="a", prompt=(1,), max_tokens=1)
    assert Vllm().known(found, Trace(spec=spec, events=(submit,)), []) == name
    assert VllmV1().known(found, Trace(spec=spec, events=(submit,)), []) == ""
