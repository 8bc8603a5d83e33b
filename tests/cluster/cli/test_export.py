"""Command `export`: unsupported findings, and the exported test of a finding without a page."""

from pathlib import Path

import pytest

from cluster.reports.issue import EvidenceDocument, places_of, sections_of
from scenarios.scenario_file import RunOn
from tests.cluster.cli.conftest import Here
from tests.workers.targets.exported_text import problems_of
from workers.record.evidence import Access, Difference, MissingOrder, Site, fact
from workers.record.rules import Reference
from workers.record.verdict import NO_STATS, Agreed, Crashed, Diverged, NotDrained, Stuck, Verdict

SPEC = "layers: attention, sampling: standard, block_size: 32, num_speculative_tokens: 0"
SUBMIT = "{tick: 0, do: submit, request: a, prompt: [1, 2], max_tokens: 3, stop: [5]}"
DRAWN = "{tick: 0, do: submit, request: d, prompt: [1, 2], max_tokens: 3, params: {temperature: 1.0}}"
CRASHED = Crashed(
    stats=NO_STATS, error="AssertionError: ", where=Site(function="schedule", file="scheduler.py", line=7)
)
ELSEWHERE = Crashed(stats=NO_STATS, error="IndexError: 3", where=Site(function="embedding", file="layer.py", line=7))
STUCK = Stuck(stats=NO_STATS, waits=NotDrained(steps=9))


def differs(plane: str, variable: str, request: str = "a", **values: object) -> Diverged:
    return Diverged(
        stats=NO_STATS,
        difference=Difference.model_validate(
            {"plane": plane, "variable": variable, "request": request, "step": 1, "expected": 1, "actual": 2, **values}
        ),
    )


TOKENS = differs("tokens", "tokens", reference=Reference.SYNCHRONOUS)
ORDER = MissingOrder(
    first=Access(lane="h2d", op="copy", step=1), second=Access(lane="host", op="x", step=2), memory="m"
)


def export(
    here: Here, verdict: Verdict, *events: str, spec: str = SPEC, engine: str = "vllm-v1", more: str = ""
) -> tuple[int, str]:
    """Export a trace with a given verdict; return the exit code and the error message."""
    Path("found.yaml").write_text(f"spec: {{{spec}}}\nevents:\n" + "".join(f"  - {each}\n" for each in events) + more)
    run_on = RunOn(engine=engine, device="cpu", version="0.32.0")
    seen = EvidenceDocument(specstorm="", exit_code=0, run_on=run_on, verdict=verdict)
    Path("seen.json").write_text(seen.model_dump_json())
    done = here("export", "found.yaml", "--evidence", "seen.json", "--out", "there")
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Agreed(stats=NO_STATS), "agreed; export needs a finding"),
        (differs("races", "m", missing_order=ORDER), "a race between host and device"),
        (differs("drafts", "draft_cache"), "it is about draft_cache, which is no output"),
        (differs("contracts", "top_p", actual=fact("nothing")), "contract top_p: no assertion"),
        (differs("tokens", "tokens", "submit 0", reference=Reference.ALONE), "a test has no such value"),
    ],
)
def test_export_refuses_a_finding_without_a_cpu_test(here: Here, verdict: Verdict, said: str) -> None:
    code, complaint = export(here, verdict, SUBMIT)
    assert code == 2
    assert said in complaint
    assert complaint.count("\n") == 1
    assert not Path("there").exists()


@pytest.mark.parametrize(
    ("events", "spec", "said"),
    [
        (["{tick: 1, do: stall, request: a}"], SPEC, "tick 1: no call of an exported test stands for event stall"),
        (["{tick: 1, do: abort, request: a, at: before_process}"], SPEC, "events between steps"),
        (["{tick: 1, do: pause, mode: abort}"], SPEC, "no call of an exported test stands for event pause"),
        (
            ["{tick: 1, do: pause, mode: keep, ticks: 4}", "{tick: 3, do: pause, mode: keep}"],
            SPEC,
            "tick 3: pause within a pause",
        ),
        ([], SPEC.replace("tokens: 0", "tokens: 2"), ""),
        ([], SPEC.replace("tokens: 0", "tokens: 2, drafter: mtp"), "spec.drafter is mtp"),
        ([], SPEC.replace("attention", "hybrid"), "spec.layers is hybrid"),
        ([], SPEC + ", decodes_first: true", "spec.decodes_first"),
        ([DRAWN], SPEC + ", max_num_batched_tokens: 4", ""),
        ([DRAWN], SPEC + ", max_num_batched_tokens: 3", "request d samples with a seed after a chunked prefill"),
    ],
)
def test_export_refuses_a_trace_without_equivalent_calls(here: Here, events: list[str], spec: str, said: str) -> None:
    code, complaint = export(here, TOKENS, SUBMIT, *events, spec=spec)
    assert code == (2 if said else 0)
    assert said in complaint


def test_export_refuses_late_device_and_second_runner_findings(here: Here) -> None:
    assert "no device" in export(here, TOKENS, SUBMIT, more="schedule: {policy: lazy}\n")[1]
    assert "second model runner" in export(here, TOKENS, SUBMIT, engine="vllm")[1]
    # Both have the same scheduler.
    assert export(here, STUCK, SUBMIT, engine="vllm") == (0, "")


def test_invalid_evidence_is_refused_with_its_command(here: Here) -> None:
    Path("found.yaml").write_text(f"spec: {{{SPEC}}}\nevents: [{SUBMIT}]\n")
    Path("seen.json").write_text("{}")
    done = here("export", "found.yaml", "--evidence", "seen.json")
    assert (done.returncode, "expected a file written by `specstorm export`" in done.stderr) == (2, True)
    assert here("export", "found.yaml", "--evidence", "none.json").returncode == 2
    assert "export supports findings of" in here("export", "found.yaml", "--engine", "specstorm").stderr


@pytest.mark.parametrize(
    ("verdict", "lines"),
    [
        (CRASHED, ["scheduler = make_scheduler(model, async_scheduling=True)"]),
        (ELSEWHERE, ["engine = make_engine(model, async_scheduling=True)", "# Every request finishes."]),
        (STUCK, ["drain(scheduler)"]),
        (differs("books", "leaks", ""), ["assert not scheduler.requests"]),
        (TOKENS, ["def run(model, **options):", "assert tokens_of(outputs) == tokens_of(others)"]),
        (
            differs("tokens", "tokens", reference=Reference.ALONE),
            ["alone = make_engine(model, async_scheduling=False)", 'others = alone.outputs["a"]'],
        ),
        (differs("contracts", "max_tokens"), ["assert len(tokens_of(outputs)) <= 3"]),
        (differs("contracts", "stop"), ["assert not set(tokens[:-1]) & set([5])"]),
        (differs("counts", "mirror_computed", "submit 0"), ["engine.counts = []", "    assert computed == known - 1"]),
        (differs("control", "paused", "submit 0"), ["        assert plan.num_scheduled_tokens.keys() <= running"]),
    ],
)
def test_exported_test_builds_and_asserts_the_finding(here: Here, verdict: Verdict, lines: list[str]) -> None:
    assert export(here, verdict, SUBMIT) == (0, "")
    text = Path("there/test_found.py").read_text()
    assert problems_of(text) == []
    assert [line for line in lines if f"{line}\n" not in text] == []
    issue = Path("there/found.md").read_text()
    assert "## Evidence" in issue
    assert "`pytest test_found.py`" in issue
    # Without a page and a patch nothing is said of a symptom, or of what would mend it.
    assert "## What" not in issue


@pytest.mark.parametrize(
    ("events", "calls"),
    [
        (["{tick: 1, do: preempt, request: a}"], ["step(engine)", 'preempt(engine, "a")', "drain(engine)"]),
        (
            ["{tick: 1, do: pause, mode: keep, ticks: 5}"],
            ["step(engine)", "pause(engine, PauseState.PAUSED_ALL, clear_cache=True)", "resume(engine)"],
        ),
        (
            [
                "{tick: 1, do: pause, mode: wait, ticks: 5}",
                SUBMIT.replace("tick: 0", "tick: 4").replace(": a,", ": b,"),
            ],
            [
                *("step(engine)", "pause(engine, PauseState.PAUSED_NEW, clear_cache=True)"),
                'add_request(engine, "b", [1, 2], max_tokens=3, stop_token_ids=[5])',
                *("for _ in range(2):", "    step(engine)", "resume(engine)", "drain(engine)"),
            ],
        ),
    ],
)
def test_export_writes_calls_of_preemptions_and_pauses_in_order(
    here: Here, events: list[str], calls: list[str]
) -> None:
    assert export(here, ELSEWHERE, SUBMIT, *events) == (0, "")
    text = Path("there/test_found.py").read_text()
    assert problems_of(text) == []
    assert "\n".join(f"    {call}" for call in calls) in text


def test_lookups_on_the_device_are_compared_with_prompts_in_each_step(here: Here) -> None:
    spec = SPEC.replace("tokens: 0", "tokens: 2, drafter: ngram_gpu")
    assert export(here, differs("drafts", "looked_up", "submit 0"), SUBMIT, spec=spec) == (0, "")
    text = Path("there/test_found.py").read_text()
    assert problems_of(text) == []
    assert "assert tokens == prompt, request_id" in text
    assert export(here, differs("drafts", "looked_up", "submit 0"), SUBMIT)[0] == 2


def test_target_with_windows_and_its_draft_model_are_written_with_their_layers(here: Here) -> None:
    spec = SPEC.replace("attention", "windows").replace("tokens: 0", "tokens: 2, drafter: draft_model, window: 33")
    assert export(here, differs("drafts", "draft_slots", "submit 0"), SUBMIT, spec=spec) == (0, "")
    text = Path("there/test_found.py").read_text()
    assert problems_of(text) == []
    lines = ("add_windows(model, 33)", '"model": draft', "assert tokens_of(outputs) == tokens_of(others)")
    assert [line for line in lines if line not in text] == []


def test_scheduler_of_a_drafter_has_the_configuration_of_its_head(here: Here) -> None:
    assert export(here, STUCK, SUBMIT, spec=SPEC.replace("tokens: 0", "tokens: 2")) == (0, "")
    text = Path("there/test_found.py").read_text()
    assert problems_of(text) == []
    assert 'head = save_config(tmp_path / "head", 32, num_layers=1)' in text


def test_an_issue_takes_its_page_and_names_the_places_of_its_patch(here: Here) -> None:
    sections = "## What a client sees\n\nAll is\nlost.\n\n## Cause\n\n- A\n  row.\n- Two.\n"
    Path("found.md").write_text(f"# vLLM: it ends\n\n{sections}")
    patch = "--- a/vllm/a.py\n+++ b/vllm/a.py\n@@ -7,3 +7,4 @@\n one\n two\n+new\n three\n"
    Path("found.patch").write_text(patch)
    assert export(here, CRASHED, SUBMIT) == (0, "")
    issue = Path("there/found.md").read_text()
    assert issue.startswith("# It ends\n\n## What a client sees\n\nAll is lost.\n")
    assert "\n\n- A row.\n- Two.\n" in issue
    assert "`vllm/a.py:9`" in issue
    assert patch in issue
    assert places_of(patch) == ["vllm/a.py:9"]
    assert sections_of("# x") == {}
