"""Efficiency of a run: it is compared with the synchronous run and, for an overlay, with the release."""

from dataclasses import dataclass

import pytest

from scenarios.events import Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from tests.workers.judge.histories import Part, opened, shown, step_of
from tests.workers.targets.sampler_box import SamplerBoxKind
from workers.judge.efficiency import effort_of
from workers.judge.history import History
from workers.oracle.model_values import ModelValueCache
from workers.record.rules import Reference
from workers.record.verdict import Work
from workers.run.comparison import Comparison
from workers.run.references import References, Requests, synchronous
from workers.targets.registry import target_kind
from workers.targets.target import DEFAULT_CONFIG, RunConfig

SPEC = EngineSpec(depth=2, layers="attention", num_speculative_tokens=2, max_model_len=64)
TRACE = Trace(spec=SPEC, events=(Submit(tick=0, request="a", prompt=(1, 2), max_tokens=4),))
REQUESTS = Requests({}, {}, {}, frozenset())


@dataclass(frozen=True)
class OverlayKind(SamplerBoxKind):
    """A kind of engine whose sources replace those of a release."""

    def released(self, config: RunConfig) -> RunConfig | None:
        return DEFAULT_CONFIG


def history(sampled: list[int], hit: int = 0) -> History:
    """Return a run that verifies draft tokens 4 and 5 after a prompt and the output token 3."""
    records = [
        opened(),
        *step_of(0, Part(0, hit, [1, 2][hit:], [0], begun=[1, 2])),
        shown("processed", 0, [0], sampled=[[3]]),
        *step_of(1, Part(0, 2, [3, 4, 5], [0, 1], num_drafts=2)),
        shown("processed", 1, [0], sampled=[sampled]),
    ]
    return History.of(records)


def compared(kind: SamplerBoxKind, references: References, key: str, other: History) -> Comparison:
    """Return a comparison whose reference run of that key has ended."""
    effort = effort_of(other)
    assert effort is not None
    references.efforts[key] = effort
    return Comparison(TRACE, TRACE, ModelValueCache(), kind, DEFAULT_CONFIG, references, REQUESTS)


def test_fewer_accepted_drafts_than_synchronously_are_a_finding() -> None:
    key = synchronous(TRACE).model_dump_json()
    comparison = compared(SamplerBoxKind(""), References(), key, history([4, 5, 6]))
    found = comparison.first_loss(history([4]))
    assert found is not None
    assert (found.plane, found.variable, found.reference) == ("efficiency", "accepted", Reference.SYNCHRONOUS)
    assert comparison.work == {
        "asynchronous": Work(steps=2, drafts=2),
        "synchronous": Work(steps=2, drafts=2, accepted=2),
    }
    assert compared(SamplerBoxKind(""), References(), key, history([4])).first_loss(history([4, 5, 6])) is None


@pytest.mark.parametrize(
    ("references", "is_compared"),
    [
        (References(), True),
        (References(Reference.RELEASE), True),
        (References(only=Reference.ALONE, with_release=True), True),
        (References(only=Reference.ALONE), False),
        (References("none"), False),
    ],
    ids=["all", "until the release", "sampled with it", "sampled", "none"],
)
def test_fewer_hits_than_on_the_release_are_a_finding(references: References, is_compared: bool) -> None:
    comparison = compared(OverlayKind(""), references, f"release {TRACE.model_dump_json()}", history([4], hit=1))
    found = comparison.first_loss(history([4]))
    assert (found is not None) is is_compared
    if found is not None:
        assert (found.variable, found.expected, found.actual) == ("hit_tokens", 1, 0)
        assert found.reference is Reference.RELEASE
    assert list(comparison.work) == (["overlay", "release"] if is_compared else [])


def test_run_of_the_release_itself_is_not_compared_with_it() -> None:
    comparison = compared(SamplerBoxKind(""), References(), f"release {TRACE.model_dump_json()}", history([4], hit=1))
    assert comparison.first_loss(history([4])) is None


def test_release_of_an_overlay_has_no_overlay_and_no_digest() -> None:
    overlay = RunConfig(engine="vllm", engine_path="/sources", engine_version="1.0", engine_digest="0a", device="sim")
    kind = target_kind("vllm")
    assert kind.released(overlay) == RunConfig(engine="vllm")
    assert kind.released(RunConfig(engine="vllm")) is None


def test_reference_runs_of_the_release_alone_are_none() -> None:
    every = [(Reference.SYNCHRONOUS, TRACE)]
    assert list(References(Reference.RELEASE).needed(every)) == []
