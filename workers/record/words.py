"""Words: evidence in English. Nothing else puts what a judge saw into sentences, and nothing takes them apart.

Every sentence may be reworded: fingerprints, artefact names and known findings depend on the values alone.
"""

from collections.abc import Iterator, Mapping, Sequence

from scenarios.events import Schedule
from workers.record.evidence import (
    NOT_FINITE,
    Access,
    Difference,
    Elsewhere,
    Fact,
    MissingOrder,
    Plain,
    Reference,
    Rule,
    Shown,
    Site,
    Violation,
)
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
    telling_pairs,
)

# Integers above are states, hashes and seeds: they are shown as such.
_NUMBER_MAX = 1 << 32

REFERENCES: Mapping[Reference, str] = {
    Reference.SYNCHRONOUS: "the synchronous run",
    Reference.WITHOUT_SPECULATION: "the synchronous run without speculation",
    Reference.ALONE: "the request alone",
}

FACTS: Mapping[str, str] = {
    # What is due of a log, and shown of it.
    "allowed_decision": "an allowed decision",
    "allowed_results": "allowed results",
    "allowed_end": "an allowed end",
    "requests": "requests {requests}",
    "observation": "observation {point} of step {step}",
    "capture": "capture {point} of step {step}, requests {requests}",
    "entry": "{entry}",
    "no_observation": "no observation",
    "no_capture": "no capture",
    "not_shown": "none was shown",
    "not_captured": "none was captured",
    "values": "values",
    "num_values": "{count} values",
    "num_rows": "{count} rows",
    "at_index": "{value} at {index}",
    "digest": "a digest of all captures",
    "no_digest": "an empty digest",
    "held": "{blocks} blocks, {slots} state slots",
    "held_too": "{before}, {what} of request {request}",
    # Orders of accesses.
    "order": "an order",
    "no_order": "no order",
    "harm": "no order; {harm}",
    # Outputs of requests.
    "outputs": "outputs",
    "failed": "{error}",
    "reference_failed": "the other run: {error}",
    "does_not_end": "it does not end",
    "output": "an output",
    "nothing": "none",
    "nothing_yet": "nothing yet",
    "tokens": "{count} tokens",
    "tokens_ended": "{count} tokens, ended by {reason}",
    "tokens_open": "{count} tokens and no end",
    "and_more": "{before} and what follows",
    "and_no_more": "{before} and nothing more",
    "same_logprobs": "the logprobs that were delivered and what follows",
    "other_logprobs": "other logprobs",
    "output_submitted": "an output of a request that was submitted",
    "ended_output": "an output that ended",
    "token": "token {token}",
    "of_vocabulary": "0 to {last}",
    "an_end_behind": "an end behind {count} tokens",
    "kept_at_abort": "the {count} tokens it had when it was given up",
    "reason": "reason {reason}",
    "more_tokens": "more tokens behind these {count}",
    # Masks.
    "no_stop_among": "no stop token among the first {count}",
    "one_allowed": "one of the {count} tokens allowed",
    "a_pulled_token": "a token with a bias of 100",
    "no_pushed_token": "a token without a bias of -100",
    "no_bad_word": "no token that completes a bad word behind {behind}",
    "an_edge": "one of the {count} edges of state {state} of the grammar",
    # Logprobs.
    "num_logprobs": "{count} logprobs",
    "logprobs_each": "{width} logprobs for each of {count} tokens",
    "logprobs_of_prompt": "{width} logprobs for each of {count} tokens of the prompt",
    "own_first": "that of token {token} first",
    "of_token": "that of token {token}",
    "own_first_in_prompt": "the logprob of token {token} first, at token {place} of the prompt",
    "in_prompt": "{what} at token {place} of the prompt",
    "has_probability": "a token that has a probability",
    "impossible_token": "token {token} with logprob -inf",
    "token_logprob": "token {token} with logprob {logprob:.4f}",
    "unchanged": "",
    "more": " more {by:g}",
    "less": " less {by:g}",
    "token_changed": "token {token} with {logprob:.4f}{change}",
    "likelier_token": "token {token}, whose logprob is {logprob:.4f}{change}",
    "likeliest_of_k": "one of the {k} likeliest, of {least:.4f} or more",
    "token_with": "token {token} with {logprob:.4f}",
    "fewest_of_p": "one of the fewest tokens that have {p:g} of all probability",
    "likelier_mass": "token {token}, likelier ones have {mass:.4f} or more",
    "different_tokens": "different tokens of 0 to {last}",
    "these_tokens": "tokens {tokens}",
    "falling_logprobs": "logprobs that fall",
    "these_logprobs": "logprobs {logprobs}",
    "logprob_as_before": "token {token} with {logprob:.4f} as before",
    "with_logprob": "with {logprob:.4f}",
    "none_above_least": "no logprob above {least:.4f} beside those of the likeliest",
    "no_certainty": "no probability above 1",
    "at_most_one": "at most 1 in all",
    "mass": "{mass:.6f}",
    "mass_of_vocabulary": "1 in all {size} tokens",
    "at_most_mass": "at most {mass:.6f}",
    # Identities of steps.
    "inputs_of_every_step": "inputs of every step",
    "none_shown": "none are shown",
    "between": "{least} to {most}",
    "at_least": "at least {least}",
    "below_vocabulary": "a token below {size}",
    "only_drafts": "only drafts behind what is known",
    "own_block": "a block that is its own, number {index}",
    "block": "block {block}",
    "a_block_of_its_own": "a block of its own",
    "block_of_another": "block {block}, which request {other} holds too",
    "state_in_block": "its state in block {block}",
    "block_of_several": "block {block}, which requests {holders} hold for states or tokens",
    "a_block_for_its_state": "a block of its own for its state",
    "begins": "it begins",
    "goes_on": "it goes on from a state",
    "none_held": "no {what} held at the end",
    # Schedules and distributions.
    "digest_as_under_eager": "{digest} as under eager",
    "digest_under_policy": "{digest} under {policy}",
    "digest_under_seed": "{digest} under random {seed}",
    "digest_under_order": "{digest} under the lane order {order}",
    "same_law": "token {last} drawn as without speculation, in {copies} copies of each",
    "same_law_of_several": "tokens {first} to {last} drawn as without speculation, in {copies} copies of each",
    "another_law": "another law: G is {g:.1f} of {degrees} degrees, p {p:.1e}",
    # What had to happen in a run.
    "probe": "{probe}: expected at least {least}, seen {seen}",
    "fault_not_reached": "fault {fault}: never reached",
    "no_event": "no event: nothing was asked of the engine",
    "unmet": "{requirement}",
}

RULES: Mapping[Rule, str] = {
    Rule.NOT_ALIVE: "request {request} is not alive",
    Rule.NAME_IN_USE: "request {name} was submitted while another of its name was alive",
    Rule.SUBMITTED_OUT_OF_ORDER: "request {request} was submitted out of order",
    Rule.OTHER_CONTENTS: "request {name} takes block {block} over, which holds other tokens",
    Rule.NOT_THE_LAST_SCHEDULED: "step {step} was launched, but not the last one scheduled",
    Rule.OTHER_REQUESTS_RUN: "step {step} runs requests {requests}, scheduled {due}",
    Rule.PAST_ITS_REACH: "request {name} computes position {position}, past everything it can reach",
    Rule.SAMPLES_ELSEWHERE: "request {name} samples position {position}, not {due}",
    Rule.PROCESSED_BEFORE_LAUNCH: "step {step} was processed, but not launched",
    Rule.DELIVERED_ELSEWHERE: "step {step} delivers {commit} from position {position}, not {due}",
    Rule.PREEMPTED_WHILE_WAITING: "request {name} was preempted into epoch {epoch}, but is not running",
    Rule.FREED_WHILE_RUNNING: "request {name} gives its blocks back while it runs",
    Rule.OTHER_BLOCKS_FREED: "request {name} gives back {blocks}, it owns {due}",
    Rule.NEVER_SUBMITTED: "request {request} was never submitted",
    Rule.NEVER_CORRECTED: "step {step} was never corrected",
    Rule.STOPPED_EARLY: "the engine stopped while requests {names} were alive",
    Rule.BEFORE_LAUNCH: "step {step} is not launched yet",
    Rule.BEFORE_SCHEDULE: "requests were preempted for step {step}, which is not scheduled yet",
    Rule.STEP_NUMBER: "it is step {step} at tick {tick}, next is {due}",
    Rule.LAUNCH_ORDER: "step {step} was launched after step {before}",
    Rule.LAUNCHED_UNCORRECTED: "step {step} was launched, but step {uncorrected} was not corrected",
    Rule.TOO_MANY_IN_FLIGHT: "{count} steps are in flight, depth is {depth}",
    Rule.PROCESS_ORDER: "step {step} was processed, next is {due}",
    Rule.PROCESSED_EARLY: "step {step} was processed with {count} in flight, depth is {depth}",
    Rule.CORRECTED_OUT_OF_TURN: "step {step} was corrected out of turn",
    Rule.OBSERVED_ROWS: "requests {requests}",
    Rule.DRAFTS_PROPOSED: "{count} drafts are proposed, the events say {due}",
    Rule.NAMED_REQUESTS: "scheduled or skipped are requests {requests}, alive are {due}",
    Rule.VICTIMS: "preempted for want of blocks are requests {requests}, due are {due}",
    Rule.RETURNED_BLOCKS: "request {name} gives blocks {blocks} of this step back, {due} are due",
    Rule.SKIPPED: "request {name} was left out for {reason!r}, the reason due is {due}",
    Rule.SCHEDULED: "request {name} was scheduled, it has to wait: {due}",
    Rule.ROWS: "rows are {rows}, due are {due}",
    Rule.EPOCH: "epoch is {epoch}, it was preempted {due} times",
    Rule.STEP_IN_EPOCH: "it is its step {step}, it was scheduled {due} times in this epoch",
    Rule.NUM_TOKENS: "{count} tokens are scheduled, {due} are due (budget left {budget})",
    Rule.NUM_DRAFTS: "{count} drafts are scheduled, {due} are due",
    Rule.PADDED: "it was padded with drafts, but does not join a uniform batch",
    Rule.NOT_PADDED: "it joins a uniform batch, but was not padded with drafts",
    Rule.SAMPLE_TAKEN: "its sample was taken away, but no event asks for that",
    Rule.SAMPLE_LEFT: "its sample was not taken away, an event asks for that",
    Rule.SPOILED_LOGITS: "its logits are made NaN: {seen}; due is {due}",
    Rule.SPOILS: "spoiled of it are {seen}; due are {due}",
    Rule.NUM_BLOCKS: "{count} blocks were given, {due} cover its tokens and the drafts that follow",
    Rule.HITS: "blocks {blocks} are taken over ({tokens} tokens), due are {due}",
    Rule.BLOCKS: "blocks {blocks} are given, due are {due}",
    Rule.BLOCK_OWNED: "block {block} is given to it, but belongs to {owner}",
    Rule.SLOT_CHANGED: "state slot {slot} is given to it, but it has its own",
    Rule.SLOT_OWNED: "state slot {slot} is given to it, but it is not free",
    Rule.VICTIM: "request {request} was preempted, due is request {due}",
    Rule.VICTIM_MODE: "request {request} was preempted for blocks in mode {mode}, due is deliver",
    Rule.VICTIM_TICK: "request {request} was preempted at tick {tick}, next is {due}",
    Rule.BLOCK_FREED: "block {block} is given back by request {request}, but belongs to {owner}",
    Rule.SLOT_FREED: "state slot {slot} is given back by request {request}, which does not own it",
    Rule.ROW_ORDER: "step {step} runs requests {requests}, due in row order are {due}",
    Rule.UNIFORM: "the batch is called uniform: {seen}; due is {due}",
    Rule.SHAPE: "the batch is padded to {rows} rows and {tokens} tokens, due are {due_rows} and {due_tokens}",
    Rule.SUBMITTED_EARLY: "request {name} was submitted before its event",
    Rule.SUBMITTED_AT: "submitted at tick {tick}, its event is due at tick {due}",
    Rule.RESET_UNASKED: "the prefix cache was reset at tick {tick}, but no event asks for it",
    Rule.ABORT_UNASKED: "abort of request {name} at tick {tick}, but no event asks for it",
    Rule.PREEMPT_UNASKED: "preempt of request {name} at tick {tick}, but no event asks for it",
    Rule.RESET_MISSING: "the prefix cache was not reset, its event was due at tick {tick}",
    Rule.SUBMIT_MISSING: "request {name} was not submitted, its event was due at tick {tick}",
    Rule.ABORT_MISSING: "request {name} goes on, its abort was due at tick {tick}",
    Rule.PREEMPT_MISSING: "request {name} runs on, its preemption was due at tick {tick}",
    Rule.BUDGET: "{count} tokens more than the budget of a step are scheduled",
    Rule.CUT_SHORT: "request {name} gets {count} tokens and is cut short, {left} are left",
    Rule.BLOCK_HELD: "block {block} is given to request {name}, but another request holds it",
    Rule.TOO_MANY_RUN: "{count} requests run, at most {due} may",
    Rule.LEFT_OUT: "request {name} runs and is left out, {left} tokens are left",
    Rule.IDLE: "{count} steps in a row run nothing, while requests wait",
    Rule.OVERTAKEN: "request {name} is admitted before {other}, which came first",
    Rule.COULD_RUN: "request {name} waits, with {left} tokens, {blocks} blocks and a row left",
    Rule.GOES_ON_ENDED: "request {name} has ended and gets {count} tokens",
    Rule.COMPUTED_BEFORE_DRAFTS: "{count} tokens are computed before its drafts, {due} are known",
    Rule.TOO_MANY_TOKENS: "{count} tokens come from {drafts} drafts",
    Rule.NO_TOKEN: "a row that samples brings no token",
    Rule.CHUNK: "a chunk up to token {end} of {known} has {drafts} drafts and brings {count} tokens",
    Rule.DROPPED_DELIVERED: "{count} tokens of epoch {epoch} are delivered, which was dropped",
    Rule.BEYOND_LIMIT: "it has {count} tokens, at most {due} are allowed",
    Rule.ENDS_BELOW_LIMIT: "it ends with {count} tokens for its length, which is {due}",
    Rule.GOES_ON_AT_LIMIT: "it goes on with {count} tokens, which is its length",
}


def value_text(value: Plain) -> str:
    """Return a value; large integers, which are states and hashes, in hexadecimal."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _NUMBER_MAX:
        return f"{value:016x}"
    return _argument(value) if isinstance(value, tuple) else str(value)


def _argument(value: Plain) -> str:
    """Return a value as it stands within a sequence, which stands in brackets."""
    match value:
        case tuple():
            return f"[{', '.join(map(_argument, value))}]"
        case float():
            return f"{value:.6f}"
    return str(value)


def shown_text(value: Shown | Violation) -> str:
    """Return what was seen, or what was due."""
    match value:
        case Fact(kind=kind, values=values):
            return FACTS[kind].format(**{name: _within(each) for name, each in values.items()})
        case Violation():
            return violation_text(value)
    return value_text(value)


def _within(value: Shown) -> object:
    """Return a value for a format: numbers stay numbers, whose digits the sentence chooses."""
    if isinstance(value, str) and value in NOT_FINITE:
        return float(value)
    if value is None:
        return "none"
    return value if isinstance(value, int | float) else shown_text(value)


def violation_text(value: Violation) -> str:
    """Return which rule a decision breaks: of which entry, about which request, and how."""
    text = RULES[value.rule].format(**{name: _within(each) for name, each in value.values.items()})
    about = f"request {value.request}: {text}" if value.request else text
    return f"{value.entry}: {about}" if value.entry else about


def site_text(site: Site) -> str:
    """Return a place in a program."""
    return f"{site.function} in {site.file}:{site.line}" if site.file else site.function


def writer_text(access: Access) -> str:
    """Return who wrote: the lane, or the function of the program, the op and the step."""
    return f"{access.actor}:{access.op}@{access.step}"


def access_text(access: Access) -> str:
    """Return an access: how, by whom and, where that is known, from which line."""
    how = access.how if access.replaced is None else f"{access.how} over step {access.replaced}"
    who = f"the {how} by {writer_text(access)}"
    if access.site is None:
        return who
    where = f"{access.site.file}:{access.site.line}" if access.site.file else ""
    return f"{who} ({', '.join([where, *([access.lane] if access.lane != access.op else [])])})"


def missing_order_text(order: MissingOrder) -> str:
    """Return which two accesses nothing orders."""
    return f"nothing orders {access_text(order.first)} before {access_text(order.second)} (both use {order.memory})"


def elsewhere_text(elsewhere: Elsewhere) -> str:
    """Return whether another run keeps the contract."""
    run = REFERENCES[elsewhere.reference]
    match elsewhere.how:
        case "keeps":
            return f"{run} keeps it"
        case "breaks":
            return f"{run} breaks it too"
        case "other":
            return f"{run} breaks {elsewhere.contract} of {elsewhere.request}"
        case "failed":
            return f"{run} breaks off: {elsewhere.error}"


def expected_text(difference: Difference) -> str:
    """Return what was due."""
    order = difference.missing_order
    if difference.plane == "races" and order is not None:
        return f"{access_text(order.first)}, then {access_text(order.second)}, in this order"
    text = shown_text(difference.expected)
    return text if difference.reference is None else f"{text}, as in {REFERENCES[difference.reference]}"


def actual_text(difference: Difference) -> str:
    """Return what was seen instead."""
    text = shown_text(difference.actual)
    return text if difference.elsewhere is None else f"{text}; {elsewhere_text(difference.elsewhere)}"


def reason_text(verdict: Stuck) -> str:
    """Return why a run made no progress."""
    match verdict.waits:
        case NotDrained(steps=steps, waiting=waiting):
            text = f"not drained after {steps} steps"
            if waiting is None:
                return text
            names = [f"{wait.request} waits: {wait.reason}" for wait in waiting]
            return f"{text}; {', '.join(names) or 'no request waits'}"
        case LanesWait(host=host, lanes=lanes):
            waits = [f"{wait.lane} waits for {wait.on} of step {wait.step}" for wait in lanes]
            graph = "; ".join(waits) or "no lane has anything to do"
            return graph if host is None else f"the host waits for {host}; {graph}"


def finding_lines(verdict: Verdict) -> list[str]:
    """Return what was found, a fact a line."""
    match verdict:
        case Diverged(difference=difference):
            return list(_difference_lines(difference))
        case Crashed(error=error, where=where, missing_order=order):
            lines = [f"in {site_text(where)}: {error}"]
            return lines if order is None else [*lines, f"missing order: {missing_order_text(order)}"]
        case Stuck():
            return [reason_text(verdict)]
        case Vacuous(missing=missing):
            return [shown_text(each) for each in missing]
        case Lost(reason=reason):
            return [reason]
        case Agreed():
            return []


def _difference_lines(difference: Difference) -> Iterator[str]:
    if difference.request:
        position = "" if difference.position is None else f" at position {difference.position}"
        commit = f", commit {difference.commit}" if difference.commit else ""
        yield f"request {difference.request}{position}{commit}, step {difference.step}"
    actual, expected = actual_text(difference), expected_text(difference)
    yield f"{difference.variable} is {actual}, expected {expected}   (plane: {difference.plane})"
    if difference.writers:
        yield f"last writers, newest first: {', '.join(map(writer_text, difference.writers))}"
    if difference.missing_order is not None:
        yield f"missing order: {missing_order_text(difference.missing_order)}"


def schedule_name(schedule: Schedule) -> str:
    """Return a short name of a schedule."""
    held = f" with {len(schedule.holds)} held back" if schedule.holds else ""
    match schedule.policy:
        case "lane_order":
            return " > ".join(schedule.order) + held
        case "random":
            return f"random {schedule.seed}{held}"
        case policy:
            return f"{policy}{held}"


def outcome_text(outcome: Outcome) -> str:
    """Return how a run under a schedule ended, in a few words."""
    match outcome.kind:
        case "diverged":
            return f"diverged: {outcome.variable} of {outcome.commit or 'no request'} at step {outcome.step}"
        case "vacuous":
            return "agreed"
        case kind:
            return kind


def schedule_names(outcomes: Sequence[Outcome], agrees: bool) -> list[str]:
    """Return the names of schedules under which a finding does not show, or does; lane orders are counted."""
    schedules = [outcome.schedule for outcome in outcomes if outcome.agrees is agrees]
    names = [schedule_name(each) for each in schedules if each.policy != "lane_order"]
    num_orders = len(schedules) - len(names)
    return names + ([f"{num_orders} lane orders"] if num_orders else [])


def outcome_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """Return under which schedules a finding shows and under which it does not; lane orders are counted."""
    lines = []
    for text, agrees in (("shows under", False), ("does not show under", True)):
        names = schedule_names(outcomes, agrees)
        lines += [f"{text}: {', '.join(names)}"] if names else []
    pairs = telling_pairs(outcomes)
    if pairs:
        named = " and ".join(f"{first} before {second}" for first, second in pairs)
        lines.append(f"it shows in exactly those lane orders with {named}")
    return lines
