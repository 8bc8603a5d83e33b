"""Report and progress of hunts and nights, as text and as JSON documents."""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median_high
from typing import IO

from cluster.campaigns.hunt.hunt import Hunt
from cluster.campaigns.hunt.news import ConfirmedFinding, DroppedFinding, NewFinding, News
from cluster.campaigns.hunt.repeats import MismatchEntry
from cluster.campaigns.hunt.seldom import SELDOM_FOLDER, seldom_hit
from cluster.campaigns.nightly import PartEntry, RegressionEntry
from cluster.campaigns.planner import Counts
from cluster.campaigns.recurrence import Recurrence
from cluster.campaigns.triage import Triage
from cluster.dispatch.job import build, typed_command
from cluster.reports.report import INDENT, LINE_SECONDS, LineProgress, findings_text, left_texts
from cluster.reports.terminal import rewrite, show
from cluster.statistics.fault_table import Document, FaultValues
from cluster.storage.corpus import PARENTS_PER_SHARD
from cluster.storage.pace import RemainingTime
from scenarios.generation.catalogue import situations_of
from scenarios.generation.shards import TRACES_PER_SHARD, Generator, Profile
from scenarios.probes import PROBES
from scenarios.spec import Value
from workers.edits.proofs import proofs_of
from workers.record.verdict import Verdict, known_causes, plane, unconfirmed_reason
from workers.record.words import finding_lines, outcome_lines, shown_text, work_lines
from workers.shrink.fingerprint import Signature, signature_of
from workers.targets.registry import is_counted, target_kind
from workers.targets.target import RunConfig


def hunt_lines(hunt: Hunt, folder: Path) -> Iterator[str]:
    """Yield the text report of a hunt: traces, probes, situations, findings, canary."""
    settings, tally = hunt.settings, hunt.totals.tally
    faults = f", faults {', '.join(settings.faults)}" if settings.faults else ""
    focus = f", focus {', '.join(settings.focus)}" if settings.focus else ""
    changed = "".join(f", {name} {value}" for name, value in settings.config.changed().items())
    yield f"hunt: profile {settings.profile}, seed {settings.seed}{faults}{focus}{changed}, specstorm {build()}"
    yield _amount_line(hunt)
    if settings.corpus:
        share = f"{PARENTS_PER_SHARD} of {TRACES_PER_SHARD} traces begin from it"
        yield f"corpus {settings.corpus} of {len(hunt.jobs.corpus.traces)} traces: {share}"
    if settings.faults and tally.traces:
        yield f"every fault was reached in {tally.reached:,} traces"
    yield _canary_line(hunt)
    yield _determinism_line(hunt)
    yield from _share_lines(hunt)
    if tally.traces:
        yield _probes_line(hunt)
        yield from _situation_lines(hunt)
        yield from work_lines(tally.work)
    if seldom := seldom_hit(hunt):
        yield f"seldom hit, first traces in {folder / SELDOM_FOLDER}: {', '.join(seldom)}"
    yield from (f"shard {number} was not judged: {reason}" for number, reason in sorted(hunt.unjudged.items()))
    for number, triage in enumerate(hunt.findings.distinct(), 1):
        yield from _finding_lines(number, triage, folder, settings.config)
        yield from (f"{INDENT}{_duplicate_line(each, folder)}" for each in hunt.findings.duplicates_of(triage))
    yield ""
    if len(hunt.findings):
        yield findings_text(len(hunt.findings))
    else:
        yield "no findings" if tally.traces else "findings: not judged"


def _amount_line(hunt: Hunt) -> str:
    """Return in words how many traces were judged, and how many observations checked."""
    tally, asked = hunt.totals.tally, hunt.jobs.num_traces
    if not tally.traces:
        return "no trace was judged" if asked is None else f"none of {asked:,} traces was judged"
    of = f" of {asked:,}" if asked is not None and tally.traces < asked else ""
    return (
        f"{tally.traces:,}{of} traces (median {_median(hunt)} engine steps), {tally.runs:,} runs, "
        f"{tally.steps:,} steps and {tally.captures:,} observations checked"
    )


def _probes_line(hunt: Hunt) -> str:
    """Return in words how many probes were hit, and which were not."""
    hit = sum(hunt.totals.tally.probes[probe] > 0 for probe in PROBES)
    never, uncounted = _never_hit(hunt)
    others = f"; {uncounted} others are not counted in engine {hunt.settings.config.engine}" if uncounted else ""
    missed = f"; never hit: {', '.join(never)}" if never else ""
    return f"probes hit: {hit} of {hit + len(never)}{missed}{others}"


def _situation_lines(hunt: Hunt) -> Iterator[str]:
    """Yield, for each situation, how many traces had it, and which bugs they met."""
    tally, config = hunt.totals.tally, hunt.settings.config
    for name, bugs in sorted(tally.bugs_of.items()):
        count, traces = len(bugs), tally.situations[name]
        found = f"{count} {'finding' if count == 1 else 'findings'} in {sum(bugs.values()):,} of {traces:,} traces"
        yield f"situation {name}: {found}"
    others = [f"{name} {count:,}" for name, count in sorted(tally.situations.items()) if name not in tally.bugs_of]
    if others:
        yield f"traces with other situations: {', '.join(others)}"
    known = situations_of(target_kind(config.engine).capabilities_under(config))
    if never := [name for name in known if name not in tally.situations]:
        yield f"situations in no trace: {', '.join(never)}"


def _never_hit(hunt: Hunt) -> tuple[list[str], int]:
    """Return in words which probes were not hit, and how many the engine does not count."""
    engine = hunt.settings.config.engine
    not_hit = [probe for probe in PROBES if not hunt.totals.tally.probes[probe]]
    never = [probe for probe in not_hit if is_counted(probe, engine)]
    return never, len(not_hit) - len(never)


def _share_lines(hunt: Hunt) -> Iterator[str]:
    """Yield lines for each generator of a mixed hunt: its traces, probes and bugs."""
    shares = {name: tally for name, tally in hunt.totals.shares.items() if tally.traces}
    for name, tally in shares.items() if len(shares) > 1 else ():
        share, hit = tally.traces / hunt.totals.tally.traces, sum(probe in PROBES for probe in tally.probes)
        bugs, met = len(tally.bugs), sum(tally.bugs.values())
        what = f"{bugs} of {len(hunt.totals.tally.bugs)} bugs in {met:,} traces" if hunt.totals.tally.bugs else "no bug"
        yield f"{name}: {tally.traces:,} traces ({share:.0%}), {hit} probes hit, {what} met"


def _median(hunt: Hunt) -> int:
    return median_high(hunt.totals.tally.lengths.elements()) if hunt.totals.tally.lengths else 0


def _canary_line(hunt: Hunt) -> str:
    canary, name = hunt.canary, hunt.settings.canary
    if not name:
        return f"no canary: no fault can be switched on in engine {hunt.settings.config.engine}"
    if canary.is_blind:
        return f"BLIND: the canary {name} was not found in {canary.tried} shards; a hunt that misses it proves nothing"
    if canary.first is None:
        return f"canary {name}: not judged, its search has not ended"
    where = f"{canary.first.signature.plane} {canary.first.signature.variable}"
    return f"canary {name}: found at trace {canary.traces} ({where}), {canary.rounds} of {canary.rounds} times"


def _determinism_line(hunt: Hunt) -> str:
    repeats = hunt.repeats
    if not repeats.num_judged:
        return "determinism: not judged, no shard was judged twice"
    if not repeats.mismatches:
        return (
            f"determinism: {repeats.num_judged} shards were judged twice, "
            f"{repeats.num_elsewhere} of them on another worker; all alike"
        )
    first, count = repeats.mismatches[0], len(repeats.mismatches)
    return f"NOT DETERMINISTIC: {count} shards differ; first at trace {first.trace}: {first.first}, then {first.again}"


def _met(triage: Triage) -> str:
    return f"met by {triage.count:,} {'trace' if triage.count == 1 else 'traces'}, first by trace {triage.state.first}"


def _duplicate_line(triage: Triage, folder: Path) -> str:
    """Return a line on a finding that is a duplicate: its fingerprint, and the common cause."""
    state = triage.state
    if state.face_of is None:
        return f"also met as {state.bug}: {_met(triage)}; shrunk, it is the same"
    where = f": {folder / state.artefact}" if state.artefact is not None else ""
    return f"also shows as {state.bug}, {_met(triage)}; its smallest trace needs {state.cause} too{where}"


def _finding_lines(number: int, triage: Triage, folder: Path, config: RunConfig) -> Iterator[str]:
    state = triage.state
    yield ""
    times = _met(triage)
    verdict = state.judgement.verdict if state.judgement is not None else state.verdict
    assert verdict is not None, "a finding of a hunt has been seen"
    yield f"FINDING {number}  {verdict.kind}, plane {plane(verdict)}: {times}"
    outcomes = state.judgement.outcomes if state.judgement is not None else ()
    texts = [*finding_lines(verdict), *outcome_lines(verdict, outcomes)]
    if state.shrinking is not None:
        small = (state.judgement or state.shrinking).trace
        done = "shrunk to" if state.stage == "closed" else "being shrunk, so far to"
        texts.append(f"{state.size} events, {done} {len(small.events)} in {state.shrinking.spent} checks")
    elif known_causes(verdict):
        texts.append(f"{state.size} events, as it was met: a known bug is not shrunk")
    texts += unfixed_lines(state.bug, config)
    if state.artefact is not None:
        texts += [state.artefact, f"replay: {typed_command('replay', folder / state.artefact, config)}"]
    yield from (f"{INDENT}{part}" for text in texts for part in text.splitlines())


def unfixed_lines(bug: str, config: RunConfig) -> list[str]:
    """Return a line for each known bug with this fingerprint whose fix could not be applied."""
    refused, proofs = target_kind(config.engine).fixed(config).refused, proofs_of()
    alike = [name for name in refused if name in proofs and proofs[name].bug == bug]
    return [f"perhaps known: {name}, whose fix does not apply: {refused[name]}" for name in alike]


class CanaryEntry(Value):
    """Result for the canary (a planted fault): the first finding, and how many traces it took."""

    fault: str
    blind: bool
    traces: int
    found: Signature | None


class FindingEntry(Value):
    """One bug: the number of its traces, the first of them, and its shrunk trace.

    `same_as` is the earlier finding with the fingerprint of the shrunk trace, `face_of` the one with the same cause;
    `artefact` is a path inside the campaign directory.
    """

    bug: str
    count: int
    first_trace: int
    stage: str
    same_as: str | None
    face_of: str | None
    signature: Signature | None
    events_before: int
    events: int
    holds: int
    policy: str
    checks: int
    verdict: Verdict
    artefact: str | None


class ShareEntry(Value):
    """Results of one generator: its number of traces, and the traces with each bug."""

    traces: int
    probes_hit: int
    bugs: dict[str, int]


class SituationEntry(Value):
    """Traces with one situation: their number, and how many of them met each bug."""

    traces: int
    bugs: dict[str, int]


class HuntDocument(Document):
    """Results of a hunt.

    `generators` has the results of each generator, `situations` of the traces with each situation. `judged_twice`
    counts shards; `not_judged` has the reasons of unjudged shards by number. `probes` counts the traces that hit each
    probe of the engine; `probes_seldom_hit` has the number of the first trace of each rarely hit probe.
    """

    profile: Profile
    seed: int
    faults: tuple[str, ...]
    config: RunConfig
    corpus: str
    focus: tuple[str, ...]
    traces: int
    steps_median: int
    runs: int
    steps: int
    commits: int
    captures: int
    reached: int
    canary: CanaryEntry
    generators: dict[Generator, ShareEntry]
    situations: dict[str, SituationEntry]
    judged_twice: int
    mismatches: tuple[MismatchEntry, ...]
    not_judged: dict[str, str]
    probes: dict[str, int]
    probes_seldom_hit: dict[str, int]
    probes_never_hit: tuple[str, ...]
    findings: tuple[FindingEntry, ...]
    known: tuple[str, ...]


def hunt_document(hunt: Hunt, exit_code: int, known: tuple[str, ...] = ()) -> HuntDocument:
    """Return the report of a hunt as a JSON document.

    They depend only on the traces and the known findings, not on hosts or workers.
    """
    settings, tally, canary = hunt.settings, hunt.totals.tally, hunt.canary
    found = canary.first.signature if canary.first is not None else None
    never, _ = _never_hit(hunt)
    looked_for = CanaryEntry(fault=settings.canary, blind=canary.is_blind, traces=canary.traces, found=found)
    return HuntDocument(
        specstorm=build(),
        exit_code=exit_code,
        **{**dict(settings), "canary": looked_for},
        **tally.sums,
        steps_median=_median(hunt),
        generators={
            name: ShareEntry(
                traces=share.traces,
                probes_hit=sum(probe in PROBES for probe in share.probes),
                bugs=dict(sorted(share.bugs.items())),
            )
            for name, share in hunt.totals.shares.items()
        },
        situations={
            name: SituationEntry(traces=count, bugs=dict(sorted(tally.bugs_of.get(name, {}).items())))
            for name, count in sorted(tally.situations.items())
        },
        judged_twice=hunt.repeats.num_judged,
        mismatches=tuple(hunt.repeats.mismatches),
        not_judged={str(number): reason for number, reason in sorted(hunt.unjudged.items())},
        probes={probe: tally.probes[probe] for probe in PROBES if tally.probes[probe] or probe in never},
        probes_seldom_hit={probe: hunt.totals.firsts[probe] for probe in seldom_hit(hunt)},
        probes_never_hit=tuple(never),
        findings=tuple(_finding_entry(triage) for triage in hunt.findings),
        known=known,
    )


def _finding_entry(triage: Triage) -> FindingEntry:
    state = triage.state
    judgement = state.smallest
    assert judgement is not None, "a finding of a hunt has been seen"
    verdict, trace = judgement.verdict, judgement.trace
    return FindingEntry(
        bug=state.bug,
        count=triage.count,
        first_trace=state.first,
        stage=state.stage,
        same_as=state.same_as,
        face_of=state.face_of,
        signature=signature_of(verdict, trace),
        events_before=state.size,
        events=len(trace.events),
        holds=len(trace.schedule.holds),
        policy=trace.schedule.policy,
        checks=state.shrinking.spent if state.shrinking is not None else 0,
        verdict=verdict,
        artefact=state.artefact,
    )


class NightDocument(Value):
    """Results of a night: regressions, hunt, measured faults, and the time of each part."""

    exit_code: int
    regressions: tuple[RegressionEntry, ...]
    hunt: HuntDocument
    faults: FaultValues
    over_nights: Recurrence = Recurrence(new=(), again=(), known=(), gone=())
    parts: dict[str, PartEntry] = {}


def news_text(news: News) -> str:
    """Return a line on news about a finding."""
    match news:
        case NewFinding(trace=trace, bug=bug, verdict=verdict):
            why = unconfirmed_reason(verdict)
            text = f"found by trace {trace}: {verdict.kind}, {bug}"
            return text if why is None else f"{text}; UNCONFIRMED: {shown_text(why)}"
        case ConfirmedFinding(trace=trace, bug=bug):
            return f"confirmed, of trace {trace}: {bug}"
        case DroppedFinding(trace=trace, bug=bug, reason=reason):
            return f"dropped, of trace {trace}: {bug}: {reason}"


class HuntLine(LineProgress):
    """Progress of a hunt: a rewritten line on a terminal, else a line every ten seconds.

    The findings that `news` returns are printed at once, one per line, and stay.
    """

    def __init__(
        self,
        stream: IO[str],
        seconds: float | None,
        num_traces: int | None,
        clock: Callable[[], float] = time.monotonic,
        news: Callable[[], Sequence[News]] = tuple,
    ) -> None:
        super().__init__(stream, "traces", clock)
        self._news = news
        self._on_terminal = stream is sys.stderr and stream.isatty()
        self.every = 0.5 if self._on_terminal else LINE_SECONDS
        self._seconds = seconds
        self._num_traces = num_traces

    def update(self, counts: Counts) -> None:
        self._tell_news()
        super().update(counts)

    def _tell_news(self) -> None:
        for news in self._news():
            if self._on_terminal:
                rewrite("", self._stream)
            show(news_text(news), to=self._stream)

    def text(self, counts: Counts, rate: float, seconds: float) -> str:
        shrinking = f" ({counts.shrinking} being shrunk)" if counts.shrinking else ""
        parts = [f"{counts.done:,} traces", f"{rate:.1f}/s", f"{findings_text(counts.findings)}{shrinking}"]
        return ", ".join([*parts, *self._ends(counts, seconds)])

    def _ends(self, counts: Counts, seconds: float) -> list[str]:
        """Return in words for how much longer new traces are started.

        It follows from the time limit or from the number of traces.
        """
        if self._seconds is not None:
            left = self._seconds - seconds
            return left_texts(RemainingTime(low=left, high=left)) if left > 0 else ["finishing"]
        if self._num_traces is not None and counts.done >= self._num_traces:
            return ["finishing"]
        return left_texts(self.pace.left(self._num_traces))

    def show(self, text: str) -> None:
        if self._on_terminal:
            rewrite(text, self._stream)
        else:
            super().show(text)

    def close(self) -> None:
        """Erase the line, and print the remaining news."""
        self._tell_news()
        if self._on_terminal:
            rewrite("", self._stream)
