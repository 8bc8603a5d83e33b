"""Glossary: the meanings of the words in reports, for the page and `specstorm explain`."""

from collections.abc import Iterator, Mapping

from scenarios.probes import PROBES
from workers.faults.registry import FAULTS
from workers.judge.contracts.judge import CONTRACTS
from workers.record.observation import VARIABLES

GLOSSARY: Mapping[str, str] = {
    "acceptance script": "one bit for each output position of a request: whether a draft token there is right or wrong",
    "actual": "the value that the engine has at the first difference",
    "agreed": "verdict: engine and oracle are equal in every observation, and everything that was expected happened",
    "artefact": "the file of a finding: its trace, with the finding in a comment; `specstorm replay` reproduces it",
    "blame": "the last writers of a wrong value: lane, op and step, newest first",
    "campaign": "the runs of one or more commands, with one directory that keeps the results",
    "canary": "a fault switched on in some shards on purpose; a hunt that does not find it proves nothing (`blind`)",
    "capture": "a copy of device memory, taken in stream order at a named point of a step",
    "clean engine": "the engine without any fault switched on",
    "commit": "of a finding: one step of one request, named by its commit key; of a command: the git commit it ran",
    "commit key": "request/incarnation/epoch/k, by which results are aligned: epoch counts preemptions, k the steps "
    "that scheduled the request since",
    "contract": "a rule that an output must follow for its request alone, without comparison to another run",
    "coverage": "runs in which a trace had an event and a plane was compared",
    "crashed": "verdict: the engine raised an exception, on the host or in a device op",
    "digest": "a hash of every capture of a run in order; schedules of a trace without a race have the same digest",
    "diverged": "verdict: engine and oracle differ; the first difference says where",
    "epoch": "the number of times that a request has been preempted",
    "error": "the exception that the engine raised",
    "event (of a trace)": "what happens to the engine: submit, abort, preempt, reorder, stall and others, at a tick",
    "event (of a lane)": "a mark in a lane, as in CUDA: a wait for it ends once everything before the mark has run",
    "expected": "the value that the oracle has at the first difference",
    "face": "another fingerprint of a finding whose cause is known to be the same planted fault",
    "fault": "a historical bug of a real engine that can be switched on, named after its source",
    "fault switched off": "change: only the earlier campaign had the fault on that this finding needs",
    "fault switched on": "change: only the later campaign had the fault on that this finding needs",
    "finding": "a verdict against the engine: diverged, crashed or stuck",
    "fingerprint": "the name of a bug, the same for every trace: plane, variable and rule, or the two lanes of a "
    "missing order",
    "first difference": "the first observation of a run in which engine and oracle differ",
    "gate": "scenarios chosen by the files that a change touches, then a hunt",
    "gone": "change: the later campaign judged again what had met this finding, without meeting it",
    "harm": "the effect of a missing order: the schedules under which a value is wrong or other bytes are read; a race "
    "without harm (`masked`) is a finding all the same",
    "hold": "an exception of a schedule: an op does not run before something named has passed",
    "hunt": "random traces, each run under several schedules; every finding is shrunk",
    "incarnation": "the number of earlier requests with the same name",
    "kill matrix": "for each fault the share of trials in which each plane was the first to find it",
    "known": "finding: it disappears with the fix of a bug in `findings/`, or a triage says how to deal with it",
    "known bug": "a bug with a fix in `findings/`, or a finding in a folder of triaged findings",
    "lane": "one in-order actor of the machine: the host thread, the compute stream, each copy stream",
    "last writer": "the op that wrote a value last before it was found wrong",
    "lost": "verdict: no verdict was reached, for a reason outside the trace",
    "made at": "the functions that decided what a run without progress waits for, or what a wrong value was made from",
    "missing order": "two accesses of the same memory, at least one of them a write, that no event orders: a race",
    "new": "finding: no earlier night and no earlier campaign has met it",
    "night": "regressions, a hunt and trials of a part of the faults, as `specstorm nightly` runs them",
    "not judged": "no verdict was reached, because the time ended or the command was stopped before",
    "not judged before": "change: the earlier campaign judged nothing that could have met this finding",
    "not met": "finding: an earlier night or campaign met it, and this one, which judged other traces, did not",
    "observation": "named values of requests, rows or blocks at one point of a run, compared with the oracle",
    "op": "one operation of a lane: a kernel, a copy, or an access of the host",
    "oracle": "a synchronous model, which says what every value must be from the trace and the host's decisions alone",
    "plane": "a kind of state that is compared: tokens, counts, inputs, kv, recurrent, drafts, blocks and others",
    "policy": "the base of a schedule: eager (device early), lazy (device late), lane_order (fixed priority) or random",
    "position": "the index of a token in its request, counted from 0",
    "probe": "a situation inside the engine that is counted in each run; one that is never hit was not tested",
    "profile": "the generators of a hunt's traces: `labelled` (from a seed), `hypothesis`, or both",
    "race": "a missing order",
    "raised in": "the function that raised the exception",
    "reason": "why a run makes no progress",
    "regression": "a trace of known faults that a night runs again: with its faults on, which must be found, and on "
    "the clean engine, which must agree; it is judged once both runs have a verdict",
    "replay": "the command that runs the trace of a finding again, and reproduces it",
    "request": "one request of a client: a prompt and sampling parameters; the events of a trace name it",
    "run": "one trace under one schedule",
    "run-ahead": "whole steps that were launched and not begun on the device when another step was scheduled",
    "scenario": "a trace as a YAML file, with the probes that it expects",
    "schedule": "the order in which lanes advance: a policy and labelled exceptions",
    "seed": "the number that the random traces of a hunt are drawn from",
    "seen before": "finding: an earlier night has met it, and nobody has decided how to deal with it",
    "shard": "twelve generated traces, which are one job of a hunt",
    "shrink": "to make the trace of a finding small, as long as it fails in the same variable",
    "step": "one forward pass of the engine for one batch, counted from 0",
    "still there": "change: both campaigns met this finding",
    "stuck": "verdict: the engine stopped making progress",
    "survival curve": "the share of trials that have not found their fault after a number of traces (Kaplan and Meier)",
    "tick": "one call of the engine's step",
    "timeline": "the ops that ran in each lane of one run, in order",
    "trace": "specification, events and schedule: everything that can change a verdict",
    "trial": "generated traces with one fault switched on, until it is found or the number of traces is reached",
    "vacuous": "verdict: engine and oracle are equal, but an event or probe that the scenario requires did not occur",
    "variable": "a named value of a plane; `specstorm explain` knows each",
    "verdict": "the result of a judged trace: agreed, diverged, crashed, stuck, vacuous or lost",
}
# Meanings of events of a trace, by their name in a scenario.
_EVENTS: Mapping[str, str] = {
    "submit": "a request arrives",
    "abort": "the client aborts a request",
    "preempt": "a running request loses its blocks and its state, and is recomputed later",
    "stall": "a request is not scheduled for some ticks",
    "reorder": "the rows of the next batch are permuted",
    "end_session": "the client adds no more parts to a session",
    "set_k": "from this step on, another number of draft tokens is proposed for each request",
    "reset_prefix_cache": "the prefix cache is emptied",
    "no_valid_token": "the next step that samples for a request yields no valid token for it",
    "nan_logits": "the next step that samples for a request computes logits that are not numbers",
    "spoil_logit": "one logit of the next step that samples for a request becomes NaN or infinite",
    "spoil_draft": "one draft token that the next step verifies for a request becomes invalid",
    "dummy_step": "a step that schedules nothing runs the target model over a batch of padding",
    "disturb_transfer": "a load or a store of a request's blocks is delayed, fails or is reported late",
    "pause": "generation is paused for some ticks",
    "resume": "a pause ends as soon as it is complete",
    "sleep": "the engine is paused, and frees weights or caches",
    "wake_up": "the engine has its weights or its caches again after a sleep",
    "load_weights": "the weights of the target model are replaced between two steps",
    "neighbour": "another engine in the same process runs a step after each of the next ticks",
}
_POLICIES: Mapping[str, str] = {
    "eager": "each device op runs as early as possible, as on a fast device",
    "lazy": "each device op runs as late as possible: only once the host waits for it",
    "lane_order": "lanes have fixed priorities, and the first lane that can advance does",
    "random": "the lane that advances is drawn from a seed",
}
# Meanings of planes that do not follow from their variables.
_PLANES: Mapping[str, str] = {
    "contracts": f"what follows from a request alone: {', '.join(CONTRACTS)}",
    "books": "leaks of blocks and rows, and observations that are missing",
    "crash": "exceptions of the engine",
    "determinism": "equal captures under all schedules of a trace",
    "efficiency": "a run that does more work than the synchronous run or the release: prefix-cache hits, preemptions, "
    "recomputed tokens, accepted draft tokens, steps",
    "liveness": "progress: that every run ends, and that no request waits beside room for it",
    "sampler": "what the sampler has stored for a request: its parameters, tokens and counts",
    "races": "orders between accesses of the same memory",
}


def meanings(word: str) -> Iterator[tuple[str, str]]:
    """Yield the meanings of a word, each with its kind.

    Kinds are word, event, policy, plane, variable, contract, probe and fault.

    A plural without a meaning of its own has those of its singular.
    """
    wanted = word.strip().lower()
    found = list(_meanings(wanted))
    yield from found or (_meanings(wanted[:-1]) if wanted.endswith("s") else ())


def _meanings(wanted: str) -> Iterator[tuple[str, str]]:
    for name, text in GLOSSARY.items():
        if wanted in (name, name.partition(" (")[0]):
            yield "word", text
    for kind, texts in {"event": _EVENTS, "policy": _POLICIES}.items():
        if wanted in texts:
            yield kind, texts[wanted]
    held = [name for name, variable in VARIABLES.items() if variable.plane == wanted]
    if held or wanted in _PLANES:
        parts = [_PLANES[wanted]] if wanted in _PLANES else []
        parts += [f"variables {', '.join(held)}"] if held else []
        yield "plane", "; ".join(parts)
    if wanted in VARIABLES:
        variable = VARIABLES[wanted]
        seen = f"written by {variable.owner}, seen at point {variable.point}"
        yield "variable", f"plane {variable.plane}, {seen}, defined for: {variable.domain}"
    if wanted in CONTRACTS:
        yield "contract", CONTRACTS[wanted]
    if wanted in PROBES:
        yield "probe", PROBES[wanted]
    if wanted in FAULTS:
        yield "fault", f"{FAULTS[wanted].symptom} ({FAULTS[wanted].source})"


def known_words() -> list[str]:
    """Return all words that `specstorm explain` can explain."""
    planes = {variable.plane for variable in VARIABLES.values()} | set(_PLANES)
    return sorted({*GLOSSARY, *_EVENTS, *_POLICIES, *planes, *VARIABLES, *CONTRACTS, *PROBES, *FAULTS})
