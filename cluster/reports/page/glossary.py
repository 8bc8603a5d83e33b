"""Glossary: the words of reports, one meaning each."""

from collections.abc import Iterator, Mapping

from scenarios.probes import PROBES
from workers.faults.registry import FAULTS
from workers.judge.contracts.breach import CONTRACTS
from workers.record.observation import VARIABLES

GLOSSARY: Mapping[str, str] = {
    "acceptance script": "a bit for each token position of a request: whether a draft there is to be right or wrong",
    "agreed": "verdict: engine and oracle are equal in every observation, and everything that was expected happened",
    "artefact": "the file of a finding: its trace, with what was found in a comment; `specstorm replay` shows it again",
    "blame": "the last writers of a wrong value: lane, op and step, newest first",
    "campaign": "many traces over many workers, with one directory that keeps the results",
    "canary": "a fault planted on purpose; a hunt that does not find it proves nothing (`blind`)",
    "capture": "a copy of device memory taken in stream order at a named point of a step",
    "commit key": "request/incarnation/epoch/k, by which results are aligned: epoch counts preemptions, k the steps "
    "that scheduled the request in it",
    "contract": "what a client may demand of an output by its request alone, whatever other runs give",
    "crashed": "verdict: the engine raised an exception, on the host or in a device op",
    "digest": "a hash of every capture of a run in order; schedules of a trace without a race have the same one",
    "diverged": "verdict: engine and oracle part; the first difference says where",
    "epoch": "how often a request has been preempted",
    "event (of a trace)": "what happens to the engine: submit, abort, preempt, reorder, stall and others, at a tick",
    "event (of a lane)": "a mark in a lane, as CUDA's: a wait for it ends once everything before it has run",
    "fault": "a historical bug of a real engine, re-created behind a switch and named after its source",
    "finding": "a verdict that says that the engine is wrong: diverged, crashed or stuck",
    "face": "another fingerprint of a finding whose cause is known to be the same, a planted fault",
    "fingerprint": "what tells one bug from others whatever the trace: plane, variable and rule, or the two lanes of a "
    "missing order",
    "hold": "an exception of a schedule: an op does not run before something named has passed",
    "incarnation": "which of several requests of the same name, one after another",
    "kill matrix": "for each fault the share of trials that each plane found it in first",
    "lane": "one in-order actor of the machine: the host thread, the compute stream, each copy stream",
    "lost": "verdict: none was reached, for a reason outside the trace",
    "missing order": "two accesses of the same memory, at least one a write, that no event orders: a race",
    "observation": "named values of requests, rows or blocks at one point of a run, compared with the oracle",
    "oracle": "a synchronous model, which says what every value must be from the trace and the host's decisions alone",
    "plane": "a kind of state that is compared: tokens, counts, inputs, kv, recurrent, drafts, blocks and others",
    "policy": "the base of a schedule: eager (device early), lazy (device late), lane_order (fixed priority) or random",
    "probe": "something interesting that is counted where it happens in a run; one that is never hit was not tested",
    "race": "a missing order",
    "run-ahead": "whole steps that were launched and not begun on the device when another was scheduled",
    "schedule": "the order in which lanes advance: a policy and labelled exceptions",
    "shard": "twelve generated traces, which are a job of a hunt",
    "stuck": "verdict: the engine stopped making progress",
    "survival curve": "the share of trials that have not found their fault after so many traces (Kaplan and Meier)",
    "tick": "one call of the engine's step",
    "trace": "specification, events and schedule: everything that can change a verdict",
    "trial": "generated traces with one fault switched on, until it is found or given up",
    "vacuous": "verdict: nothing is wrong, but something that had to happen did not",
}
# Meanings of planes that do not follow from their variables.
_PLANES: Mapping[str, str] = {
    "contracts": f"what follows from a request alone: {', '.join(CONTRACTS)}",
    "books": "leaks, and whether everything that is due is shown",
    "crash": "exceptions of the engine",
    "determinism": "equal captures under all schedules of a trace",
    "liveness": "progress: that every run ends",
    "races": "orders between accesses of the same memory",
}


def meanings(word: str) -> Iterator[tuple[str, str]]:
    """Yield what a word means, each meaning with its kind: word, plane, variable, contract, probe or fault."""
    wanted = word.strip().lower()
    for name, text in GLOSSARY.items():
        if wanted in (name, name.partition(" (")[0]):
            yield "word", text
    held = [name for name, variable in VARIABLES.items() if variable.plane == wanted]
    if held or wanted in _PLANES:
        texts = [_PLANES[wanted]] if wanted in _PLANES else []
        texts += [f"variables {', '.join(held)}"] if held else []
        yield "plane", "; ".join(texts)
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
    """Return all words that have a meaning here."""
    planes = {variable.plane for variable in VARIABLES.values()} | set(_PLANES)
    return sorted({*GLOSSARY, *planes, *VARIABLES, *CONTRACTS, *PROBES, *FAULTS})
