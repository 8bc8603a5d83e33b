"""Outputs that may vary with the schedule: they are no finding, all others are compared."""

import pytest

from scenarios.codec import loads
from workers.run.varying_outputs import varying

SPEC = "spec: {drafter: draft_model, draft_sampling: probabilistic, num_speculative_tokens: 2}"
WITHOUT_DRAFTS = "spec: {num_speculative_tokens: 0}"
LOADING = "spec: {num_speculative_tokens: 0, transfer: {store_blocks: 4, failures: fail}}"
SUBMITS = """
  - {tick: 0, do: submit, request: r0, prompt: [1, 2, 3], max_tokens: 9}
  - {tick: 1, do: submit, request: r1, prompt: [4, 5], max_tokens: 9}
"""


def names(spec: str, more: str = "", scripts_drafts: bool = False) -> set[str]:
    return set(varying(loads(f"{spec}\nevents:{SUBMITS}{more}", "varying"), scripts_drafts))


@pytest.mark.parametrize(
    ("event", "due"),
    [
        ("", set()),
        ("  - {tick: 5, do: preempt, request: r1}", set()),
        ("  - {tick: 5, do: abort, request: r1}", {"r1"}),
        ("  - {tick: 5, do: spoil_logit, request: r1}", {"r1"}),
        ("  - {tick: 50, do: submit, request: r1, prompt: [1], max_tokens: 2}", {"r1"}),
        ("  - {tick: 50, do: submit, request: r2, prompt: {continues: r0, tokens: 1}, max_tokens: 2}", {"r2"}),
        ("  - {tick: 5, do: pause, mode: keep}", set()),
        ("  - {tick: 5, do: pause, mode: abort}", {"r0", "r1"}),
        ("  - {tick: 5, do: load_weights}", {"r0", "r1"}),
    ],
)
def test_varying_events_with_own_drafts_or_loads(event: str, due: set[str]) -> None:
    assert names(SPEC, event) == names(LOADING, event) == due
    # With scripted drafts or none, the progress of a request at each tick is the same under all schedules.
    assert not names(SPEC, event, scripts_drafts=True)
    assert not names(WITHOUT_DRAFTS, event)


def test_varying_session_part_varies_whole_session() -> None:
    part = "  - {{tick: 9, do: submit, request: {}, session: {}, prompt: [7], max_tokens: 2}}\n"
    parts = part.format("a", "s") + part.format("b", "s") + part.format("c", "t")
    assert names(SPEC, parts) == set()
    assert names(SPEC, parts + "  - {tick: 9, do: abort, request: a}") == {"a", "b"}


def test_varying_sampled_requests_and_failing_loads() -> None:
    drawn = "  - {tick: 2, do: submit, request: r2, prompt: [7], max_tokens: 2, params: {temperature: 1.0}}"
    standard = SPEC.replace("{", "{sampling: standard, ")
    assert names(standard, drawn) == {"r2"}
    failing = "  - {tick: 2, do: disturb_transfer, request: r1, how: fail}"
    assert names(LOADING, failing) == {"r1"}
    assert names(LOADING.replace(": fail", ": recompute"), failing) == set()
