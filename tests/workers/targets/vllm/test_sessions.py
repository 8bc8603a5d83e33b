"""Streaming sessions of the real vLLM: a part is answered like a request with its prompt."""

from pathlib import Path

import pytest

from scenarios.codec import load
from scenarios.events import EndSession, Schedule
from workers.edits.fix import ALL
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed
from workers.run.check import check
from workers.run.engine_run import UNJUDGED, Run
from workers.targets.registry import target_kind
from workers.targets.target import RunConfig
from workers.targets.vllm.names import VLLM, VLLM_V1

ROOT = Path(__file__).resolve().parents[4]
VALUE_CACHE = ModelValueCache()


@pytest.mark.parametrize("engine", [VLLM, VLLM_V1])
@pytest.mark.parametrize("name", ["sessions", "sessions_ended_by_tokens"])
def test_session_parts_are_answered_like_requests_with_their_prompts(name: str, engine: str) -> None:
    trace = load(ROOT / "scenarios" / "vllm" / f"{name}.yaml").explicit()
    verdict = check(trace, VALUE_CACHE, config=RunConfig(engine=engine, fixes=ALL))
    assert isinstance(verdict, Agreed)
    assert verdict.stats.probes["session_part"] >= 4


def test_session_part_continues_before_last_token_and_abort_ends_session() -> None:
    trace = load(ROOT / "scenarios" / "vllm" / "sessions.yaml").explicit()
    trace = trace.model_copy(update={"schedule": Schedule(policy="lazy")})
    run = Run(trace, VALUE_CACHE, UNJUDGED, target_kind(VLLM), RunConfig(engine=VLLM))
    assert run.to_end() is None
    outputs = run.target.outputs()
    run.target.close()
    own = {submit.request: submit.prompt for submit in trace.submits()}
    came = {submit.request: submit.prompt for submit in run.explicit().submits()}
    assert all(submit.session is None for submit in run.explicit().submits())
    assert not any(isinstance(event, EndSession) for event in run.explicit().events)
    for part, before in (("a.1", "a"), ("a.2", "a.1"), ("c.1", "c"), ("d.1", "d")):
        assert came[part] == (*came[before], *outputs[before].tokens[:-1], *own[part])
    assert outputs["c.1"].finish_reason == "abort"
    assert "c.2" not in came
