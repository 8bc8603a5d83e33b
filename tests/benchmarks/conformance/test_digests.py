"""The stored list of verdicts and digests: format of its lines, and its scenarios."""

from benchmarks.conformance.digests import line, traces
from scenarios.codec import find_scenarios
from workers.run.worker import Worker


def test_line_contains_verdict_digest_and_bug() -> None:
    listed = dict(traces(1, ["scenarios/regressions"]))
    agreed = line("random 0", listed["random 0"], Worker())
    assert agreed == line("random 0", listed["random 0"], Worker())
    assert agreed.startswith("random 0: agreed ")
    assert agreed.endswith(" -")
    faulty = next(name for name, trace in listed.items() if trace.faults)
    found = line(faulty, listed[faulty], Worker())
    assert " diverged " in found
    assert not found.endswith(" -")


def test_traces_skips_scenarios_that_specstorm_lacks() -> None:
    files = {path.stem for path in find_scenarios(["scenarios/vllm"])}
    names = {name for name, _ in traces(0, ["scenarios/vllm"])}
    assert names < files
