"""Known bugs of vLLM are recognised by their mechanism, and by nothing that is near it."""

import pytest

from scenarios.events import Submit
from scenarios.sampling import SamplingParams
from scenarios.trace import Trace
from workers.record.evidence import Difference, fact
from workers.record.observation import Observation
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
    begun = Observation("scheduled", 3, (0,), {"planned_drafts": [drafts], "begun": [(0, list(prompt))]})
    later = Observation("scheduled", 4, (0,), {"planned_drafts": [2], "begun": []})
    found = Difference(
        plane="contracts",
        variable="prompt_logprobs",
        request="a",
        step=5,
        expected=fact("nothing"),
        actual=fact("num_logprobs", count=count),
    )
    assert Vllm().known(found, Trace(events=(submit,)), [begun, later]) == name
    assert VllmV1().known(found, Trace(events=(submit,)), [begun, later]) == ""
