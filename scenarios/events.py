"""Events and schedules: what happens to an engine, when, and in which order its lanes advance.

Every list of events is a valid trace: an event about a request that is unknown or has ended does nothing, so any
event may be deleted. An event carries an absolute tick (one call of `Engine.step`) and a place in it; deleting one
moves no other.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from scenarios.draw import below
from scenarios.sampling import Feature, SamplingParams, declared
from scenarios.spec import Count, Index, Name, Ticks, Value

Place: TypeAlias = Literal["before_schedule", "after_launch", "before_process"]
PLACES: tuple[Place, ...] = ("before_schedule", "after_launch", "before_process")

PreemptMode: TypeAlias = Literal["deliver", "drop"]
PauseMode: TypeAlias = Literal["abort", "wait", "keep"]

BITS_MAX = 65536
RequestName: TypeAlias = Name
Bits: TypeAlias = Annotated[str, StringConstraints(strict=True, pattern=r"^[01]+$", max_length=BITS_MAX)]


class PromptDraw(Value):
    """A prompt of `tokens` random token ids, labelled by its request; expanded by `Trace.explicit`.

    Another `variant` is another prompt for the same name. The first `common` tokens are those of every prompt drawn;
    behind these it has `own` tokens of its own, and then those of every prompt again, or with 0 its own to the end.
    """

    tokens: Count
    common: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    own: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    variant: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0


class Continuation(Value):
    """A prompt that goes on from another request, as the next turn of a conversation does; known when it is submitted.

    It is the prompt of the last request with the name `continues`, what was delivered of its output by then, ended or
    not, and `tokens` random token ids labelled by the request that goes on; cut off at the end where the model or the
    pool has no room for more. If no request has had the name yet, nothing is submitted.
    """

    continues: RequestName
    tokens: Count


class AcceptRate(Value):
    """An acceptance script whose bits are 1 with probability `rate`; expanded by `Trace.explicit`."""

    rate: Annotated[float, Field(strict=True, ge=0.0, le=1.0)]


class Event(Value):
    """When and where something happens: a call of `Engine.step`, and a place in it."""

    tick: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    at: Place = "before_schedule"


class Submit(Event):
    """A request arrives. While an earlier request of its name is alive, nothing happens.

    An event means the request that has the name when it happens. With policy `priority` a request of lower `priority`
    goes first, and among equals the one submitted first.
    `accept` is a cyclic script of bits over output positions: a draft for output position o is right iff
    `accept[o % len(accept)]` is 1. `all`, `none` and `alternate` stand for 1, 0 and 10. Where tokens depend on drafts,
    a draft is right if it is what the largest logits would lead to.
    Requests of a `session` are its parts, in their order: one goes on behind all tokens of the part before but the last
    one delivered, of which nothing is computed, once that part has ended; never behind one that was aborted.
    """

    do: Literal["submit"] = "submit"
    request: RequestName
    prompt: Annotated[tuple[Index, ...], Field(min_length=1)] | PromptDraw | Continuation
    max_tokens: Count
    accept: Annotated[Literal["all", "none", "alternate"] | Bits | AcceptRate, Feature(plain=("1",))] = "all"
    stop: Annotated[tuple[Index, ...], Feature(("stop",))] = ()
    priority: Annotated[int, Field(strict=True, ge=0, le=1_000_000), Feature()] = 0
    session: Annotated[RequestName | None, Feature()] = None
    params: SamplingParams = SamplingParams()

    @property
    def prompt_length(self) -> int:
        """Number of tokens of the prompt; of one that goes on from another those that are its own."""
        return len(self.prompt) if isinstance(self.prompt, tuple) else self.prompt.tokens


# The features of a request beside its sampling parameters.
OF_SUBMITS = declared(Submit)


class Abort(Event):
    """The client aborts a request."""

    do: Literal["abort"] = "abort"
    request: RequestName


class Preempt(Event):
    """A running request is preempted: it loses its blocks and its state and is recomputed later.

    With `deliver` its results in flight count, and it waits for them; with `drop` they are thrown away and sampled
    again, and it may go on at once.
    """

    do: Literal["preempt"] = "preempt"
    request: RequestName
    mode: PreemptMode = "deliver"


class Stall(Event):
    """A request is not scheduled in this tick and the `ticks - 1` that follow."""

    do: Literal["stall"] = "stall"
    request: RequestName
    ticks: Count = 1


class Reorder(Event):
    """The rows of the next non-empty batch are permuted before it is prepared."""

    do: Literal["reorder"] = "reorder"
    how: Literal["reverse", "rotate", "shuffle"] = "reverse"


class EndSession(Event):
    """The client adds no more parts to a session. Without such an event it ends behind the last part."""

    do: Literal["end_session"] = "end_session"
    session: RequestName


class SetK(Event):
    """From this step on, `k` drafts are proposed for each request; more than the specification's K counts as K.

    So the event keeps its meaning where K is lowered, and every number is valid.
    """

    do: Literal["set_k"] = "set_k"
    k: Index


class ResetPrefixCache(Event):
    """The prefix cache is emptied; with `running`, running requests are preempted in drop mode first."""

    do: Literal["reset_prefix_cache"] = "reset_prefix_cache"
    running: Annotated[bool, Field(strict=True)] = False


class NoValidToken(Event):
    """The next step that samples for this request yields no valid token for it."""

    do: Literal["no_valid_token"] = "no_valid_token"
    request: RequestName


class NanLogits(Event):
    """The next step that samples for this request computes logits that are not numbers."""

    do: Literal["nan_logits"] = "nan_logits"
    request: RequestName


class Spoil(Event):
    """One value that the next step computes for a request becomes unusable."""

    request: RequestName
    token: Index = 0


class SpoilLogit(Spoil):
    """One logit of the next step that samples for this request becomes NaN or infinite.

    It is that of `token`, modulo the vocabulary, in column `column` or the last that the step has. If the request's
    parameters forbid the token this has no effect; otherwise no token can be chosen from that column.
    """

    do: Literal["spoil_logit"] = "spoil_logit"
    column: Index = 0
    value: Literal["nan", "inf"] = "nan"


class SpoilDraft(Spoil):
    """One draft of the next step that verifies drafts of this request becomes impossible to verify.

    It is number `draft`, or the last there is. Its id is `above` or `below` those of the vocabulary; or, if it was
    drawn, the logit of `token` modulo the vocabulary that it was drawn from is NaN or infinite. This has no effect on
    drafts that were not proposed in the step before, or that the host has checked against a grammar.
    """

    do: Literal["spoil_draft"] = "spoil_draft"
    draft: Index = 0
    what: Literal["above", "below", "nan", "inf"] = "above"


class DummyStep(Event):
    """The next step that schedules nothing is not skipped: the target model runs over a batch of padding alone.

    An idle data-parallel worker does so while others are busy. It commits nothing and changes no request's state.
    """

    do: Literal["dummy_step"] = "dummy_step"


class DisturbTransfer(Event):
    """Something happens to a load or a store of a request: to the one in flight, or else to the next that begins.

    It takes `ticks` longer (delay), comes at once (hasten), never arrives (drop), loses its block number `block`, or
    the last that it has (fail), or copies all a second time (repeat). What a store loses is not kept. It has no effect
    in an engine without a store.
    """

    do: Literal["disturb_transfer"] = "disturb_transfer"
    request: RequestName
    of: Literal["load", "store"] = "load"
    how: Literal["delay", "hasten", "drop", "fail", "repeat"] = "delay"
    ticks: Ticks = 1
    block: Index = 0


class Pausing(Event):
    """Generation stops for a while: until an event says that it goes on, or else for `ticks` ticks.

    With `abort` every request ends; with `wait` those that run go on to their ends, and none begins; with `keep` all
    stay as they are, and what is in flight is delivered. Requests that come meanwhile wait. Once nothing is in flight
    any more the pause is complete. Of several pauses the last one holds.
    """

    mode: PauseMode = "abort"
    ticks: Count = 8


class Pause(Pausing):
    """Generation is paused. With `clear_cache` a complete pause forgets what was computed: nothing attends to it."""

    do: Literal["pause"] = "pause"
    clear_cache: Annotated[bool, Field(strict=True)] = True


class Resume(Event):
    """A pause ends as soon as it is complete; without one, or while the engine sleeps, nothing happens."""

    do: Literal["resume"] = "resume"


class Sleep(Pausing):
    """The engine is paused, and sleeps as soon as that is complete.

    At level 0 that is all. At level 1 it loses what it has cached, and keeps its weights elsewhere; at level 2 it loses
    both, and loads its weights anew when it wakes.
    """

    do: Literal["sleep"] = "sleep"
    level: Literal[0, 1, 2] = 1


class WakeUp(Event):
    """The engine wakes: its weights are there again, or its caches, or both; with both generation goes on.

    If it does not sleep nothing happens.
    """

    do: Literal["wake_up"] = "wake_up"
    what: Literal["all", "weights", "kv_cache"] = "all"


class LoadWeights(Event):
    """The target's weights become those of a `version`, between two steps; requests may run.

    With `clear_cache` running requests are preempted, and nothing attends to what was computed by other weights.
    Weights that sleep are exchanged as soon as they wake.
    """

    do: Literal["load_weights"] = "load_weights"
    version: Annotated[int, Field(strict=True, ge=0, le=7)] = 1
    clear_cache: Annotated[bool, Field(strict=True)] = True


class Neighbour(Event):
    """Another engine of the same process takes turns with this one: a step behind each of the next `ticks` ticks."""

    do: Literal["neighbour"] = "neighbour"
    ticks: Count = 1


# Kinds of events of a server's control plane.
CONTROL_EVENTS = ("pause", "resume", "sleep", "wake_up", "load_weights", "neighbour")

AnyEvent: TypeAlias = Annotated[
    Submit
    | Abort
    | Preempt
    | Stall
    | Reorder
    | SetK
    | ResetPrefixCache
    | EndSession
    | NoValidToken
    | NanLogits
    | SpoilLogit
    | SpoilDraft
    | DummyStep
    | DisturbTransfer
    | Pause
    | Resume
    | Sleep
    | WakeUp
    | LoadWeights
    | Neighbour,
    Field(discriminator="do"),
]

LaneName: TypeAlias = Literal["host", "compute", "h2d", "d2h_output", "d2h_counts"]
LANES: tuple[LaneName, ...] = ("host", "compute", "h2d", "d2h_output", "d2h_counts")


class Label(Value):
    """A device op or a point of the host, in one step."""

    name: Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9_]{1,64}$")]
    step: Index


class Hold(Value):
    """An exception to the base policy: op `op` does not run before `until` has passed, unless nothing else can."""

    op: Label
    until: Label


SourceLine: TypeAlias = Annotated[str, StringConstraints(strict=True, pattern=r"^[\w./-]+\.py:[1-9]\d*$")]
Policy: TypeAlias = Literal["eager", "lazy", "lane_order", "random"]


class Delay(Value):
    """Pause `before` a line of a program or `behind` it, in all steps or one; `at` has it and callers: FILE:LINE."""

    at: Annotated[tuple[SourceLine, ...], Field(min_length=1)]
    step: Index | None = None
    microseconds: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    where: Literal["before", "behind"] = "before"
    of: Literal["stream", "host"] = "stream"


class Schedule(Value):
    """Order in which lanes advance: a base policy and sparse labelled exceptions.

    `order` belongs to `lane_order` (first is most urgent), `seed` to `random`; `delays` to a GPU, whose streams spin or
    whose host sleeps there, and so does `joined`: each launch is waited for.
    """

    policy: Policy = "eager"
    order: tuple[LaneName, ...] = LANES
    seed: Index = 0
    holds: tuple[Hold, ...] = ()
    delays: tuple[Delay, ...] = ()
    joined: bool = False


def clears_cache(event: AnyEvent) -> bool:
    """Tell whether nothing computed later attends to what was computed before an event, or before its pause began."""
    match event:
        case ResetPrefixCache(running=clears) | Pause(clear_cache=clears) | LoadWeights(clear_cache=clears):
            return clears
        case Sleep(level=level):
            return level > 0
    return False


def accept_bits(event: Submit, seed: int, num_speculative_tokens: int) -> str:
    """Return the acceptance script of a submit as explicit bits."""
    match event.accept:
        case "all":
            return "1"
        case "none":
            return "0"
        case "alternate":
            return "10"
        case AcceptRate(rate=rate):
            threshold = round(rate * (1 << 32))
            length = min(event.max_tokens + 3 * (1 + num_speculative_tokens), BITS_MAX)
            bits = (below(1 << 32, seed, "accept", event.request, index) < threshold for index in range(length))
            return "".join("1" if bit else "0" for bit in bits)
        case str(bits):
            return bits


def prompt_tokens(event: Submit, seed: int, vocab_size: int) -> tuple[int, ...]:
    """Return the prompt of a submit as explicit token ids; of one that goes on from another those that are its own."""
    match event.prompt:
        case PromptDraw(tokens=count, common=common, own=own, variant=variant):
            key = f"{event.request}/{variant}" if variant else event.request
            its_own = range(common, min(common + own, count) if own else count)
            labels = (("prompt", key) if index in its_own else ("common prompt", "") for index in range(count))
            return tuple([below(vocab_size, seed, *label, index) for index, label in enumerate(labels)])
        case Continuation(tokens=count):
            return tuple([below(vocab_size, seed, "turn", event.request, index) for index in range(count)])
        case tokens:
            return tokens
