"""Known bugs of graphs: recognised by steps that look like decodes and hold a prompt."""

from typing import Literal

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference, Reference
from workers.record.observation import Observation
from workers.targets.vllm.target import VllmV1

NAME = "vllm_prompt_in_a_decode_graph"
TOKENS = Difference(
    plane="tokens", variable="tokens", request="a", step=9, expected=3, actual=4, reference=Reference.SYNCHRONOUS
)


def known(
    first: int, width: int, drafts: int = 0, graphs: Literal["full", "piecewise"] = "full", request: int = 0
) -> str:
    """Return the known bug that wrong tokens of `a` are, behind a step of one row of a request."""
    values = {"positions": [first + token for token in range(width)], "starts": [0, width], "drafts": [drafts]}
    spec = EngineSpec(layers="hybrid", sampling="standard", num_speculative_tokens=1, graphs=graphs)
    submits = [Submit(tick=0, request=name, prompt=(1,) * 9, max_tokens=9) for name in "ab"]
    steps = [Observation("inputs", 4, (request,), values)]
    return VllmV1().known(TOKENS, Trace(spec=spec, events=tuple(submits)), steps)


@pytest.mark.parametrize(("first", "width"), [(0, 1), (0, 2), (4, 2), (7, 2)])
def test_a_prompt_that_is_as_wide_as_decodes_is_taken_for_one(first: int, width: int) -> None:
    assert known(first, width) == NAME


def test_other_steps_are_none_of_decode_graphs_that_hold_a_prompt() -> None:
    assert not known(4, 1), "one token behind others is computed as a decode is"
    assert not known(4, 3), "no decode is as wide"
    assert not known(4, 2, drafts=1), "it is a decode"
    assert not known(9, 2), "behind its prompt it is taken for a decode"
    assert not known(4, 2, graphs="piecewise")
    assert not known(4, 2, request=1), "it is another request's"
