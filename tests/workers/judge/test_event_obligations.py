"""Events: the request that each applies to, and its effect on names and results."""

from scenarios.events import Abort, AnyEvent, Preempt, ResetPrefixCache, SetK, Submit
from scenarios.spec import EngineSpec
from scenarios.trace import Trace
from workers.oracle.model_values import ModelValueCache
from workers.record.verdict import Agreed, Stats
from workers.run.check import check

VALUE_CACHE = ModelValueCache()


def submit(tick: int, name: str = "a", tokens: int = 20, priority: int = 0) -> Submit:
    prompt = tuple(range(9))
    return Submit(tick=tick, request=name, prompt=prompt, max_tokens=tokens, accept="all", priority=priority)


def ran(*events: AnyEvent, **spec: object) -> Stats:
    trace = Trace(spec=EngineSpec.model_validate(spec), events=events).explicit()
    verdict = check(trace, VALUE_CACHE)
    assert isinstance(verdict, Agreed), verdict
    return verdict.stats


def test_set_k_above_maximum_uses_maximum() -> None:
    digests = {k: ran(submit(0), SetK(tick=2, k=0), SetK(tick=4, k=k)).digest for k in (2, 3, 4, 99)}
    assert digests[99] == digests[4] == digests[3] != digests[2]


def test_submit_with_name_in_use_does_nothing() -> None:
    assert ran(submit(0), submit(2)).requests == 1
    assert ran(submit(0), submit(2)).digest == ran(submit(0)).digest


def test_submit_at_same_hook_as_abort_reuses_name() -> None:
    stats = ran(submit(0), Abort(tick=3, request="a"), submit(3))
    assert stats.requests == 2
    assert stats.probes["name_reused"] == 1
    assert ran(submit(0), submit(3), Abort(tick=3, request="a")).requests == 1


def test_event_applies_to_newest_request_of_name() -> None:
    twice = ran(submit(0), Abort(tick=3, request="a"), submit(3), Abort(tick=6, request="a"))
    assert twice.probes["abort"] == 2
    assert twice.commits < ran(submit(0), Abort(tick=3, request="a"), submit(3)).commits


def test_preempt_resamples_only_dropped_results() -> None:
    kept = ran(submit(0), Preempt(tick=4, request="a"))
    dropped = ran(submit(0), Preempt(tick=4, request="a", mode="drop"))
    assert dropped.probes["dropped_output"] == 1
    assert kept.probes["stale_wait"] == 1
    assert "dropped_output" not in kept.probes
    assert "stale_wait" not in dropped.probes


def test_prefix_cache_reset_removes_hits_and_may_preempt() -> None:
    cached = {"layers": "attention", "prefix_cache": True}
    assert ran(submit(0), submit(2, "b"), **cached).probes["prefix_hit"] == 1
    reset = ran(submit(0), ResetPrefixCache(tick=2), submit(2, "b"), **cached)
    assert "prefix_hit" not in reset.probes
    assert "preemption" not in reset.probes
    running = ran(submit(0), submit(0, "b"), ResetPrefixCache(tick=4, running=True), **cached)
    assert running.probes["preemption"] == 2
    assert running.probes["dropped_output"] == 2


def test_priority_policy_admits_most_urgent_request_first() -> None:
    events = (submit(0, "a"), submit(1, "b", priority=2), submit(2, "c", priority=1))
    assert "overtaking" not in ran(*events, max_num_seqs=1).probes
    assert ran(*events, max_num_seqs=1, policy="priority").probes["overtaking"] == 1
