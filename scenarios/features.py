"""Combinations of features that no engine runs, and features without effect."""

from collections.abc import Callable
from dataclasses import dataclass

from scenarios.drafters import TRAITS, DrafterTraits, drafters_where
from scenarios.spec import EngineSpec

DEPTH_MAX = 2
_ASYNCHRONOUS = ", ".join(drafters_where(lambda drafter: not drafter.goes_through_host))


def _drafters(holds: Callable[[DrafterTraits], bool]) -> str:
    return " and ".join(drafters_where(holds))


@dataclass(frozen=True, slots=True)
class Refusal:
    """A combination of features that no engine runs: the key, its allowed values, the reason.

    A trace with the fault `lifted_by` is accepted: it reproduces the bug that the refusal prevents.
    """

    key: str
    applies: Callable[[EngineSpec], bool]
    allowed: str
    reason: str
    lifted_by: str | None = None

    def message(self, spec: EngineSpec) -> str:
        """Return the message: the value found, the allowed values, and the reason."""
        return f"{self.key} is {getattr(spec, self.key)}; allowed are {self.allowed}: {self.reason}"


REFUSED: tuple[Refusal, ...] = (
    Refusal(
        key="depth",
        applies=lambda spec: spec.depth > DEPTH_MAX,
        allowed=f"1 and {DEPTH_MAX}",
        reason="token counts are corrected by one step, so a step needs the result of the step before the last",
        lifted_by="specstorm-depth-3",
    ),
    Refusal(
        key="prefix_cache",
        applies=lambda spec: spec.prefix_cache and spec.layers == "hybrid" and not spec.is_aligned,
        allowed="False, or recurrent_cache: align",
        reason="a prefix-cache hit needs the recurrent state at its end, which only align keeps with blocks",
    ),
    Refusal(
        key="prefix_cache",
        applies=lambda spec: spec.prefix_cache and spec.layers == "hybrid" and TRAITS[spec.drafter].has_model,
        allowed="False, or another drafter",
        reason="a prefix-cache hit needs the draft model's recurrent state at its end, which blocks do not keep",
    ),
    Refusal(
        key="prefix_cache",
        applies=lambda spec: spec.prefix_cache and TRAITS[spec.drafter].carries_hidden_state,
        allowed="False, or another drafter",
        reason="a prefix-cache hit needs the hidden state before its end, which "
        f"{_drafters(lambda drafter: drafter.carries_hidden_state)} keeps with the request that computed it",
    ),
    Refusal(
        key="last_match",
        applies=lambda spec: spec.last_match == "taken" and TRAITS[spec.drafter].is_shifted,
        allowed="dropped, or another drafter",
        reason=f"a KV entry of {_drafters(lambda drafter: drafter.is_shifted)} depends on the next token",
    ),
    Refusal(
        key="drafter",
        applies=lambda spec: spec.depth > 1 and TRAITS[spec.drafter].is_on_host,
        allowed=f"{_ASYNCHRONOUS}, or depth 1",
        reason=f"{_drafters(lambda drafter: drafter.is_on_host)} draft on the host, which lacks the tokens of a "
        "step in flight",
    ),
    Refusal(
        key="drafter",
        applies=lambda spec: spec.depth > 1 and TRAITS[spec.drafter].is_read_back,
        allowed=f"{_ASYNCHRONOUS}, or depth 1",
        reason=f"a step gets the drafts of {_drafters(lambda drafter: drafter.is_read_back)} through the host, "
        "which does not have the drafts of a step in flight",
    ),
    Refusal(
        key="num_speculative_tokens",
        applies=lambda spec: spec.num_speculative_tokens > 1 and TRAITS[spec.drafter].proposes_one,
        allowed="0 and 1",
        reason=f"{_drafters(lambda drafter: drafter.proposes_one)} proposes one draft token, the sampled token again",
    ),
    Refusal(
        key="drafter_max_len",
        applies=lambda spec: spec.drafter_max_len > 0 and not TRAITS[spec.drafter].has_positions,
        allowed="0",
        reason=f"{_drafters(lambda drafter: not drafter.has_positions)} have no model with a position limit",
    ),
    Refusal(
        key="draft_sampling",
        applies=lambda spec: spec.draft_sampling == "probabilistic" and not TRAITS[spec.drafter].has_model,
        allowed=f"greedy, or drafter: {_drafters(lambda drafter: drafter.has_model)}",
        reason="only a draft model has logits to sample draft tokens from",
    ),
)


def refusals(spec: EngineSpec, faults: tuple[str, ...]) -> list[Refusal]:
    """Return the feature combinations in `spec` that no engine runs with these faults on."""
    return [rule for rule in REFUSED if rule.applies(spec) and rule.lifted_by not in faults]


@dataclass(frozen=True, slots=True)
class SwitchedOff:
    """A feature of a trace that the engine ignores, with the reason.

    A trace with the fault `lifted_by` keeps the feature on, and reproduces the bug that switching off prevents.
    """

    key: str
    applies: Callable[[EngineSpec], bool]
    when: str
    reason: str
    lifted_by: str | None = None

    def message(self, spec: EngineSpec) -> str:
        """Return the message: the value, when it has no effect, and why."""
        return f"{self.key} is {getattr(spec, self.key)}, but switched off {self.when}: {self.reason}"


SWITCHED_OFF: tuple[SwitchedOff, ...] = (
    SwitchedOff(
        key="cascade",
        applies=lambda spec: spec.cascade and spec.depth > 1,
        when="at depth 2",
        reason="the host counts drafts in flight as computed, so its common prefix may contain rejected tokens",
        lifted_by="vllm-32951-cascade-stays-on",
    ),
)


def switched_off(spec: EngineSpec, faults: tuple[str, ...]) -> list[SwitchedOff]:
    """Return the features of a trace that the engine ignores with these faults on."""
    return [rule for rule in SWITCHED_OFF if rule.applies(spec) and rule.lifted_by not in faults]


def is_switched_off(spec: EngineSpec, key: str) -> bool:
    """Return whether an engine without faults ignores the feature `key`."""
    return any(rule.key == key and rule.applies(spec) for rule in SWITCHED_OFF)
