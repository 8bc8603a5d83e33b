"""Edges of batches: drawn traces of vLLM have them in some per cent, and what they want of an engine is asked of it."""

from scenarios.events import DummyStep, PromptDraw, Stall
from tests.scenarios.drawn import drawn
from workers.targets.vllm.names import VLLM_V1


def test_a_model_ends_within_a_run_of_drafts_behind_a_prompt_that_is_in_the_cache_but_for_a_token() -> None:
    ending = 0
    for trace in drawn(VLLM_V1):
        spec, block = trace.spec, trace.spec.block_size
        behind = spec.max_model_len % block
        prompts = [each.prompt for each in trace.submits() if isinstance(each.prompt, PromptDraw)]
        whole = [each for each in prompts if each.tokens == each.common == spec.max_model_len - behind + 1]
        ending += spec.prefix_cache and 1 < behind <= 1 + spec.num_speculative_tokens and len(whole) > 1
    assert ending >= 4


def test_rows_that_read_prompts_stand_before_rows_that_decode_and_some_are_banned_words() -> None:
    moving = 0
    for trace in drawn(VLLM_V1):
        spec, submits = trace.spec, trace.submits()
        chunk = spec.long_prefill_token_threshold
        banned = [bool(each.params.bad_words) for each in submits]
        lengths = [each.prompt_length for each in submits]
        is_apart = any(length <= chunk for length in lengths) and any(length > chunk for length in lengths)
        moving += spec.decodes_first and chunk > spec.num_speculative_tokens and is_apart and len(set(banned)) > 1
    assert moving >= 8


def test_prompts_of_one_token_are_beside_states_without_drafts() -> None:
    gated = [each for each in drawn(VLLM_V1) if each.spec.recurrent_layers == "gated_delta"]
    plain = [each for each in gated if not each.spec.num_speculative_tokens]
    assert sum(any(submit.prompt_length == 1 for submit in each.submits()) for each in plain) >= 4


def test_dummy_steps_come_where_all_requests_with_states_are_left_out() -> None:
    left_out = 0
    for trace in drawn(VLLM_V1):
        ticks = {event.tick for event in trace.events if isinstance(event, DummyStep)}
        names = {each.request for each in trace.submits()}
        stalled = [
            {each.request for each in trace.events if isinstance(each, Stall) and each.tick == at} for at in ticks
        ]
        is_replayed = trace.spec.layers == "hybrid" and trace.spec.graphs.startswith("full")
        left_out += is_replayed and any(names <= each for each in stalled)
    assert left_out >= 5


def test_drafts_are_looked_up_on_the_device_beside_attention_and_heads_run_beside_it() -> None:
    of_attention = [each.spec for each in drawn(VLLM_V1) if each.spec.layers == "attention"]
    drafters = [spec.drafter for spec in of_attention if spec.num_speculative_tokens]
    assert drafters.count("ngram_gpu") >= 8
    assert drafters.count("eagle") >= 8


def test_sessions_have_room() -> None:
    having = [trace for trace in drawn(VLLM_V1) if any(each.session is not None for each in trace.submits())]
    assert len(having) >= 24
