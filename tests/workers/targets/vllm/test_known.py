"""Known bugs of vLLM are recognised by their mechanism, and by nothing that is near it."""

import pytest

from scenarios.events import DisturbTransfer, Submit
from scenarios.sampling import SamplingParams
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
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
