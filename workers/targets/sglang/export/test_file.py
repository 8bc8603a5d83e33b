"""Source of an exported SGLang test: a scheduler on a CPU, requests, and one assertion."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from scenarios.events import Abort, AnyEvent, Submit
from scenarios.trace import Trace
from workers.record.evidence import RACES, Difference
from workers.record.rules import Reference
from workers.record.verdict import detected_race
from workers.targets.child.export.parts import source_of
from workers.targets.child.export.text import WIDTH, Call, Code, docstring, identifier, indented, literal, wrapped
from workers.targets.child.request_features import RequestFeatures
from workers.targets.child.weights import weights_seed
from workers.targets.exported import ExportedTest, ExportError, Finding

_DRIVER = (Path(__file__).parent / "driver" / "scheduler.py",)
# SGLang reads these at import. The second one is also the target's: the scheduler reserves few slots for future output
# tokens, so a small KV cache runs out of slots.
_ENVIRONMENT = (
    'os.environ["SGLANG_USE_CPU_ENGINE"] = "1"',
    'os.environ["SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION"] = "8"',
)
_CONSERVATIVENESS = 0.1


def _min_tokens(submit: Submit) -> list[str]:
    least, stops = submit.params.min_tokens, literal(sorted(submit.stop))
    return [
        f"# No stop token is among the first {least} output tokens.",
        f"assert not set(tokens[:{least}]) & set({stops})",
    ]


def _stop(submit: Submit) -> list[str]:
    first = submit.params.min_tokens
    return [
        "# No output token follows a stop token.",
        f"assert not set(tokens[{first}:-1]) & set({literal(sorted(submit.stop))})",
    ]


def _max_tokens(submit: Submit) -> list[str]:
    return [f"assert len(tokens) <= {submit.max_tokens}"]


_CONTRACTS: Mapping[str, Callable[[Submit], list[str]]] = {
    "min_tokens": _min_tokens,
    "stop": _stop,
    "max_tokens": _max_tokens,
}


def exported_test(finding: Finding, features: RequestFeatures, context_margin: int) -> ExportedTest:
    """Return the test file that reproduces a finding in a checkout of SGLang.

    Its scheduler accepts requests that are `context_margin` tokens longer than the trace's.

    Raises:
        ExportError: no test on a CPU can reproduce it; the message says why.
    """
    _check(finding, features)
    found = finding.difference
    submit = next((each for each in finding.trace.submits() if found and each.request == found.request), None)
    if found is None or submit is None:
        raise ExportError("it does not concern the output of a request, and a test can compare nothing else")
    body = _test(finding, found, submit, partial(_run, features=features, context_margin=context_margin))
    used = {"llama", "save_model", "make_scheduler", "request", "abort", "outputs_of"}
    imports, (constants, *functions) = source_of(_DRIVER, {name for name in used if f"{name}(" in body}, "sglang")
    *others, own = imports
    head = "\n\n".join([_docstring(finding), *others, "\n".join(_ENVIRONMENT), own, constants])
    text = "\n\n\n".join([head, *functions, body]) + "\n"
    return ExportedTest(text, body, "SGLang", "SGLang and pytest, no GPU and no download")


def _check(finding: Finding, features: RequestFeatures) -> None:
    """Raise if SGLang on a CPU cannot reproduce a finding.

    Raises:
        ExportError: it cannot.
    """
    difference, trace = finding.difference, finding.trace
    if detected_race(finding.verdict) is not None or (difference is not None and difference.plane == RACES):
        raise ExportError("it is a race between host and device, and a CPU has no asynchronous device")
    if trace.schedule.policy != "eager":
        raise ExportError("its schedule delays the device, and a CPU has no asynchronous device")
    if trace.spec.num_ranks > 1:
        raise ExportError("it needs several ranks, and an exported test has one process")
    if trace.spec.num_speculative_tokens:
        raise ExportError("it needs draft tokens, which SGLang verifies by GPU kernels")
    for submit in trace.submits():
        reason = features.unwritten(submit)
        if reason is not None:
            raise ExportError(f"request {submit.request}: {reason}")


def _test(finding: Finding, found: Difference, submit: Submit, run_of: Callable[..., list[str]]) -> str:
    """Return the test function as source."""
    trace, spec = finding.trace, finding.trace.spec
    weights = Call("llama", [spec.vocab_size], {"seed": weights_seed("target", spec.vocab_size)})
    saved = Call("save_model", [Code('tmp_path / "model"'), weights, spec.vocab_size])
    lines = wrapped(saved, "model = ")
    name = literal(submit.request)
    run = run_of(trace.events, trace, is_overlapped=spec.depth > 1)
    if found.plane == "contracts":
        if found.variable not in _CONTRACTS:
            raise ExportError(f"contract {found.variable}: an exported test has no assertion for it")
        lines += [*run, f"tokens = outputs[{name}]", *_CONTRACTS[found.variable](submit)]
    elif found.variable == "tokens" and found.reference is Reference.SYNCHRONOUS:
        other = run_of(trace.events, trace, is_overlapped=False, variable="others")
        lines += [
            *run,
            "# The same requests without the overlap schedule.",
            *other,
            f"assert outputs[{name}] == others[{name}]",
        ]
    elif found.variable == "tokens" and found.reference is Reference.ALONE:
        alone = submit.model_copy(update={"tick": 0})
        other = run_of((alone,), trace, is_overlapped=False, variable="others")
        lines += [*run, "# The request alone.", *other, f"assert outputs[{name}] == others[{name}]"]
    else:
        raise ExportError(f"it is about {found.variable}, which is not part of an output, so a test cannot compare it")
    stem = identifier(finding.name, "sglang_")
    return "\n".join([f"def test_{stem}(tmp_path, monkeypatch):", *indented(lines)])


def _run(
    events: tuple[AnyEvent, ...],
    trace: Trace,
    *,
    is_overlapped: bool,
    features: RequestFeatures,
    context_margin: int,
    variable: str = "outputs",
) -> list[str]:
    """Return source lines that run the trace's events in a new scheduler."""
    spec, steps = trace.spec, dict[int, list[object]]()
    for event in sorted(events, key=lambda each: each.tick):
        steps.setdefault(event.tick, []).append(_call(event, trace, features))
    options = {
        "max_total_tokens": spec.num_blocks * spec.block_size,
        "page_size": spec.block_size,
        "max_running_requests": spec.max_num_seqs,
        "schedule_conservativeness": _CONSERVATIVENESS,
        "chunked_prefill_size": spec.max_num_batched_tokens,
        "context_length": spec.max_model_len + context_margin,
        "disable_radix_cache": not spec.prefix_cache,
        "disable_overlap_schedule": not is_overlapped,
    }
    if spec.policy == "priority":
        options |= {
            "enable_priority_scheduling": True,
            "schedule_low_priority_values_first": True,
            "priority_scheduling_preemption_threshold": 0,
            "default_priority_value": 0,
        }
    made = wrapped(Call("make_scheduler", [Code("model"), Code("monkeypatch")], options), "scheduler = ")
    entries = [line for tick, calls in steps.items() for line in wrapped(calls, f"{tick}: ", ",", WIDTH - 8)]
    return [*made, "steps = {", *indented(entries), "}", f"{variable} = outputs_of(scheduler, steps)"]


def _call(event: AnyEvent, trace: Trace, features: RequestFeatures) -> Call:
    match event:
        case Submit(request=name, prompt=tuple() as prompt):
            tokens = trace.spec.length_limit(len(prompt), event.max_tokens) - len(prompt)
            return Call("request", [name, list(prompt), tokens], _options(event, trace, features))
        case Abort(request=name):
            return Call("abort", [name])
    raise ExportError(f"event {event.do}: an exported test has no call for it")


def _options(event: Submit, trace: Trace, features: RequestFeatures) -> dict[str, object]:
    """Return the arguments of a greedy request, without its prompt."""
    options: dict[str, object] = {"temperature": 0.0, **features.written(event)}
    if trace.spec.policy == "priority":
        options["priority"] = event.priority
    return options


def _docstring(finding: Finding) -> str:
    return docstring(
        f"{finding.title[:1].upper()}{finding.title[1:]}.",
        f"A scheduler in this process, on a CPU. Fails on SGLang {finding.version or 'as it was'}.",
        f"Written by `specstorm export` from {finding.source}.",
    )
