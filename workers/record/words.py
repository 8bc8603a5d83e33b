"""English sentences for evidence: expected and actual values, races, verdicts.

Only this module makes sentences of it, and nothing parses them.

Every sentence may be reworded: fingerprints, artefact names and known bugs depend on the values only.
"""

from collections.abc import Iterator, Mapping, Sequence

from scenarios.events import Schedule
from workers.record.evidence import (
    NOT_FINITE,
    RACES,
    Access,
    Difference,
    Elsewhere,
    EvidenceValue,
    Fact,
    Harm,
    MissingOrder,
    Plain,
    Site,
    Violation,
)
from workers.record.phrases import ELSEWHERE, FACTS, HARMS, REFERENCES, RULES, TASK_DIFFERENCES
from workers.record.verdict import (
    Agreed,
    Crashed,
    Diverged,
    LanesWait,
    Lost,
    NotDrained,
    Outcome,
    Stuck,
    Vacuous,
    Verdict,
    Work,
    decisive_lane_pairs,
    detected_race,
    known_causes,
    required_fixes,
    unconfirmed_reason,
)

# Larger integers are states, hashes or seeds, shown in hexadecimal.
_NUMBER_MAX = 1 << 32


def value_text(value: Plain) -> str:
    """Return a value as text; large integers (states, hashes) in hexadecimal."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _NUMBER_MAX:
        return f"{value:016x}"
    return _argument(value) if isinstance(value, tuple) else str(value)


def _argument(value: Plain) -> str:
    """Return an element of a sequence as text; an inner sequence in brackets."""
    match value:
        case tuple():
            return f"[{', '.join(map(_argument, value))}]"
        case float():
            return f"{value:.6f}"
    return str(value)


def shown_text(value: EvidenceValue | Violation) -> str:
    """Return the sentence that describes an expected or actual value."""
    match value:
        case Fact(kind=kind, values=values):
            return FACTS[kind].format(**{name: _within(each) for name, each in values.items()})
        case Violation():
            return violation_text(value)
    return value_text(value)


def _within(value: EvidenceValue) -> object:
    """Convert a value for a template; numbers stay numbers, so that format codes apply."""
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if value is None:
        return "none"
    return value if isinstance(value, int | float) else shown_text(value)


def violation_text(value: Violation) -> str:
    """Return the sentence for a broken rule: log entry, request and values."""
    text = RULES[value.rule].format(**{name: _within(each) for name, each in value.values.items()})
    about = f"request {value.request}: {text}" if value.request else text
    return f"{value.entry}: {about}" if value.entry else about


def site_text(site: Site) -> str:
    """Return a source location as text."""
    return f"{site.function} in {_place(site)}" if site.file else site.function


def writer_text(access: Access) -> str:
    """Return the author of a write to memory as text: function or lane, op and step."""
    return f"{access.actor}:{access.op}@{access.step}"


def access_text(access: Access) -> str:
    """Return an access as text: read or write, by what and, if known, in which line."""
    how = access.how if access.replaced is None else f"{access.how} over step {access.replaced}"
    what = f"the {how} by {writer_text(access)}"
    if access.site is None:
        return what
    where = [_place(access.site)] if access.site.file else []
    return f"{what} ({', '.join([*where, *([access.lane] if access.lane != access.op else [])])})"


def _place(site: Site) -> str:
    return f"{site.file}:{site.line}" if site.line else site.file


def missing_order_text(order: MissingOrder) -> str:
    """Return the sentence for a race: two accesses that nothing orders."""
    memory = f"{order.memory}, allocated again as {order.reused_as}" if order.reused_as else order.memory
    return f"nothing orders {access_text(order.first)} before {access_text(order.second)} (both use {memory})"


def elsewhere_text(elsewhere: Elsewhere) -> str:
    """Return a sentence: whether the reference run keeps the broken output rule (contract)."""
    return f"{REFERENCES[elsewhere.reference]} {ELSEWHERE[elsewhere.how].format(**dict(elsewhere))}"


def expected_text(difference: Difference) -> str:
    """Return the expected value of a difference as text."""
    text = shown_text(difference.expected)
    return text if difference.reference is None else f"{text}, as in {REFERENCES[difference.reference]}"


def actual_text(difference: Difference) -> str:
    """Return the actual value of a difference as text."""
    text = shown_text(difference.actual)
    return text if difference.elsewhere is None else f"{text}; {elsewhere_text(difference.elsewhere)}"


def difference_text(difference: Difference) -> str:
    """Return a difference in one line; for a race without a wrong value, its accesses."""
    if difference.plane == RACES and difference.missing_order is not None:
        return _no_order_text(difference.missing_order)
    if difference.elsewhere is not None:
        broken = f"{shown_text(difference.actual)}, expected {expected_text(difference)}"
        return f"contract {difference.variable} is broken: {broken}; {elsewhere_text(difference.elsewhere)}"
    return f"{difference.variable} is {actual_text(difference)}, expected {expected_text(difference)}"


def _no_order_text(order: MissingOrder) -> str:
    if None in (order.first.site, order.second.site):
        return f"nothing orders two uses of {order.memory}"
    return f"nothing orders {order.first.actor} and {order.second.actor}"


def headline_text(verdict: Verdict) -> str:
    """Return a finding in one line; a race comes before its consequences."""
    match verdict:
        case Diverged(difference=difference):
            text = difference_text(difference)
        case Crashed(error=error, where=where):
            text = f"the engine ends in {site_text(where)}: {error}"
        case Stuck():
            text = f"the engine makes no progress: {reason_text(verdict)}"
        case other:
            return other.kind
    order = detected_race(verdict)
    return text if order is None or _is_bare_race(verdict) else f"{_no_order_text(order)}; {text}"


def _is_bare_race(verdict: Verdict) -> bool:
    """Return whether a finding is a race without a wrong value."""
    return isinstance(verdict, Diverged) and verdict.difference.plane == RACES


def harm_text(harm: Harm) -> str:
    """Return what a race changes: one of its tasks, or what the host receives."""
    if harm.error:
        return f"{harm.kind}: under {harm.policy} the engine ends: {harm.error}"
    if harm.task is None:
        return "benign under eager and lazy: its tasks read and wrote the same bytes"
    task = f"{harm.kind}: under {harm.policy} {_task_text(harm.task)}: {TASK_DIFFERENCES[harm.what]}"
    if harm.given is None:
        return f"{task}; the host received the same bytes"
    return f"{task}; the host received other bytes from {_task_text(harm.given)}"


def _task_text(task: Access) -> str:
    return f"{task.op}@{task.step}" + (f" ({_place(task.site)})" if task.site is not None else "")


def reason_text(verdict: Stuck) -> str:
    """Return the reason why a run made no progress, as text."""
    match verdict.waits:
        case NotDrained(steps=steps, idle=idle, waiting=waiting):
            text = f"not drained after {steps} steps" + (f", the last {idle} without a result" if idle else "")
            if waiting is None:
                return text
            names = [f"{wait.request} waits: {wait.reason}" for wait in waiting]
            return f"{text}; {', '.join(names) or 'no request waits'}"
        case LanesWait(host=host, lanes=lanes):
            waits = [f"{wait.lane} waits for {wait.on} of step {wait.step}" for wait in lanes]
            graph = "; ".join(waits) or "no lane has anything to do"
            return graph if host is None else f"the host waits for {host}; {graph}"


def finding_lines(verdict: Verdict) -> list[str]:
    """Return the lines of a report on a finding, one fact per line.

    Its missing order first, as the cause of what follows.
    """
    unconfirmed, known = unconfirmed_reason(verdict), known_causes(verdict)
    lines = _finding_lines(verdict)
    if known:
        lines.append(f"known: {' and '.join(known)} (not found with {'its fix' if len(known) == 1 else 'their fixes'})")
    if needs := required_fixes(verdict):
        fixes = f"{'fix' if len(needs) == 1 else 'fixes'} of {' and '.join(needs)}"
        lines.append(f"needs the {fixes} (the trace agrees without: a side effect, or a bug that was hidden)")
    return [*lines, *([shown_text(unconfirmed)] if unconfirmed is not None else [])]


def _finding_lines(verdict: Verdict) -> list[str]:
    match verdict:
        case Diverged(stats=stats, difference=difference):
            return [*difference_lines(difference), *work_lines(stats.work)]
        case Crashed(error=error, where=where, missing_order=order, made_at=made_at):
            lines = [*_missing_order_lines(order), f"in {site_text(where)}: {error}"]
            if verdict.callers:
                lines.append(f"called from {', '.join(map(site_text, verdict.callers))}")
            lines += [f"what it works on is {text}" for text in _made_at(made_at)]
            if verdict.before is not None:
                lines += [f"before it: {each}" for each in difference_lines(verdict.before)]
            return lines
        case Stuck(missing_order=order, made_at=made_at):
            return [*_missing_order_lines(order), reason_text(verdict), *_made_at(made_at)]
        case Vacuous(missing=missing):
            return [shown_text(each) for each in missing]
        case Lost(reason=reason):
            return [reason]
        case Agreed():
            return []


def difference_lines(difference: Difference) -> Iterator[str]:
    """Return the lines of a report on a difference, one fact per line.

    Its missing order first, unless nothing else is wrong.
    """
    order, is_bare = difference.missing_order, difference.plane == RACES
    if not is_bare:
        yield from _missing_order_lines(order)
    if difference.request:
        position = "" if difference.position is None else f" at position {difference.position}"
        commit = f", commit {difference.commit}" if difference.commit else ""
        yield f"request {difference.request}{position}{commit}, step {difference.step}"
    yield f"{difference_text(difference)}   (plane: {difference.plane})"
    if is_bare:
        yield from _missing_order_lines(order)
    if difference.writers:
        yield f"last writers, newest first: {', '.join(map(writer_text, difference.writers))}"
        yield from dict.fromkeys(
            f"written at {', called from '.join(map(site_text, (writer.site, *writer.callers)))}"
            for writer in difference.writers
            if writer.site is not None
        )
    yield from _made_at(difference.made_at)


def work_lines(work: Mapping[str, Work]) -> Iterator[str]:
    """Yield a line for each pair of runs whose work was compared."""
    for pair in (("asynchronous", "synchronous"), ("overlay", "release")):
        if all(run in work for run in pair):
            yield f"work: {'; '.join(f'{run} {_work_text(work[run])}' for run in pair)}"


def _work_text(work: Work) -> str:
    return (
        f"{work.steps:,} steps, {work.hit_tokens:,} prefix-hit tokens, {work.preemptions:,} preemptions, "
        f"{work.recomputed_tokens:,} recomputed tokens, {work.accepted:,} of {work.drafts:,} draft tokens accepted"
    )


def _made_at(places: Sequence[Site]) -> list[str]:
    return [f"made at {', '.join(map(site_text, places))}"] if places else []


def _missing_order_lines(order: MissingOrder | None) -> Iterator[str]:
    if order is None:
        return
    yield f"missing order: {missing_order_text(order)}"
    for access in (order.first, order.second):
        if access.callers:
            yield f"{access.actor} is called from {', '.join(map(site_text, access.callers))}"
    if order.harm is not None:
        yield f"harm: {harm_text(order.harm)}"


def schedule_name(schedule: Schedule) -> str:
    """Return a short name of a schedule, e.g. `lazy` or `random 7`."""
    held = f" with {len(schedule.holds)} held back" if schedule.holds else ""
    match schedule.policy:
        case "lane_order":
            return " > ".join(schedule.order) + held
        case "random":
            return f"random {schedule.seed}{held}"
        case policy:
            return f"{policy}{held}"


def outcome_text(outcome: Outcome) -> str:
    """Return how a run under one schedule ended, in a few words."""
    match outcome.kind:
        case "diverged":
            return f"diverged: {outcome.variable} of {outcome.commit or 'no request'} at step {outcome.step}"
        case "vacuous":
            return "agreed"
        case kind:
            return kind


def schedule_names(outcomes: Sequence[Outcome], agrees: bool) -> list[str]:
    """Return the names of schedules under which a finding reproduces or, if `agrees`, does not.

    Lane orders are counted, not named.
    """
    schedules = [outcome.schedule for outcome in outcomes if outcome.agrees is agrees]
    names = [schedule_name(each) for each in schedules if each.policy != "lane_order"]
    num_orders = len(schedules) - len(names)
    return names + ([f"{num_orders} lane orders"] if num_orders else [])


def outcome_lines(verdict: Verdict, outcomes: Sequence[Outcome]) -> list[str]:
    """Return lines on the schedules that reproduce a finding, or on the effects of its race."""
    lines = []
    if detected_race(verdict) is not None:
        lines = [race_harm_text(verdict, outcomes)]
    else:
        for text, agrees in (("shows under", False), ("does not show under", True)):
            names = schedule_names(outcomes, agrees)
            lines += [f"{text}: {', '.join(names)}"] if names else []
    pairs = decisive_lane_pairs(outcomes)
    if pairs:
        named = " and ".join(f"{first} before {second}" for first, second in pairs)
        lines.append(f"it shows in exactly those lane orders with {named}")
    return lines


def race_harm_text(verdict: Verdict, outcomes: Sequence[Outcome]) -> str:
    """Return a sentence on which effects a race had under the tried schedules."""
    text = "the race is reported whatever the timing"
    harms = [HARMS[each.kind].format(variable=each.variable) for each in outcomes if not each.agrees]
    good, bad = (", ".join(schedule_names(outcomes, agrees)) for agrees in (True, False))
    if harms:
        does = f"{' or '.join(dict.fromkeys(harms))} under {bad}"
        return f"{text}; {does}" + (f", and no value under {good}" if good else "")
    if not _is_bare_race(verdict):
        own = HARMS[verdict.kind].format(variable=verdict.difference.variable if isinstance(verdict, Diverged) else "")
        does = f"{own} under the trace's own schedule"
        return f"{text}; {does}" + (f", and no value under {good}" if good else "")
    num = len(outcomes)
    tried = "other schedules were not tried" if not num else f"in none of {num} schedules tried was a value wrong"
    return f"{text}; {tried}"
