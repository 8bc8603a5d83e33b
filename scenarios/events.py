"""Events of a trace, each at a tick and at a hook of that step; schedules of lanes.

Every list of events is a valid trace: an event for an unknown or finished request does nothing, so any event may be
deleted. An event has an absolute tick (one call of `Engine.step`) and a hook in that call; deleting an event does not
move the others.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field, StringConstraints

from scenarios.draw import below
from scenarios.sampling import Feature, SamplingParams, declared_features
from scenarios.spec import Count, Index, Name, Ticks, Value

Hook: TypeAlias = Literal["before_schedule", "after_launch", "before_process"]
HOOKS: tuple[Hook, ...] = ("before_schedule", "after_launch", "before_process")

PreemptMode: TypeAlias = Literal["deliver", "drop"]
PauseMode: TypeAlias = Literal["abort", "wait", "keep"]

BITS_MAX = 65536
RequestName: TypeAlias = Name
Bits: TypeAlias = Annotated[str, StringConstraints(strict=True, pattern=r"^[01]+$", max_length=BITS_MAX)]


class PromptDraw(Value):
    """A prompt of `tokens` token ids, generated from the seed and the request's name.

    `Trace.explicit` expands it.
    Another `variant` gives another prompt for the same name. The first `common` tokens are equal in all generated
    prompts; then come `own` tokens that differ between requests, and then common tokens again. With `own: 0` all
    tokens after the first `common` tokens differ.
    """

    tokens: Count
    common: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    own: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0
    variant: Annotated[int, Field(strict=True, ge=0, le=1_000_000)] = 0


class Continuation(Value):
    """A prompt that continues another request's tokens, like the next turn of a conversation.

    It has the prompt tokens of the latest request named `continues`, the output tokens delivered until then (the
    request may still run), and `tokens` random token ids. The end is cut off at max_model_len or the size of the KV
    cache. If no request had this name before, nothing is submitted.
    """

    continues: RequestName
    tokens: Count


class AcceptRate(Value):
    """Acceptance script: each draft token is right with probability `rate`.

    `Trace.explicit` expands it.
    """

    rate: Annotated[float, Field(strict=True, ge=0.0, le=1.0)]


class Event(Value):
    """Base of all events: a tick (call of `Engine.step`), and `at`, the hook in that step."""

    tick: Annotated[int, Field(strict=True, ge=0, le=1_000_000)]
    at: Hook = "before_schedule"


class Submit(Event):
    """A client submits a request; ignored while a request of the same name is running.

    Other events refer to the request that has the name at their tick. With policy `priority` the scheduler prefers a
    lower `priority`, then the earlier submit.
    `accept` is a cyclic script of bits over output positions: the draft token at output position o is right iff
    `accept[o % len(accept)]` is 1. `all`, `none` and `alternate` mean 1, 0 and 10. If sampled tokens depend on the
    draft tokens, a draft token is right if it is the token with the largest logit.
    Requests with the same `session` are its parts, in order. A part starts when the previous part has ended. It
    continues after all tokens of that part except the last output token, which has no KV cache entry. No part
    continues an aborted part.
    With several data-parallel ranks the request, or the session that it begins, goes to rank `data_rank` modulo their
    number.
    """

    do: Literal["submit"] = "submit"
    request: RequestName
    prompt: Annotated[tuple[Index, ...], Field(min_length=1)] | PromptDraw | Continuation
    max_tokens: Count
    accept: Annotated[Literal["all", "none", "alternate"] | Bits | AcceptRate, Feature(plain=("1",))] = "all"
    stop: Annotated[tuple[Index, ...], Feature(("stop",))] = ()
    priority: Annotated[int, Field(strict=True, ge=0, le=1_000_000), Feature()] = 0
    session: Annotated[RequestName | None, Feature()] = None
    data_rank: Annotated[int, Field(strict=True, ge=0, le=3), Feature()] = 0
    params: SamplingParams = SamplingParams()

    @property
    def prompt_length(self) -> int:
        """Number of prompt tokens; for a continuation, without the continued tokens."""
        return len(self.prompt) if isinstance(self.prompt, tuple) else self.prompt.tokens


# The request features that are fields of a submit; sampling parameters declare the others.
SUBMIT_FEATURES = declared_features(Submit)


class Abort(Event):
    """The client aborts a request."""

    do: Literal["abort"] = "abort"
    request: RequestName


class Preempt(Event):
    """A running request is preempted: it loses its KV blocks and state, and is recomputed later.

    With `deliver` its results in flight are delivered, and the request waits for them. With `drop` they are discarded
    and sampled again, and the request may resume at once.
    """

    do: Literal["preempt"] = "preempt"
    request: RequestName
    mode: PreemptMode = "deliver"


class Stall(Event):
    """A request is not scheduled for `ticks` ticks, including this one."""

    do: Literal["stall"] = "stall"
    request: RequestName
    ticks: Count = 1


class Reorder(Event):
    """The batch rows of the next non-empty step are permuted before its inputs are prepared."""

    do: Literal["reorder"] = "reorder"
    how: Literal["reverse", "rotate", "shuffle"] = "reverse"


class EndSession(Event):
    """The client ends a streaming session; otherwise the session ends after its last input."""

    do: Literal["end_session"] = "end_session"
    session: RequestName


class SetK(Event):
    """From this step on, `k` draft tokens are proposed for each request, at most K.

    Every number is valid, so the event remains valid when K of the specification is lowered.
    """

    do: Literal["set_k"] = "set_k"
    k: Index


class ResetPrefixCache(Event):
    """The prefix cache is reset; with `running`, running requests are preempted before."""

    do: Literal["reset_prefix_cache"] = "reset_prefix_cache"
    running: Annotated[bool, Field(strict=True)] = False


class NoValidToken(Event):
    """The next step that samples for this request yields no valid token for it."""

    do: Literal["no_valid_token"] = "no_valid_token"
    request: RequestName


class NanLogits(Event):
    """The next step that samples for this request computes NaN logits."""

    do: Literal["nan_logits"] = "nan_logits"
    request: RequestName


class Spoil(Event):
    """Base of events that corrupt one value of a request in its next step."""

    request: RequestName
    token: Index = 0


class SpoilLogit(Spoil):
    """One logit of the next step that samples for this request becomes NaN or infinite.

    It is the logit of `token` (modulo the vocabulary size) in column `column`, or in the last column if the step has
    fewer. If the request's sampling parameters forbid the token, the event has no effect; otherwise no token can be
    chosen from that column.
    """

    do: Literal["spoil_logit"] = "spoil_logit"
    column: Index = 0
    value: Literal["nan", "inf"] = "nan"


class SpoilDraft(Spoil):
    """A draft token of a request becomes invalid in the next step that verifies its drafts.

    It is draft token number `draft`, or the last one if there are fewer. With `above` and `below` its id is outside
    the vocabulary. With `nan` and `inf` the draft logit of `token` (modulo the vocabulary size) is NaN or infinite, if
    the draft token was sampled at random. The event has no effect on draft tokens that the previous step did not
    propose, or that the host has checked against a grammar.
    """

    do: Literal["spoil_draft"] = "spoil_draft"
    draft: Index = 0
    what: Literal["above", "below", "nan", "inf"] = "above"


class DummyStep(Event):
    """The next step with nothing scheduled runs the target model over padding rows.

    An idle data-parallel rank does this while other ranks are busy. It commits nothing and changes no request's state.
    """

    do: Literal["dummy_step"] = "dummy_step"


class DisturbTransfer(Event):
    """A load or store of a request is delayed, hastened, dropped, failed or repeated.

    It is the transfer in flight, or else the next one.
    The transfer takes `ticks` longer (delay), completes at once (hasten), never completes (drop), loses its block
    number `block`, or its last block if it has fewer (fail), or copies all blocks twice (repeat). The store does not
    keep a block that it loses. The event has no effect in an engine without a KV connector.
    """

    do: Literal["disturb_transfer"] = "disturb_transfer"
    request: RequestName
    of: Literal["load", "store"] = "load"
    how: Literal["delay", "hasten", "drop", "fail", "repeat"] = "delay"
    ticks: Ticks = 1
    block: Index = 0


class Pausing(Event):
    """Generation stops for `ticks` ticks, or until an event resumes it.

    With `abort` all requests end; with `wait` running requests finish and no request starts; with `keep` all requests
    stay, and results in flight are delivered. New requests wait. The pause is complete when no step is in flight. A
    later pause replaces an earlier one.
    """

    mode: PauseMode = "abort"
    ticks: Count = 8


class Pause(Pausing):
    """Generation pauses; with `clear_cache`, the KV cache is cleared when the pause is complete."""

    do: Literal["pause"] = "pause"
    clear_cache: Annotated[bool, Field(strict=True)] = True


class Resume(Event):
    """The pause ends once it is complete; without a pause, or during sleep, nothing happens."""

    do: Literal["resume"] = "resume"


class Sleep(Pausing):
    """The engine pauses and, once the pause is complete, sleeps.

    At level 0 it only pauses. At level 1 it discards the KV cache and moves its weights to host memory. At level 2 it
    discards both, and reloads its weights when it wakes.
    """

    do: Literal["sleep"] = "sleep"
    level: Literal[0, 1, 2] = 1


class WakeUp(Event):
    """A sleeping engine restores weights, KV cache, or both; after both, generation resumes.

    Nothing happens if the engine does not sleep.
    """

    do: Literal["wake_up"] = "wake_up"
    what: Literal["all", "weights", "kv_cache"] = "all"


class LoadWeights(Event):
    """The target model loads the weights of `version` between two steps; requests may run.

    With `clear_cache` running requests are preempted, and no request attends to KV cache entries of the old weights.
    While the weights sleep, the exchange waits until they wake.
    """

    do: Literal["load_weights"] = "load_weights"
    version: Annotated[int, Field(strict=True, ge=0, le=7)] = 1
    clear_cache: Annotated[bool, Field(strict=True)] = True


class Neighbour(Event):
    """Another engine of the process runs a step after each of the next `ticks` ticks."""

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
    """Name of a device op, or of a point of the host's program, in one step."""

    name: Annotated[str, StringConstraints(strict=True, pattern=r"^[a-z0-9_]{1,64}$")]
    step: Index


class Hold(Value):
    """Exception to the schedule: `op` waits for `until`, unless nothing else can run."""

    op: Label
    until: Label


SourceLine: TypeAlias = Annotated[str, StringConstraints(strict=True, pattern=r"^[\w./-]+\.py:[1-9]\d*$")]
Policy: TypeAlias = Literal["eager", "lazy", "lane_order", "random"]


class Delay(Value):
    """The host or a stream is delayed before or after a source line, in one step or in all.

    `at` has the line and its callers, each as FILE:LINE; `where: behind` means after the line. If ranks are processes,
    only `rank` is delayed, or all of them without it.
    """

    at: Annotated[tuple[SourceLine, ...], Field(min_length=1)]
    step: Index | None = None
    microseconds: Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
    where: Literal["before", "behind"] = "before"
    of: Literal["stream", "host"] = "stream"
    rank: Index | None = None


class Schedule(Value):
    """Order in which lanes (host, streams) advance: a policy, with exceptions for single ops.

    `order` belongs to `lane_order` (the first lane is the most urgent), `seed` to `random`. Only a GPU supports
    `delays` (a stream spins, or the host sleeps) and `joined` (the host waits for each launch).
    """

    policy: Policy = "eager"
    order: tuple[LaneName, ...] = LANES
    seed: Index = 0
    holds: tuple[Hold, ...] = ()
    delays: tuple[Delay, ...] = ()
    joined: bool = False


def clears_cache(event: AnyEvent) -> bool:
    """Return whether an event clears the KV cache, so that no later step attends to it."""
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
    """Return the prompt of a submit as token ids; for a continuation, only its added tokens."""
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
