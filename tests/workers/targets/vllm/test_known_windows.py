"""Known bugs beside sliding windows: recognised by where a draft model writes, and by nothing near them."""

from collections.abc import Sequence

import pytest

from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.record.evidence import Difference
from workers.record.observation import Observation
from workers.targets.vllm.target import Vllm, VllmV1

FOUND = Difference(plane="tokens", variable="tokens", request="r0", step=3, expected=1, actual=2)
BUG = "vllm_draft_model_first_group"


def steps(slot: int, windows: Sequence[tuple[int, int]] = ((4, 9),)) -> list[Observation]:
    plan = {"blocks": [(0, [3])], "windows": [(0, [[1, 2]])]}
    return [
        Observation("opened", -1, (), {"windows": list(windows)}),
        Observation("scheduled", 0, (0,), plan),
        Observation("drafting", 0, (0,), {"index": 0, "slots": [-1, slot]}),
    ]


def known(found: Difference, drafter: str, seen: Sequence[Observation], kind: type[Vllm] = VllmV1) -> str:
    spec = EngineSpec.model_validate({"layers": "windows", "drafter": drafter})
    return kind().known(found, Trace(spec=spec, events=()), seen)


def test_a_draft_model_that_is_given_slots_of_a_window_is_known_in_the_first_runner() -> None:
    assert known(FOUND, "draft_model", steps(6)) == BUG
    assert known(FOUND, "draft_model", steps(6), Vllm) == ""


@pytest.mark.parametrize(
    ("found", "drafter", "seen"),
    [
        (FOUND, "draft_model", steps(12)),
        (FOUND, "draft_model", steps(6, windows=())),
        (FOUND, "eagle", steps(6)),
        (FOUND.model_copy(update={"plane": "books"}), "draft_model", steps(6)),
    ],
)
def test_what_is_unlike_it_is_new(found: Difference, drafter: str, seen: Sequence[Observation]) -> None:
    assert known(found, drafter, seen) == ""
