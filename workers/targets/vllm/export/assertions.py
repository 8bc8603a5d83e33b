"""Assertions of exported tests: a broken output rule, differing runs, or wrong counts.

A contract is a rule for the outputs of one request, such as `min_tokens` or its grammar.
"""

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from scenarios.events import Submit
from workers.record.evidence import Difference, Fact
from workers.record.rules import Reference
from workers.record.verdict import Crashed, Stuck
from workers.targets.child.export.text import comment, literal, wrapped
from workers.targets.exported import ExportError, Finding
from workers.targets.vllm.export.level import PAUSED, Level

# Another run to compare outputs with: all requests with other engine options, or one request alone.
Other: TypeAlias = Literal["", "synchronous", "without_speculation", "alone"]


class Assertion(NamedTuple):
    """Last lines of an exported test, with the driver functions and the other run that they use.

    The lines name the outputs of the request `outputs`, those in the other run `others`. `watches` is the driver file
    whose step checks or records something.
    """

    lines: list[str]
    uses: frozenset[str] = frozenset()
    other: Other = ""
    submit: Submit | None = None
    watches: Literal["", "counts", "lookups", "paused"] = ""


def assertion_of(finding: Finding, level: Level) -> Assertion:
    """Return the assertion that an exported test makes for a finding.

    Raises:
        ExportError: the finding is about a value that no test on a CPU observes.
    """
    match finding.verdict:
        case Crashed() if level == "engine":
            ends = "ends = [outputs[-1].finish_reason for outputs in engine.outputs.values()]"
            return Assertion(["# Every request finishes.", ends, "assert None not in ends"])
        case Crashed(where=where):
            return Assertion([comment(f"This line is reached: the release raises in {where.function}.")])
        case Stuck():
            return Assertion(["# This line is reached: in the release a request waits for ever."])
    found = finding.difference
    assert found is not None, "an exported finding diverged, crashed or got stuck"
    if (found.plane, found.variable) == ("books", "leaks"):
        return Assertion(["# The scheduler has no request left.", "assert not scheduler.requests"])
    if (found.plane, found.variable) == PAUSED:
        return Assertion(["# No step admitted a request during the pause."], watches="paused")
    if (found.plane, found.variable) == ("counts", "mirror_computed"):
        return _counts(finding, found)
    if found.variable == "looked_up" and finding.trace.spec.drafter == "ngram_gpu":
        return Assertion(["# Each step looked up draft tokens in the tokens of the right request."], watches="lookups")
    if found.variable == "draft_slots" and finding.trace.spec.layers == "windows":
        return _draft_slots(finding, found)
    submit = next((each for each in finding.trace.submits() if each.request == found.request), None)
    if submit is None:
        raise ExportError(f"it is about {found.variable} of {found.request or 'no request'}: a test has no such value")
    if found.plane == "contracts":
        return _contract(finding, found, submit)
    if found.variable in ("tokens", "finish_reason"):
        return _comparison(found, submit)
    raise ExportError(f"it is about {found.variable}, which is no output: a test on a CPU does not see it")


def _comparison(found: Difference, submit: Submit) -> Assertion:
    assert found.reference is not None, "tokens are compared with another run"
    lines = ["assert tokens_of(outputs) == tokens_of(others)"]
    others: Mapping[Reference, Other] = {
        Reference.SYNCHRONOUS: "synchronous",
        Reference.WITHOUT_SPECULATION: "without_speculation",
        Reference.ALONE: "alone",
    }
    # In another run each part of a session is a request of its own.
    other: Other = "alone" if submit.session is not None else others[found.reference]
    return Assertion(lines, frozenset({"tokens_of"}), other, submit)


def _draft_slots(finding: Finding, found: Difference) -> Assertion:
    """Return an assertion that a run without drafts has the same tokens, for wrong draft slots."""
    named = dict(enumerate(finding.trace.submitted()))
    submit = next((each for index, each in named.items() if found.request == f"submit {index}"), None)
    if submit is None or submit.params.temperature:
        raise ExportError("it is about draft slots: a test compares the tokens of a greedy request only")
    lines = ["assert tokens_of(outputs) == tokens_of(others)"]
    return Assertion(lines, frozenset({"tokens_of"}), "without_speculation", submit)


def _counts(finding: Finding, found: Difference) -> Assertion:
    """Return an assertion on the runner's computed-token counts after each step."""
    submits = finding.trace.submits()
    if len(submits) != 1:
        raise ExportError("it is about counts of one request among several: a test checks only one")
    submit = submits[0]
    if submit.prompt_length > finding.trace.spec.max_num_batched_tokens:
        raise ExportError("it is about counts of a chunked prefill: a test checks the counts of decode steps only")
    lines = [
        "# After each step the runner has the number of tokens computed before it.",
        f"known = {submit.prompt_length}",
        "for output, computed in zip(outputs[:-1], engine.counts[1:]):",
        "    known += len(output.new_token_ids)",
        "    assert computed == known - 1",
    ]
    return Assertion(lines, submit=submit, watches="counts")


def _contract(finding: Finding, found: Difference, submit: Submit) -> Assertion:
    if found.variable not in _CONTRACTS:
        raise ExportError(f"contract {found.variable}: no assertion of an exported test checks it")
    lines = _CONTRACTS[found.variable](found, submit)
    uses = {name for name in ("tokens_of",) if any(f"{name}(" in line for line in lines)}
    return Assertion(lines, frozenset(uses), submit=submit)


def _min_tokens(found: Difference, submit: Submit) -> list[str]:
    stops = literal(sorted(submit.stop))
    return [
        f"# The first {submit.params.min_tokens} output tokens have no stop token.",
        f"assert not set(tokens_of(outputs)[:{submit.params.min_tokens}]) & set({stops})",
    ]


def _stop(found: Difference, submit: Submit) -> list[str]:
    return [
        "# No token follows a stop token.",
        f"tokens = tokens_of(outputs)[{submit.params.min_tokens}:]",
        f"assert not set(tokens[:-1]) & set({literal(sorted(submit.stop))})",
    ]


def _allowed_tokens(found: Difference, submit: Submit) -> list[str]:
    return [f"assert set(tokens_of(outputs)) <= set({literal(sorted(submit.params.allowed_tokens))})"]


def _max_tokens(found: Difference, submit: Submit) -> list[str]:
    return [f"assert len(tokens_of(outputs)) <= {submit.max_tokens}"]


def _answer(found: Difference, submit: Submit) -> list[str]:
    return ["assert outputs and outputs[-1].finish_reason is not None"]


def _grammar(found: Difference, submit: Submit) -> list[str]:
    edges = [{edge[0]: edge[1] for edge in state} for state in submit.params.grammar]
    return [
        "# Each output token is allowed by the grammar: state -> token -> next state.",
        *wrapped(edges, "edges = "),
        "state = 0",
        "for token in tokens_of(outputs):",
        "    assert token in edges[state]",
        "    state = edges[state][token]",
    ]


def _width(submit: Submit) -> int:
    """Return the number of logprobs that a request gets for each output token."""
    named = submit.params.logprob_tokens
    return 1 + len(named) if named else submit.params.num_logprobs


def _logprobs(found: Difference, submit: Submit) -> list[str]:
    width = _width(submit)
    return [
        comment(f"Each output token has {width} logprobs."),
        "for output in outputs:",
        "    assert output.new_logprobs is not None",
        f"    assert output.new_logprobs.logprob_token_ids.shape[1] >= {width}",
    ]


def _logprob_ranks(found: Difference, submit: Submit) -> list[str]:
    width = _width(submit)
    return [
        "# After a token's own logprob: those of different tokens, likeliest first.",
        "for output in outputs:",
        f"    for likeliest in output.new_logprobs.logprob_token_ids[:, 1:{width}].tolist():",
        "        assert len(set(likeliest)) == len(likeliest)",
        f"    for logprobs in output.new_logprobs.logprobs[:, 1:{width}].tolist():",
        "        assert logprobs == sorted(logprobs, reverse=True)",
    ]


def _prompt_logprobs(found: Difference, submit: Submit) -> list[str]:
    due = found.expected.values if isinstance(found.expected, Fact) else {}
    lines = [
        "of_prompt = [output.new_prompt_logprobs_tensors for output in outputs]",
        "shapes = [each.logprob_token_ids.shape for each in of_prompt if each is not None]",
    ]
    # The evidence is read from a file: its values are written as literals only.
    count, width = (literal(due.get(name)) for name in ("count", "width"))
    if "count" not in due:
        return ["# The prompt has one token, hence no prompt logprobs.", *lines, "assert not shapes"]
    shape = f"({count}, {width})"
    said = comment(f"Each prompt token after the first has {width} logprobs.")
    return [said, *lines, f"assert shapes == [{shape}]"]


_CONTRACTS: Mapping[str, Callable[[Difference, Submit], list[str]]] = {
    "answer": _answer,
    "min_tokens": _min_tokens,
    "stop": _stop,
    "allowed_tokens": _allowed_tokens,
    "max_tokens": _max_tokens,
    "grammar": _grammar,
    "logprobs": _logprobs,
    "logprob_ranks": _logprob_ranks,
    "prompt_logprobs": _prompt_logprobs,
}
