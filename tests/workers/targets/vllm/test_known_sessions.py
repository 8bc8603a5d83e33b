"""Known bugs of sessions are recognised by their mechanism, and what else goes wrong there is new."""

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec, Transfer
from scenarios.trace import Trace
from workers.record.evidence import Difference, Site, fact
from workers.record.observation import Observation
from workers.targets.target import DEFAULT_CONFIG
from workers.targets.vllm.target import VllmV1

PARTS = tuple(
    Submit(tick=tick, request=name, prompt=(1, 2), max_tokens=3, session="s") for tick, name in ((0, "a"), (9, "a.1"))
)
RESET = "RuntimeError: Failed to reset KV cache even when all the running requests are preempted"


def begun(step: int, request: int) -> Observation:
    values = {"begun": [(request, [1, 2])], "scheduled_computed": [0]}
    return Observation("scheduled", step, (request,), values)


@pytest.mark.parametrize(
    ("mode", "parts", "steps", "is_known"),
    [
        ("wait", 2, [begun(0, 0), begun(3, 0)], True),
        # Nothing is planned while requests are kept; who begins is no session that goes on, nor is one of one part.
        ("keep", 2, [begun(0, 0), begun(3, 0)], False),
        ("wait", 2, [begun(3, 0)], False),
        ("wait", 1, [begun(0, 0), begun(3, 0)], False),
    ],
)
def test_a_session_is_known_to_go_on_while_requests_come_to_their_ends(
    mode: str, parts: int, steps: list[Observation], is_known: bool
) -> None:
    trace = Trace(spec=EngineSpec(), events=PARTS[:parts])
    wrong = Difference(
        plane="control",
        variable="paused",
        request="submit 0",
        step=3,
        position=None,
        expected=fact("paused", mode=mode),
        actual=fact("planned"),
    )
    assert (VllmV1().known(wrong, trace, steps) == "vllm_session_paused") is is_known


@pytest.mark.parametrize(
    ("error", "has_sessions", "has_connector", "is_known"),
    [(RESET, True, False, True), (RESET, False, False, False), (RESET, True, True, False), ("E", True, False, False)],
)
def test_a_cache_is_known_not_to_be_cleared_beside_a_session(
    error: str, has_sessions: bool, has_connector: bool, is_known: bool
) -> None:
    spec = EngineSpec(transfer=Transfer()) if has_connector else EngineSpec()
    parts = PARTS if has_sessions else tuple(part.model_copy(update={"session": None}) for part in PARTS)
    where = Site(function="reset_prefix_cache", file="scheduler.py", line=2870)
    known = VllmV1().known_crash(error, where, Trace(spec=spec, events=parts), DEFAULT_CONFIG)
    assert (known == "vllm_session_reset") is is_known


@pytest.mark.parametrize(
    ("drafter", "depth", "steps", "is_known"),
    [
        ("ngram_gpu", 2, [begun(0, 0), begun(3, 0)], True),
        # Who begins is copied whole; so is every row of a synchronous engine. Others look up on the host.
        ("ngram_gpu", 2, [begun(0, 0)], False),
        ("ngram_gpu", 2, [begun(0, 0), begun(3, 5)], False),
        ("ngram_gpu", 1, [begun(0, 0), begun(3, 0)], False),
        ("ngram", 1, [begun(0, 0), begun(3, 0)], False),
    ],
)
def test_lookups_are_known_to_miss_the_tokens_of_a_part_that_goes_on(
    drafter: str, depth: int, steps: list[Observation], is_known: bool
) -> None:
    trace = Trace(spec=EngineSpec.model_validate({"drafter": drafter, "depth": depth}), events=PARTS)
    wrong = Difference(
        plane="drafts", variable="looked_up", request="submit 0", step=4, position=3, expected=1, actual=2
    )
    assert (VllmV1().known(wrong, trace, steps) == "vllm_session_lookups") is is_known
